"""State of the launcher: live experiments with their trials, live allocations, joined agents, and nodes that come and go.

An experiment leaves when the search has ended it, a trial with TrialFinished, an allocation with WorkersExited, an agent with
AgentLost. So the state grows with live work, not with history; of agents that joined by a token only the pool stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from immutables import Map

from tenuto.kernel.codec import DERIVED
from tenuto.schemas.assignments import SourceCheckpoint
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.environment import AllowedMount
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.pool import AgentSlots
from tenuto.schemas.events.run import Cause, WorkersOutcome
from tenuto.schemas.ids import experiment_of, trial_of
from tenuto.schemas.record import KnownData, Parent
from tenuto.services.launcher.state.nodes import ProvisionedPool, check_pool
from tenuto.services.launcher.state.restarts import Standstill

Phase = Literal["wanted", "paused", "stopped"]
"""wanted: it has budget left to train. paused: it waits for the search. stopped: it is over."""


@dataclass(frozen=True)
class Trial:
    trial_id: str
    number: int
    hyperparameters: dict[str, Any]
    seed: int
    target_length: int
    phase: Phase = "wanted"
    checkpoint: SourceCheckpoint | None = None
    """Checkpoint from which its next workers resume: its latest one, or before that the one it was derived from."""
    earlier: tuple[SourceCheckpoint, ...] = ()
    """Earlier checkpoints that are not deleted, newest first: used if `checkpoint` is damaged."""
    data: tuple[KnownData, ...] = ()
    """Records of its declared data by its last run, by name."""
    environment_hash: str = ""
    """Hash of the environment of its last run."""
    standstill: Standstill = field(default_factory=Standstill)
    """Ends of its workers in a row with nothing new saved or validated between them."""
    pause_of: str = ""
    """The allocation whose end began a pause before the next start; empty: none."""
    restart_at_us: int = 0
    """Time at which that pause ends."""
    canceled: bool = False
    """True if users stopped it, not the search: they may want to go on with what was trained, so its workers save it."""


@dataclass(frozen=True)
class Experiment:
    experiment_id: int
    config: ExperimentConfig
    seed: int
    context_hash: str
    kill: bool = False
    """Canceled at once: its workers are killed without a checkpoint."""
    trials: Map[str, Trial] = field(default_factory=Map)
    checkpoints: Map[str, SourceCheckpoint] = field(default_factory=Map)
    """All that are not deleted: a new trial may start from any of them."""
    parent: Parent | None = None
    data: tuple[KnownData, ...] = ()
    """Declared data, by name: as the experiment's parent recorded it, else as its own first run did."""


@dataclass(frozen=True)
class Part:
    """One agent's share of an allocation."""

    agent_id: str
    started: bool = False
    outcome: WorkersOutcome | None = None
    """Set when its workers have left."""
    exit_code: int | None = None
    error: str | None = None
    cause: Cause | None = None

    @property
    def running(self) -> bool:
        return self.outcome is None


@dataclass(frozen=True)
class Allocation:
    """Granted, and its workers have not all left."""

    allocation_id: str
    slots: tuple[AgentSlots, ...]
    parts: tuple[Part, ...]
    """One per agent, in the order of `slots`."""
    starting: bool = False
    """True once WorkersStarting is recorded."""
    started: bool = False
    """True once WorkersStarted is recorded."""
    preempted: bool = False
    kill: bool = False
    first_exit: str = ""
    """The agent whose part failed or was lost first: it speaks for the allocation, the others only followed."""
    rendezvous: str = ""
    """Address of rank 0's rendezvous; empty until it is known."""
    advanced: bool = False
    """True once it has saved a checkpoint behind the one that it began with, or validated where the trial had not."""
    first_followed: bool = False
    """True if `first_exit` only followed a part whose report is still to come."""
    trace: str = ""
    """Trace of the grant, which the workers' reports go on with."""

    @property
    def trial_id(self) -> str:
        return trial_of(self.allocation_id)

    @property
    def experiment_id(self) -> int:
        return experiment_of(self.allocation_id)

    def part(self, agent_id: str) -> Part | None:
        for part in self.parts:
            if part.agent_id == agent_id:
                return part
        return None


