"""The tracker's rules, assembled for the service loop, replay and the simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from immutables import Map

from tenuto.kernel.core import Command
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import Pool
from tenuto.schemas.events.registry import EVENT_MODELS
from tenuto.schemas.ids import experiment_of
from tenuto.services.tracker import decide, evolve, state
from tenuto.services.tracker.commands import RecordReport
from tenuto.services.tracker.state import Checkpoint, Experiment, Ranked, State, Trial


class TrackerCore:
    name = "tracker"
    rule_version = 4
    """2: a checkpoint that was kept only because other trials started from it goes when they need it no more. 3: losses are given
    up by what ended the workers, and a failure that would repeat at once. 4: deaths are borne as often as `max_restarts` says."""
    consumes = frozenset(
        {
            "ExperimentSubmitted",
            "ExperimentCompleted",
            "ExperimentFailed",
            "ExperimentCanceled",
            "TrialRequested",
            "TrialStopped",
            "WorkersExited",
            # Every type of the pool streams, also one that is new: their number is the version that reports are guarded by.
            *(name for name, model in EVENT_MODELS.items() if issubclass(model, Pool)),
        }
    )
    emits = frozenset(
        {
            "ValidationReported",
            "CheckpointSaved",
            "CheckpointDeleted",
            "CheckpointDamaged",
            "TrialProgressed",
            "TrialFailed",
            "TrialFinished",
            "ReportRefused",
            "LogMatched",
            "StragglerNoticed",
            "EnvironmentRecorded",
            "DataRecorded",
        }
    )

    def initial(self) -> State:
        return state.initial()

    def evolve(self, state: State, event: Event) -> State:
        return evolve.evolve(state, event)

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide.decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(experiment_of(getattr(data, "trial_id", "")))

    def guards(self, state: State, cause: Event | Command) -> Mapping[str, int]:
        """A report is judged by the allocations as they are when it is committed, not as they were when it was read."""
        if not isinstance(cause, RecordReport):
            return {}
        experiment = state.experiment(experiment_of(cause.report.trial_id))
        if experiment is None:
            return {}
        stream = f"pool/{experiment.pool}"
        return {stream: state.pool_versions.get(stream, 0)}

    def check(self, state_: State) -> None:
        state.check(state_)

    def dump(self, state: State) -> bytes:
        document = {
            "experiments": [_dump_experiment(state.experiments[key]) for key in sorted(state.experiments)],
            "pool_versions": dict(sorted(state.pool_versions.items())),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def load(self, data: bytes) -> State:
        document = json.loads(data)
        experiments = [_load_experiment(item) for item in document["experiments"]]
        return State(
            experiments=Map({item.experiment_id: item for item in experiments}), pool_versions=Map(document["pool_versions"])
        )


def _dump_experiment(experiment: Experiment) -> dict[str, Any]:
    return {
        **vars(experiment),
        "ranked": [vars(item) for item in experiment.ranked],
        "sources": sorted(experiment.sources.items()),
        "held": sorted(experiment.held.items()),
        "trials": [_dump_trial(experiment.trials[key]) for key in sorted(experiment.trials)],
    }


def _dump_trial(trial: Trial) -> dict[str, Any]:
    fields = {name: value for name, value in vars(trial).items() if name != "kept"}  # follows from the checkpoints
    return {
        **fields,
        "validations": sorted(trial.validations.items()),
        "checkpoints": [vars(item) for item in trial.checkpoints],
        "deleted": sorted(trial.deleted),
    }


def _load_experiment(item: dict[str, Any]) -> Experiment:
    trials = [_load_trial(trial) for trial in item.pop("trials")]
    item["environments"] = tuple(item.get("environments", ()))  # a snapshot made before they were recorded has none
    item["ranked"] = tuple(Ranked(**ranked) for ranked in item.get("ranked", ()))
    item["sources"] = Map(dict(item.get("sources", ())))
    item["held"] = Map(dict(item.get("held", ())))
    return Experiment(**item, trials=Map({trial.trial_id: trial for trial in trials}))


def _load_trial(item: dict[str, Any]) -> Trial:
    item["validations"] = Map(dict(item["validations"]))
    item["checkpoints"] = tuple(Checkpoint(**checkpoint) for checkpoint in item["checkpoints"])
    item["kept"] = Map({checkpoint.checkpoint_id: True for checkpoint in item["checkpoints"]})
    item["deleted"] = Map(dict.fromkeys(item["deleted"], True))
    item["damaged"] = tuple(item.get("damaged", ()))
    return Trial(**item)
