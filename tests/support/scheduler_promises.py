"""Invariants of every history, whatever the policy. They are checked on all events in their order, without code of the core, and
violations are collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tenuto.schemas.config.environment import Environment
from tenuto.schemas.config.resources import Resources
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.pool import (
    AgentSlots,
    AllocationGranted,
    AllocationPreempted,
    AllocationReleased,
    AllocationResized,
)
from tenuto.schemas.events.request import (
    ExperimentPoolChanged,
    ExperimentSlotLimitChanged,
    ExperimentSubmitted,
    ShareChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.trial import LogMatched

PREEMPTIONS_MAX = 100
"""Preemptions of one trial beyond those that agents and users cause. More count as a livelock: each costs a fraction of a second,
so that a history that never ends would take hours."""
OWN_WISH = ("experiment_paused", "pool_changed", "slot_limit", "slots_closed", "agent_leaves")
"""Preemption rules that apply also to trials that are not preemptible, because a user asked for it, or the agent ends anyway."""

Slots = set[tuple[str, int]]


class Livelock(Exception):
    """A trial was preempted again and again."""


@dataclass
class Owner:
    """One experiment."""

    pools: tuple[str, ...]
    owners: tuple[str, str]
    resources: Resources
    max_slots: int | None
    environment: Environment = field(default_factory=Environment)

    def runs_on(self, agent: AgentJoined) -> bool:
        """An agent in an image runs trials that name it, and need no container of their own; others start containers or none."""
        if agent.image:
            return agent.image == self.environment.image and not self.environment.container_fields
        return self.environment.image is None or agent.runs_images


@dataclass
class Live:
    """One allocation. `soon`: the slots with which its trial continues after a resize."""

    experiment_id: int
    agents: tuple[str, ...]
    slots: Slots
    soon: Slots = field(default_factory=set)


class Promises:
    def __init__(self, *, preemptions_max: int = PREEMPTIONS_MAX) -> None:
        self.preemptions_max = preemptions_max
        self.wrong: list[str] = []
        self.preemptions: Counter[str] = Counter()
        """By trial."""
        self._experiments: dict[int, Owner] = {}
        self._agents: dict[str, AgentJoined] = {}
        self._lost: set[str] = set()
        self._closed: set[tuple[str, int | None]] = set()
        self._quotas: dict[str, int | None] = {}
        self._kept_away: dict[str, set[str]] = {}
        """Trial -> agents where it failed and may not go again."""
        self._live: dict[str, Live] = {}
        self._taken: dict[tuple[str, int], str] = {}

    def hear(self, data: EventData) -> None:
        """Raises Livelock."""
        if isinstance(data, AllocationGranted):
            self._granted(data)
        elif isinstance(data, AllocationResized):
            self._resized(data)
        elif isinstance(data, AllocationPreempted):
            self._preempted(data)
        elif isinstance(data, AllocationReleased):
            for slot in self._live.pop(data.allocation_id).slots:
                self._taken.pop(slot, None)
        elif isinstance(data, ExperimentSubmitted):
            resources = data.config.resources
            owners = (f"workspace {resources.workspace}", f"user {data.user}")
            pools = (resources.pool, *resources.fallback_pools)
            self._experiments[data.experiment_id] = Owner(
                pools, owners, resources, resources.max_slots, data.config.environment
            )  # fmt: skip
        elif isinstance(data, ExperimentSlotLimitChanged):
            self._experiments[data.experiment_id].max_slots = data.max_slots
        elif isinstance(data, ExperimentPoolChanged):
            owner = self._experiments[data.experiment_id]
            owner.pools = (data.pool, *(name for name in owner.resources.fallback_pools if name != data.pool))
        elif isinstance(data, ShareChanged):
            self._quotas[f"{data.owner} {data.name}"] = data.max_slots
        elif isinstance(data, LogMatched):
            self._kept_away.setdefault(data.trial_id, set()).add(data.agent_id)
        else:
            self._agent_changed(data)

    def _agent_changed(self, data: EventData) -> None:
        if isinstance(data, AgentJoined):
            self._lost.discard(data.agent_id)
            self._agents[data.agent_id] = data
        elif isinstance(data, AgentLost):
            self._lost.add(data.agent_id)
        elif isinstance(data, SlotsClosed):
            self._closed.add((data.agent_id, data.slot_id))
        elif isinstance(data, SlotsOpened):
            gone = {slot for slot in self._closed if slot[0] == data.agent_id and data.slot_id in (None, slot[1])}
            self._closed -= gone

    # The scheduler's own.

    def _granted(self, data: AllocationGranted) -> None:
        experiment, item = self._experiments[data.experiment_id], data.allocation_id
        slots = _slots(data.slots)
        agents = tuple(part.agent_id for part in data.slots)
        if data.pool not in experiment.pools:
            self._broken(f"{item} is in pool {data.pool}, which its experiment does not name")
        self._placed(item, data.pool, experiment, agents, slots)
        for slot in sorted(slots):
            if self._taken.setdefault(slot, item) != item:
                self._broken(f"{item} got slot {slot[1]} of agent {slot[0]}, which {self._taken[slot]} has")
        self._live[item] = Live(data.experiment_id, agents, slots)
        if not slots:
            self._auxiliary(item, agents)
        elif not data.reason.rule.startswith("resized"):  # What that had was kept for it since.
            self._inside_limits(item, experiment)

    def _resized(self, data: AllocationResized) -> None:
        live, experiment = self._live[data.allocation_id], self._experiments[data.experiment_id]
        soon = _slots(data.slots)
        more = soon - live.slots - live.soon
        live.soon = soon
        self._placed(data.allocation_id, data.pool, experiment, tuple(part.agent_id for part in data.slots), soon, more)
        for slot in sorted(more & self._taken.keys()):
            self._broken(f"{data.allocation_id} is to grow into slot {slot}, which {self._taken[slot]} has")
        if more:
            self._inside_limits(data.allocation_id, experiment)

    def _preempted(self, data: AllocationPreempted) -> None:
        experiment = self._experiments[data.experiment_id]
        self._live[data.allocation_id].soon = set()
        if data.reason.rule in OWN_WISH:
            return
        self._not_for_nothing(data)
        if not experiment.resources.preemptible:
            self._broken(f"{data.allocation_id} was preempted ({data.reason.rule}), but is not preemptible")
        self.preemptions[data.trial_id] += 1
        if self.preemptions[data.trial_id] > self.preemptions_max:
            self._broken(f"livelock: trial {data.trial_id} was preempted {self.preemptions[data.trial_id]} times")
            raise Livelock(self.wrong[-1])

    # What must hold.

    def _not_for_nothing(self, data: AllocationPreempted) -> None:
        """The trial for which this one gives way can start with the present agents: one that cannot start must preempt none."""
        trial = str(data.reason.numbers.get("wanted_by_trial", ""))
        if not trial:
            return
        wanted_by = self._experiments[int(trial.split("-")[0])]
        largest = self._largest_room(data.pool, wanted_by, self._kept_away.get(trial, set()))
        if wanted_by.resources.slots_min > largest:
            self._broken(f"{data.allocation_id} was preempted for trial {trial}, which no agents of pool {data.pool} could run")
        for owner in wanted_by.owners:
            quota = self._quotas.get(owner)
            if quota is not None and wanted_by.resources.slots_min > quota:
                self._broken(
                    f"{data.allocation_id} was preempted for trial {trial}, whose gang is larger than the quota of {owner}"
                )

    def _largest_room(self, pool: str, experiment: Owner, kept_away: set[str]) -> int:
        """Slots, busy or not, of the agents that may hold one gang together."""
        asked = experiment.resources
        joined = [agent for agent in self._agents.values() if agent.pool == pool and agent.agent_id not in self._lost]
        kind = "cuda" if any(slot.kind == "cuda" for agent in joined for slot in agent.slots) else "cpu"
        sizes: Counter[str] = Counter()
        for agent in joined:
            name = agent.agent_id
            out = name in kept_away | set(asked.exclude_agents) or (name, None) in self._closed
            numbers = [slot.slot_id for slot in agent.slots if slot.kind == kind]
            devices = [slot.device.lower() for slot in agent.slots if slot.kind == kind]
            fits = all((asked.device or "").lower() in device for device in devices)
            if out or not fits or not experiment.runs_on(agent) or not set(asked.agent_labels) <= set(agent.labels):
                continue
            room = {"agent": name, "rack": min(self._racks([name])), "any": ""}[asked.locality]
            sizes[room] += sum((name, number) not in self._closed for number in numbers)
        return max(sizes.values(), default=0)

    def _placed(
        self,
        item: str,
        pool: str,
        experiment: Owner,
        agents: tuple[str, ...],
        slots: Slots,
        new: Slots | None = None,
    ) -> None:
        """`new`: the slots that the trial did not hold before."""
        asked = experiment.resources
        if not asked.slots_min <= len(slots) <= asked.slots_max:
            self._broken(f"{item} has {len(slots)} slots and asks for {asked.slots_min} to {asked.slots_max}")
        for agent_id in agents:
            agent = self._agents[agent_id]
            fresh = [number for name, number in sorted(slots if new is None else new) if name == agent_id]
            if not fresh and slots:
                continue
            if agent.pool != pool:
                self._broken(f"{item} of pool {pool} is on agent {agent_id} of pool {agent.pool}")
            if agent_id in self._lost or (agent_id, None) in self._closed:
                self._broken(f"{item} is on agent {agent_id}, which is not in service")
            for number in fresh:
                if (agent_id, number) in self._closed:
                    self._broken(f"{item} is on slot {number} of agent {agent_id}, which is not in service")
            devices = {slot.slot_id: slot.device.lower() for slot in agent.slots}
            if asked.device and any(asked.device.lower() not in devices[number] for number in fresh):
                self._broken(f"{item} is on agent {agent_id} without {asked.device}")
            if not experiment.runs_on(agent):
                self._broken(f"{item} in image {experiment.environment.image} is on agent {agent_id} in {agent.image or 'none'}")
            if agent_id in asked.exclude_agents or not set(asked.agent_labels) <= set(agent.labels):
                self._broken(f"{item} is on agent {agent_id}, which its experiment excludes")
        if asked.locality == "agent" and len(agents) > 1:
            self._broken(f"{item} is on {len(agents)} agents")
        if asked.locality == "rack" and len(self._racks(agents)) > 1:
            self._broken(f"{item} is on {len(self._racks(agents))} racks")

    def _racks(self, agents: Iterable[str]) -> set[str]:
        """An agent without that label is a rack of its own."""
        named = {item: [label for label in sorted(self._agents[item].labels) if label.startswith("rack=")] for item in agents}
        return {labels[0] if labels else item for item, labels in named.items()}

    def _inside_limits(self, item: str, experiment: Owner) -> None:
        """Slots into which a trial is to grow count for that trial only: slots of others may still be given up."""
        slots: Counter[str] = Counter()
        own = 0
        for key, live in self._live.items():
            size = len(live.slots | live.soon) if key == item else len(live.slots)
            other = self._experiments[live.experiment_id]
            own += size if other is experiment else 0
            for owner in other.owners:
                slots[owner] += size
        if experiment.max_slots is not None and own > experiment.max_slots:
            self._broken(f"{item} brings its experiment to {own} slots of {experiment.max_slots}")
        for owner in experiment.owners:
            quota = self._quotas.get(owner)
            if quota is not None and slots[owner] > quota:
                self._broken(f"{item} brings {owner} to {slots[owner]} slots of {quota}")

    def _auxiliary(self, item: str, agents: tuple[str, ...]) -> None:
        for agent_id in agents:
            count = sum(not live.slots and agent_id in live.agents for live in self._live.values())
            if count > self._agents[agent_id].auxiliary_trials_max:
                self._broken(f"{item} is one trial without slots too many on agent {agent_id}")

    def _broken(self, text: str) -> None:
        self.wrong.append(text)


def _slots(parts: Iterable[AgentSlots]) -> Slots:
    return {(part.agent_id, number) for part in parts for number in part.slot_ids}
