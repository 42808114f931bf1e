"""custom: a user's own class decides, in a process of its own (`tenuto search run`); these rules carry out what it asked for.

What the class decided comes as a recorded request that names the event it decided on. So a replay takes every decision below
again without the class. New trials and trials that go on wait for a free place in the order in which they were asked for, those
that go on first. A trial that reached its target waits without slots: the class may be away, and others need them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tenuto.schemas.config import CustomSearcher
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.operations import Create, Extend, Operation, Stop
from tenuto.schemas.sentences.ends import CustomEnded, CustomExtended, CustomStopped, CustomWaits, FullLength, NeverStarted
from tenuto.schemas.sentences.search import Created
from tenuto.services.searcher.methods.base import Proposal, Rules
from tenuto.services.searcher.methods.reasons import scored
from tenuto.services.searcher.methods.sampling import configuration, sample, started_at
from tenuto.services.searcher.state import Experiment, Trial
from tenuto.services.searcher.state.custom_operations import WaitingOperation


class Custom(Rules[CustomSearcher]):
    @property
    def asks_outside(self) -> bool:
        return True

    def awaits(self, experiment: Experiment) -> bool:
        return experiment.ending is None and (experiment.wants_trials or experiment.paused > 0)

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        if not experiment.creations or experiment.ending is not None:
            return None
        asked = experiment.creations[0]
        wanted = json.loads(asked.operation)
        return Proposal(
            self._completed(experiment, wanted["hyperparameters"]),
            rule=Created,
            numbers=asked.numbers,
            source_checkpoint_id=wanted["source_checkpoint_id"],
            parent=wanted["parent"],
            length=min(wanted["length"], self.settings.max_length.value),
            stopped=asked.stopped,
        )

    def _completed(self, experiment: Experiment, given: dict[str, Any]) -> dict[str, Any]:
        """Adds drawn values for the hyperparameters that the class left out, by the trial's number. Draws again while a
        constraint is violated, if that can help."""
        number = experiment.requested + 1

        def draw(attempt: int) -> dict[str, Any]:
            return started_at(self.space, given, sample(self.space, experiment.seed, number, attempt))

        # The configuration's starting points are for the class to read.
        settings = self.settings.model_copy(update={"starting_points": []})
        return configuration(settings, self.space, number, draw) or draw(0)

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        if not experiment.extensions or experiment.ending is not None:
            return None
        number, asked = experiment.extensions[0]
        return _extended(experiment, number, asked)

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped:
        length = experiment.target(trial)
        trial_id = experiment.trial_id(trial.number)
        if length >= self.settings.max_length.value:
            over = FullLength(**scored(experiment, trial.score), length=length, unit=experiment.unit)
            return TrialStopped(experiment_id=experiment.id, trial_id=trial_id, outcome="completed", reason=over.reason())
        waits = CustomWaits(**scored(experiment, trial.score), length=length, unit=experiment.unit)
        return TrialPaused(experiment_id=experiment.id, trial_id=trial_id, reason=waits.reason())


def asked_for(data: SearchOperationsRequested, index: int, operation: Operation) -> WaitingOperation:
    return WaitingOperation(data.searcher, data.cause_position, index, operation.to_json().decode())


def carried_out(experiment: Experiment, asked: WaitingOperation, operation: Operation) -> TrialExtended | TrialStopped | None:
    """Immediate decision on an operation about a trial. None: no decision, because the trial has ended meanwhile, or
    has to wait for a free place."""
    if not isinstance(operation, (Extend, Stop)):
        return None
    trial = experiment.trials.get(operation.trial)
    if trial is None or trial.status not in ("running", "paused"):
        return None
    if isinstance(operation, Stop):
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            outcome="early_stopped",
            reason=CustomStopped(**asked.numbers).reason(),
        )
    if trial.status == "paused" or _target(experiment, operation) <= experiment.target(trial):
        return None
    return _extended(experiment, trial.number, asked)


def changed_creation(asked: WaitingOperation, operation: Extend | Stop) -> WaitingOperation:
    """A trial that has not started yet, after an operation about it."""
    if isinstance(operation, Stop):
        return replace(asked, stopped=True)
    create = Create.from_json(asked.operation)
    return replace(asked, operation=create.model_copy(update={"length": max(create.length, operation.length)}).to_json().decode())


def never_started(experiment: Experiment, number: int) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(number),
        outcome="early_stopped",
        reason=NeverStarted().reason(),
    )


def ended(experiment: Experiment, trial: Trial) -> TrialStopped:
    """A trial that still runs or waits when the class ends the search."""
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="early_stopped",
        reason=CustomEnded(length=experiment.target(trial)).reason(),
    )


def _target(experiment: Experiment, operation: Extend) -> int:
    return min(operation.length, experiment.settings.max_length.value)


def _extended(experiment: Experiment, number: int, asked: WaitingOperation) -> TrialExtended:
    length = _target(experiment, Extend.from_json(asked.operation))
    return TrialExtended(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(number),
        target_length=length,
        reason=CustomExtended(length=length, unit=experiment.unit, **asked.numbers).reason(),
    )
