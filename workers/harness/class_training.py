"""Builds and trains a Trial class, in a cluster's worker and without a cluster alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tenuto.kernel.clock import Clock
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.assignments import Action, Assignment
from tenuto.workers.connection.directives import AgentGone, DirectiveBox
from tenuto.workers.harness.reporter import Reports
from tenuto.workers.harness.schedule import Shorten
from tenuto.workers.harness.trainer import Trainer, TrialBase, TrialInfo
from tenuto.workers.harness.training import TrainingLoop
from tenuto.workers.launch.gang import Gang
from tenuto.workers.record import recorder
from tenuto.workers.record.environment import models_of


def train_class(
    trial_class: type[TrialBase],
    assignment: Assignment,
    box: DirectiveBox,
    reporter: Reports,
    checkpoint_directory: Path,
    clock: Clock,
    *,
    gang: Gang | None = None,
    stores: Stores | None = None,
    built: Callable[[Trainer], None] = lambda trainer: None,
    shorten: Shorten | None = None,
) -> Action:
    """Builds a Trial class and trains it, as in `TrainingLoop.run`. `built` is given the trainer before it trains."""
    trainer = trial_class.make_trainer(TrialInfo.of(assignment, gang))
    recorder.record_environment(models_of(trainer))
    try:
        built(trainer)
        loop = TrainingLoop(
            assignment, trainer, box, reporter, checkpoint_directory, clock, gang=gang, stores=stores, shorten=shorten
        )
        return loop.run()
    except AgentGone:
        raise
    except BaseException:
        reporter.flush()  # what was reached before the error is worth recording
        raise
    finally:
        trainer.close()
        reporter.close()
