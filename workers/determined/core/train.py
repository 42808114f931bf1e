"""`core_context.train`: reports."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from tenuto.workers.core_api.run import Run
from tenuto.workers.core_api.session import say
from tenuto.workers.determined.core.positions import DeterminedPositions
from tenuto.workers.errors import InvalidHyperparameters, UserError


class EarlyExitReason(enum.Enum):
    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext:
    def __init__(self, run: Run, positions: DeterminedPositions, holds: bool) -> None:
        """`holds`: the newest validation waits, because the next may be at the same length, or the script's last."""
        self._run, self._positions = run, positions
        self.holds = holds
        self._held: tuple[int, dict[str, float]] | None = None
        self._told: set[str] = set()

    def set_status(self, status: str) -> None:
        """Nothing to do: what a trial does is on record."""

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: list[Mapping[str, Any]] | None = None
    ) -> None:
        """`batch_metrics` are not recorded."""
        self._run.report_training(steps_completed, self._numbers(metrics))

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        numbers = self._numbers(metrics)
        if not self.holds:
            if self._positions.unit == "epochs" and "epochs" in numbers:
                self._positions.reach(steps_completed, int(numbers["epochs"]))
            self._run.report_validation(steps_completed, numbers)
            return
        if self._held is not None:
            steps, before = self._held
            if steps == steps_completed:
                numbers = before | numbers
            else:
                self.send_held()
        self._held = (steps_completed, numbers)
        self._run.steps = max(self._run.steps, steps_completed)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Metrics of a group of your own are training metrics with the group's name in front: `inference/accuracy`."""
        if group == "training":
            self.report_training_metrics(steps_completed, metrics)
        elif group == "validation":
            self.report_validation_metrics(steps_completed, metrics)
        else:
            self._run.report_training(
                steps_completed, {f"{group}/{name}": value for name, value in self._numbers(metrics).items()}
            )

    def report_progress(self, progress: float) -> None:
        """Nothing to do: progress follows from the steps that are reported."""

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        if reason is EarlyExitReason.INVALID_HP:
            raise InvalidHyperparameters("the script refuses these hyperparameters (report_early_exit)")
        raise UserError(
            "report_early_exit(USER_REQUESTED_STOP): the search decides how long a trial trains; `tenuto exp cancel` ends its "
            "experiment."
        )

    def get_experiment_best_validation(self) -> float | None:
        raise UserError(
            "get_experiment_best_validation: a trial does not see the others' results; `tenuto exp describe` shows them."
        )

    def get_tensorboard_path(self) -> Any:
        raise UserError("get_tensorboard_path: metrics are recorded by the cluster; save other files with checkpoints.")

    def upload_tensorboard_files(self, *_: Any, **__: Any) -> None:
        """Nothing to do: the cluster records metrics, and keeps no files for TensorBoard."""

    def held_at(self) -> int | None:
        """Steps of the validation that waits."""
        return None if self._held is None else self._held[0]

    def send_held(self, more: Mapping[str, Any] | None = None) -> None:
        """Reports the validation that waits. `more`: metrics that it lacks."""
        if self._held is not None:
            (steps, numbers), self._held = self._held, None
            self._run.report_validation(steps, {**(more or {}), **numbers})

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        found = {}
        for name, value in metrics.items():
            try:
                found[str(name)] = float(value)
            except (TypeError, ValueError):
                if name not in self._told:
                    self._told.add(name)
                    say(f"metric {name!r} is not recorded, because it is no number ({type(value).__name__}).")
        return found