@dataclass(frozen=True)
class State:
    experiments: Map[int, Experiment] = field(default_factory=Map)
    allocations: Map[str, Allocation] = field(default_factory=Map)
    agents: Map[str, AgentJoined] = field(default_factory=Map)
    """Last description of each joined agent by itself, by agent id."""
    members: Map[str, str] = field(default_factory=Map)
    """Pool that each agent joined for by a token; empty: the agent was revoked. Agents whose credentials came from the operator
    are not among them."""
    pools: Map[str, ProvisionedPool] = field(default_factory=Map)
    """Pools whose nodes a provisioner starts, or did, by name."""
    pool_mounts: Map[str, tuple[AllowedMount, ...]] = field(default_factory=Map)
    """Paths that a pool lets containers mount, by pool; a pool without a setting is not among them."""
    on_agent: Map[str, tuple[str, ...]] = field(default_factory=Map, metadata=DERIVED)
    """Live allocations with a running part on that agent, sorted by id."""
    of_trial: Map[str, tuple[str, ...]] = field(default_factory=Map, metadata=DERIVED)
    """Live allocations of that trial."""
    pauses: Map[str, int] = field(default_factory=Map, metadata=DERIVED)
    """Trials that wait before they start again, with when that ends."""

    def trial(self, trial_id: str) -> Trial | None:
        experiment = self.experiments.get(experiment_of(trial_id))
        return experiment.trials.get(trial_id) if experiment else None


def initial() -> State:
    return State()


def paused(experiments: Map[int, Experiment]) -> Map[str, int]:
    """The index of pauses as it follows from the trials."""
    found: dict[str, int] = {}
    for experiment_id in sorted(experiments):
        trials = experiments[experiment_id].trials
        found.update({key: trials[key].restart_at_us for key in sorted(trials) if trials[key].pause_of})
    return Map(found)


def indexed(state: State) -> tuple[Map[str, tuple[str, ...]], Map[str, tuple[str, ...]]]:
    """The two indexes as they follow from the allocations, each list sorted."""
    on_agent: dict[str, tuple[str, ...]] = {}
    of_trial: dict[str, tuple[str, ...]] = {}
    for allocation_id in sorted(state.allocations):
        allocation = state.allocations[allocation_id]
        of_trial[allocation.trial_id] = (*of_trial.get(allocation.trial_id, ()), allocation_id)
        for part in allocation.parts:
            if part.running:
                on_agent[part.agent_id] = (*on_agent.get(part.agent_id, ()), allocation_id)
    return Map(on_agent), Map(of_trial)


def derive(state: State) -> State:
    """State with its indexes rebuilt."""
    on_agent, of_trial = indexed(state)
    return replace(state, on_agent=on_agent, of_trial=of_trial, pauses=paused(state.experiments))


def check(state: State) -> None:
    """Assert what must hold after every event."""
    derived = derive(state)
    assert state.on_agent == derived.on_agent, "the index of agents does not fit the allocations"
    assert state.of_trial == derived.of_trial, "the index of trials does not fit the allocations"
    assert state.pauses == derived.pauses, "the index of pauses does not fit the trials"
    for name in sorted(state.pools):
        check_pool(name, state.pools[name])
    for agent_id in sorted(state.on_agent):
        held: dict[int, str] = {}
        for allocation_id in state.on_agent[agent_id]:
            for part in state.allocations[allocation_id].slots:
                for slot_id in part.slot_ids if part.agent_id == agent_id else ():
                    assert slot_id not in held, f"slot {slot_id} of {agent_id} is in {held[slot_id]} and {allocation_id}"
                    held[slot_id] = allocation_id
    for allocation_id in sorted(state.allocations):
        allocation = state.allocations[allocation_id]
        assert allocation.allocation_id == allocation_id
        assert [part.agent_id for part in allocation.parts] == [part.agent_id for part in allocation.slots]
    for experiment_id in sorted(state.experiments):
        experiment = state.experiments[experiment_id]
        for trial_id in sorted(experiment.trials):
            assert experiment_of(trial_id) == experiment_id
            assert experiment.trials[trial_id].target_length > 0
