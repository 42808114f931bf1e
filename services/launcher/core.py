"""The launcher's rules, assembled for the service loop, replay and the simulator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.kernel.core import Command
from tenuto.schemas.assignments import SourceCheckpoint
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.events.run import Run
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.record import KnownData, Parent
from tenuto.services.launcher import decide, evolve, state
from tenuto.services.launcher.state import Agent, Allocation, Experiment, Part, State, Trial


class LauncherCore:
    name = "launcher"
    rule_version = 2
    consumes = frozenset(
        {
            "ExperimentSubmitted",
            "ExperimentCancelRequested",
            "ExperimentResumeRequested",
            "ExperimentCompleted",
            "ExperimentFailed",
            "ExperimentCanceled",
            "TrialRequested",
            "TrialExtended",
            "TrialPaused",
            "TrialStopped",
            "TrialFinished",
            "CheckpointSaved",
            "ValidationReported",
            "CheckpointDeleted",
            "DataRecorded",
            "EnvironmentRecorded",
            "AllocationGranted",
            "AllocationPreempted",
            "AllocationResized",
        }
    )
    emits = frozenset(
        {
            "WorkersStarting",
            "WorkersStarted",
            "GangPartReported",
            "GangRendezvousOpened",
            "WorkersExited",
            "RestartPauseEnded",
            "AgentJoined",
            "AgentLost",
        }
    )

    def initial(self) -> State:
        return state.initial()

    def evolve(self, state: State, event: Event) -> State:
        return evolve.evolve(state, event)

    def decide(self, state: State, cause: Event | Command) -> Sequence[EventData]:
        return decide.decide(state, cause)

    def correlation_id(self, state: State, data: EventData) -> str:
        return str(experiment_of(data.allocation_id)) if isinstance(data, Run) else ""

    def guards(self, state: State, cause: Event | Command) -> Mapping[str, int]:
        return {}

    def check(self, state_: State) -> None:
        state.check(state_)

    def dump(self, state: State) -> bytes:
        document = {
            "experiments": [_dump_experiment(state.experiments[key]) for key in sorted(state.experiments)],
            "allocations": [_dump_allocation(state.allocations[key]) for key in sorted(state.allocations)],
            "agents": [_dump_agent(state.agents[key]) for key in sorted(state.agents)],
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    def load(self, data: bytes) -> State:
        document = json.loads(data)
        experiments = [_load_experiment(item) for item in document["experiments"]]
        allocations = [_load_allocation(item) for item in document["allocations"]]
        agents = [_load_agent(item) for item in document["agents"]]
        loaded = State(
            experiments=Map({item.experiment_id: item for item in experiments}),
            allocations=Map({item.allocation_id: item for item in allocations}),
            agents=Map({item.agent_id: item for item in agents}),
        )
        on_agent, of_trial = state.indexed(loaded)
        return replace(loaded, on_agent=on_agent, of_trial=of_trial, pauses=state.paused(loaded.experiments))


def _dump_experiment(experiment: Experiment) -> dict[str, Any]:
    return {
        **vars(experiment),
        "config": json.loads(experiment.config.to_json()),
        "trials": [_dump_trial(experiment.trials[key]) for key in sorted(experiment.trials)],
        "checkpoints": [json.loads(experiment.checkpoints[key].to_json()) for key in sorted(experiment.checkpoints)],
        "parent": json.loads(experiment.parent.to_json()) if experiment.parent else None,
        "data": _dump_data(experiment.data),
    }


def _dump_trial(trial: Trial) -> dict[str, Any]:
    return {
        **vars(trial),
        "checkpoint": json.loads(trial.checkpoint.to_json()) if trial.checkpoint else None,
        "earlier": [json.loads(item.to_json()) for item in trial.earlier],
        "data": _dump_data(trial.data),
    }


def _dump_data(items: tuple[KnownData, ...]) -> list[dict[str, Any]]:
    return [json.loads(item.to_json()) for item in items]


def _load_data(item: dict[str, Any]) -> tuple[KnownData, ...]:
    """A snapshot made before data were recorded has none."""
    return tuple(KnownData.model_validate(known) for known in item.get("data", ()))


def _dump_allocation(allocation: Allocation) -> dict[str, Any]:
    return {
        **vars(allocation),
        "slots": [json.loads(part.to_json()) for part in allocation.slots],
        "parts": [vars(part) for part in allocation.parts],
    }


def _dump_agent(agent: Agent) -> dict[str, Any]:
    return {**vars(agent), "slots": [json.loads(slot.to_json()) for slot in agent.slots]}


def _load_experiment(item: dict[str, Any]) -> Experiment:
    checkpoints = [SourceCheckpoint.model_validate(saved) for saved in item["checkpoints"]]
    trials = [_load_trial(trial) for trial in item["trials"]]
    return Experiment(
        **{
            **item,
            "config": ExperimentConfig.model_validate(item["config"]),
            "trials": Map({trial.trial_id: trial for trial in trials}),
            "checkpoints": Map({saved.checkpoint_id: saved for saved in checkpoints}),
            "parent": Parent.model_validate(item["parent"]) if item.get("parent") else None,
            "data": _load_data(item),
        }
    )


def _load_trial(item: dict[str, Any]) -> Trial:
    saved = item["checkpoint"]
    checkpoint = SourceCheckpoint.model_validate(saved) if saved else None
    earlier = tuple(SourceCheckpoint.model_validate(saved) for saved in item.get("earlier", ()))
    return Trial(**{**item, "checkpoint": checkpoint, "earlier": earlier, "data": _load_data(item)})


def _load_allocation(item: dict[str, Any]) -> Allocation:
    slots = tuple(AgentSlots.model_validate(part) for part in item["slots"])
    parts = tuple(Part(**part) for part in item["parts"])
    return Allocation(**{**item, "slots": slots, "parts": parts})


def _load_agent(item: dict[str, Any]) -> Agent:
    slots = tuple(Slot.model_validate(slot) for slot in item["slots"])
    return Agent(**{**item, "slots": slots, "labels": tuple(item.get("labels", ()))})
