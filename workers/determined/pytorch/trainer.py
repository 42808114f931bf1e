"""Trains a PyTorchTrial written for Determined, by Determined's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenuto.workers.determined import facts
from tenuto.workers.determined.pytorch.callbacks import AllCallbacks, PyTorchCallback, checked, overridden
from tenuto.workers.determined.pytorch.context import PyTorchTrialContext
from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch import checking
from tenuto.workers.pytorch.callbacks import PyTorchCallback as OurCallback
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tenuto.workers.pytorch.trial import PyTorchTrial


class DeterminedTrainer(PyTorchTrainer):
    context: PyTorchTrialContext
    _all: AllCallbacks

    def __init__(self, trial_class: type[PyTorchTrial] | None, info: TrialInfo, hparams: Mapping[str, Any] | None = None) -> None:
        """`trial_class`: None to make only the context, with which a script makes its trial for `adopt`."""
        self._info, self._hparams = info, hparams
        self._begun = self._over = False
        self._batch_results: list[dict[str, Any]] | None = None
        if trial_class is None:
            self._prepare(info)
        else:
            super().__init__(trial_class, info)

    def adopt(self, trial: PyTorchTrial) -> None:
        self._adopt(trial, self._info)

    def _make_context(self, info: TrialInfo, device: torch.device) -> PyTorchTrialContext:
        return PyTorchTrialContext(info, device, self._hparams)

    def _make_callbacks(self) -> dict[str, OurCallback]:
        callbacks = checked(self.trial.build_callbacks(), self.trial.build_callbacks)
        by_batches = not checking.evaluates_full_dataset(self.trial)
        if by_batches is (type(self.trial).evaluate_batch is PyTorchTrial.evaluate_batch):
            raise WillRepeat("define exactly one of evaluate_batch and evaluate_full_dataset.", at=type(self.trial))
        self._all = AllCallbacks(callbacks, by_batches)
        if overridden(callbacks, "on_training_workload_end"):
            self._batch_results = []
        found = facts.current()
        for one in callbacks.values():
            one.on_trial_startup(found.steps_completed if found else 0, found.latest_checkpoint if found else None)
        self._begun = True
        return {"determined": self._all} if callbacks else {}

    @property
    def _theirs(self) -> dict[str, PyTorchCallback]:
        return self._all.callbacks

    def _adopt(self, trial: PyTorchTrial, info: TrialInfo) -> None:
        super()._adopt(trial, info)
        if overridden(self._theirs, "on_checkpoint_write_end", "on_checkpoint_end"):
            self.has_snapshots, self._prepare_in = False, 0  # the hook runs in the training thread, before training goes on
        if self._batch_results is not None:
            self._train_batch = self._noting(self._train_batch)
        if overridden(self._theirs, "on_validation_epoch_end"):
            self._evaluate_batch = self._noting_outputs(self._evaluate_batch)

    def _noting(self, train_batch: Callable[[Any, int, int], Any]) -> Callable[[Any, int, int], Any]:
        def train(batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            result = train_batch(batch, epoch_idx, batch_idx)
            assert self._batch_results is not None
            named = result if isinstance(result, Mapping) else {"loss": result}
            self._batch_results.append({name: _plain(value) for name, value in named.items()})
            return result

        return train

    def _noting_outputs(self, evaluate_batch: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
        def evaluate(batch: Any, batch_idx: int) -> Any:
            result = evaluate_batch(batch, batch_idx)
            self._all.note_output({name: _plain(value) for name, value in result.items()})
            return result

        return evaluate

    def train(self, until_batches: int, interrupted: Callable[[], bool]) -> None:
        super().train(until_batches, interrupted)
        if self._batch_results:
            results, self._batch_results = self._batch_results, []
            averages: dict[str, Any] = {
                name: float(np.mean([result[name] for result in results if name in result])) for name in results[0]
            }
            averages |= {"batches": self.batches}
            if self.epoch_batches:
                averages["epochs"] = self.batches // self.epoch_batches
            for one in self._theirs.values():
                one.on_training_workload_end(avg_metrics=averages, batch_metrics=results)

    def _capture(self, buffers: Any) -> Callable[[Path], None]:
        if overridden(self._theirs, "on_checkpoint_save_start"):
            self._all.saving(self._states())
        fill = super()._capture(buffers)
        if not overridden(self._theirs, "on_checkpoint_write_end", "on_checkpoint_end"):
            return fill

        def write(directory: Path) -> None:
            fill(directory)
            self._all.wrote(str(directory))

        return write

    def load(self, directory: Path) -> None:
        super().load(directory)
        if overridden(self._theirs, "on_checkpoint_load_start"):
            self._all.loaded(self._states())

    def _states(self) -> dict[str, Any]:
        """The part of a checkpoint that hooks are given, under Determined's names."""
        context = self.context
        return {
            "models_state_dict": [model.state_dict() for model in context.models],
            "optimizers_state_dict": [optimizer.state_dict() for optimizer in context.optimizers],
            "lr_schedulers_state_dict": [item.scheduler.state_dict() for item in context.lr_schedulers],
            "callbacks": {name: one.state_dict() for name, one in self._theirs.items()},
        }

    def close(self) -> None:
        super().close()
        if self._begun and not self._over:
            self._over = True
            for one in reversed(self._theirs.values()):  # the last one that was started first, as there
                one.on_trial_shutdown()


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
