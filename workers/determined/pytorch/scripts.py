"""`pytorch.init()` and `pytorch.Trainer(trial, context).fit(...)`: a script that makes its trial itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tenuto.schemas.config import ExperimentConfig
from tenuto.workers.core_api.session import Session, current, say
from tenuto.workers.determined import facts
from tenuto.workers.determined.pytorch.context import PyTorchTrialContext
from tenuto.workers.determined.pytorch.trainer import DeterminedTrainer
from tenuto.workers.determined.pytorch.trial import PyTorchTrial
from tenuto.workers.determined.pytorch.units import Batch, TrainUnit
from tenuto.workers.errors import UserError, WillRepeat
from tenuto.workers.harness.schedule import Schedule
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.harness.training import TrainingLoop
from tenuto.workers.record.environment import models_of
from tenuto.workers.record.recorder import record_environment

REPORTING_PERIOD = Batch(100)
"""Determined's default."""


@contextlib.contextmanager
def init(
    *,
    hparams: Mapping[str, Any] | None = None,
    exp_conf: Mapping[str, Any] | None = None,
    distributed: Any = None,
    aggregation_frequency: int = 1,
    enable_tensorboard_logging: bool = True,
) -> Iterator[PyTorchTrialContext]:
    """The context of the trial that this script makes. `exp_conf` and `distributed` are those of the experiment here."""
    session = current()
    if session is None or facts.current() is None:
        raise UserError("pytorch.init() trains where Tenuto runs the script: `tenuto exp create`, with --local or without.")
    if session.run is not None or session.trained is not None:
        raise UserError("pytorch.init() was called after another training in this script; a process trains one trial once.")
    info = TrialInfo.of(session.assignment, session.gang)
    if aggregation_frequency != 1:
        optimizations = {**(info.config.get("optimizations") or {}), "aggregation_frequency": aggregation_frequency}
        info = dataclasses.replace(info, config={**info.config, "optimizations": optimizations})
    for call in session.at_init:
        call()
    trainer = DeterminedTrainer(None, info, hparams)
    trainer.context._trainer = trainer
    try:
        yield trainer.context
    finally:
        trainer.close()


class Trainer:
    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial) or not isinstance(context._trainer, DeterminedTrainer):
            raise WillRepeat("pytorch.Trainer needs a PyTorchTrial, and the context that pytorch.init() gave.")
        self._trial, self._trainer = trial, context._trainer

    def configure_profiler(self, *_: Any, **__: Any) -> None:
        """Nothing to do: use torch.profiler."""

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = REPORTING_PERIOD,
        checkpoint_policy: str = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> None:
        """Trains to the end of the trial, or until it has to leave its slots. It goes on from the trial's latest checkpoint, also
        where `latest_checkpoint` is not given. Raises UserError."""
        session, found = current(), facts.current()
        if session is None or session.trained is not None:
            raise UserError("Trainer.fit was called twice; a process trains one trial once.")
        if test_mode:
            raise UserError("fit(test_mode=True) is for training without a cluster; leave it out.")
        if step_zero_validation:
            raise UserError("fit(step_zero_validation=True): a trial is not validated before it trains; leave it out.")
        if latest_checkpoint is not None and latest_checkpoint != (found.latest_checkpoint if found else None):
            raise UserError(
                f"fit(latest_checkpoint={latest_checkpoint!r}): a trial goes on from its own checkpoint, "
                "det.get_cluster_info().latest_checkpoint; searcher.source_checkpoint begins with the weights of another."
            )
        if profiling_enabled:
            say("fit(profiling_enabled=True) has no effect: use torch.profiler.")
        self._trainer.adopt(self._trial)
        epoch = self._trainer.epoch_batches
        schedule = Schedule(
            unit_batches=_unit(session.assignment.config, max_length, epoch),
            log_batches=reporting_period.batches("reporting_period", epoch)
            or REPORTING_PERIOD.batches("reporting_period", None)
            or 1,
            checkpoint_batches=None if checkpoint_period is None else checkpoint_period.batches("checkpoint_period", epoch),
            validation_batches=None if validation_period is None else validation_period.batches("validation_period", epoch),
        )
        _run(session, self._trainer, schedule)


def _run(session: Session, trainer: DeterminedTrainer, schedule: Schedule) -> None:
    record_environment(models_of(trainer))
    loop = TrainingLoop(
        session.assignment,
        trainer,
        session.box,
        session.reports,
        session.checkpoint_directory,
        session.clock,
        gang=session.gang,
        stores=session.stores,
        shorten=session.shorten,
        schedule=schedule,
    )
    session.trained = loop.run()


def _unit(config: ExperimentConfig, max_length: TrainUnit | None, epoch_batches: int | None) -> int:
    """Batches of one unit of the search's lengths."""
    length = config.searcher.max_length
    total = None if max_length is None else max_length.batches("max_length", epoch_batches)
    if facts.script_decides(config.model_dump(mode="json")):
        if total is None:
            raise UserError("fit(max_length=X) must be set: the configuration has no length.")
        return total
    if length.unit == "epochs" and epoch_batches is None:
        raise UserError("searcher.max_length is given in epochs, but the training data has no length; give it in batches.")
    unit = 1 if length.unit == "batches" else epoch_batches or 1
    if total not in (None, length.value * unit):
        what = f"fit(max_length={max_length!r}) is {total} batches, but the configuration's max_length is {length.value * unit}"
        if config.searcher.name in ("single", "random", "grid"):
            raise UserError(f"{what}; give the same, or leave it out in fit.")
        say(f"warning: {what}, which is what the search compares at.")
    return unit
