"""The cores of scheduler and launcher together under a virtual clock: a load on nodes that come and go, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.node import NodeFailed, NodeReleased, NodeRequested
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import (
    ExperimentPoolChanged,
    ExperimentSubmitted,
    PoolPolicyChanged,
    SlotsClosed,
    SlotsOpened,
)
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.simulation.fleet import Fleet
from tenuto.services.launcher.simulation.provider import Faults, SimulatedProvider
from tenuto.services.launcher.simulation.threshold import Threshold, least_paid_us
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster, SimulationOutcome
from tenuto.services.scheduler.simulation.script import SimulationScript, joined

POOL = "default"
HOUR_US = 3_600_000_000
OF_PLACES = (AgentJoined, AgentLost, ExperimentPoolChanged, PoolPolicyChanged, SlotsClosed, SlotsOpened)
"""Facts of a recorded history about the nodes and pools that it had."""


@dataclass
class Bill:
    """Result of one way to have nodes."""

    way: str
    outcome: SimulationOutcome
    node_hours: float
    slot_hours: float
    """Slots of these nodes, while they were paid for."""
    cost: float
    nodes: int
    """Nodes that were ever started."""


class NodeSimulation:
    """One load on nodes that come and go. `way`: provisioned or threshold."""

    def __init__(
        self, script: SimulationScript, policy: str, costs: Costs, settings: Provisioning, *, boot_us: int, poll_us: int,
        seed: int = 0, faults: Faults | None = None, way: str = "provisioned", latency_us: int = 0, keep_log: bool = False,
        observer: Callable[[EventData], None] | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.boot_us, self.way, self._observer = settings, boot_us, way, observer
        self.cluster = SimulatedCluster(script, policy, costs, seed=seed, observer=self._observe)
        self.provider = SimulatedProvider(boot_us, faults, seed)
        self.use: dict[str, list[tuple[int, int]]] = {}
        """Type -> changes of the number of its nodes that have work."""
        self.slots_in_use: list[tuple[int, int]] = []
        self._pending: list[EventData] = []
        self._allocations: dict[str, AllocationGranted] = {}
        self._on: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self.fleet: Fleet | None = None
        if way == "threshold":
            first = settings.node_types[0]
            threshold = Threshold(
                self, POOL, self.provider, poll_us, first, settings.nodes_max, round(settings.idle_seconds * 1e6),
                lambda: _waits(self.cluster), lambda agent_id: bool(self._on.get(agent_id)),
            )  # fmt: skip
            self.cluster.at(self.cluster.now_us, threshold.round)
        else:
            self.fleet = Fleet(self, POOL, self.provider, poll_us, latency_us=latency_us, keep_log=keep_log)
            self.cluster.at(self.cluster.now_us, self._begin)

    # The fleet's host.

    @property
    def now_us(self) -> int:
        return self.cluster.now_us

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        self.cluster.at(time_us, action)

    def tell(self, data: EventData) -> None:
        if isinstance(data, NodeRequested):
            self._types[data.node_id] = data.node_type
        self.cluster.tell(data)

    def lose(self, agent_id: str) -> None:
        self.cluster.lose(agent_id, "its node has ended")

    # The scheduler's events, read by the launcher.

    def _begin(self) -> None:
        assert self.fleet is not None
        self.fleet.provision(self.settings)
        self.fleet.round()

    def _observe(self, data: EventData) -> None:
        self._count(data)
        if self._observer is not None:
            self._observer(data)
        if not self._pending:
            self.cluster.at(self.cluster.now_us, self._read)
        self._pending.append(data)

    def _read(self) -> None:
        pending, self._pending = self._pending, []
        if self.fleet is None:
            return
        for data in pending:
            if data.OWNER != "launcher" or isinstance(data, WorkersExited):
                self.fleet.hear(data)

    def _count(self, data: EventData) -> None:
        """Nodes and slots in use."""
        now_us = self.cluster.now_us
        if isinstance(data, AllocationGranted):
            self._allocations[data.allocation_id] = data
            self.slots_in_use.append((now_us, sum([len(part.slot_ids) for part in data.slots])))
            for part in data.slots:
                self._on[part.agent_id] = self._on.get(part.agent_id, 0) + 1
                if self._on[part.agent_id] == 1:
                    self._in_use(part.agent_id, 1)
        elif isinstance(data, WorkersExited) and data.allocation_id in self._allocations:
            granted = self._allocations.pop(data.allocation_id)
            self.slots_in_use.append((now_us, -sum([len(part.slot_ids) for part in granted.slots])))
            for part in granted.slots:
                self._on[part.agent_id] -= 1
                if not self._on[part.agent_id]:
                    del self._on[part.agent_id]
                    self._in_use(part.agent_id, -1)

    def _in_use(self, agent_id: str, change: int) -> None:
        node_type = self._types.get(agent_id, self.settings.node_types[0].name)
        self.use.setdefault(node_type, []).append((self.cluster.now_us, change))

    # Results.

    def run(self) -> Bill:
        outcome = self.cluster.run()
        prices = {item.name: item.cost_per_hour for item in self.settings.node_types}
        paid = {name: time_us / HOUR_US for name, time_us in sorted(self.provider.paid_until(self.now_us).items())}
        cost = sum([hours * prices[name] for name, hours in paid.items()])
        slots = {item.name: item.slots for item in self.settings.node_types}
        slot_hours = sum([hours * slots[name] for name, hours in paid.items()])
        return Bill(self.way, outcome, sum(paid.values()), slot_hours, cost, len(self.provider.machines))

    def oracle(self) -> tuple[float, float]:
        """(node hours, cost) of who knows the future and runs the very same trials on the same nodes at the same times."""
        prices = {item.name: item.cost_per_hour for item in self.settings.node_types}
        hours = {name: least_paid_us(changes, self.boot_us) / HOUR_US for name, changes in sorted(self.use.items())}
        return sum(hours.values()), sum([value * prices[name] for name, value in hours.items()])

    def packed(self) -> float:
        """Node hours of who knows the future and, beside that, moves running trials at no cost, so that no slot of a node is
        empty that need not be. Of nodes of the first type."""
        each, slots, nodes = self.settings.node_types[0].slots, 0, 0
        changes = []
        for time_us, change in self.slots_in_use:
            slots += change
            needed = -(-slots // each)
            if needed != nodes:
                changes.append((time_us, needed - nodes))
                nodes = needed
        return least_paid_us(changes, self.boot_us) / HOUR_US


def static(script: SimulationScript, policy: str, costs: Costs, settings: Provisioning, seed: int = 0) -> Bill:
    """nodes_max nodes of the first type, from the first arrival to the end of the last trial."""
    first = settings.node_types[0]
    start_us = min([time_us for time_us, _ in script.facts] + [trial.arrives_us for trial in script.trials], default=0)
    agents: list[tuple[int, EventData]] = [
        (start_us, joined(f"{POOL}-{number}", first.slots, labels=first.labels)) for number in range(1, settings.nodes_max + 1)
    ]
    outcome = SimulatedCluster(SimulationScript([*agents, *script.facts], script.trials), policy, costs, seed=seed).run()
    hours = settings.nodes_max * (outcome.end_us - outcome.start_us) / HOUR_US
    return Bill("static", outcome, hours, hours * first.slots, hours * first.cost_per_hour, settings.nodes_max)


def _waits(cluster: SimulatedCluster) -> bool:
    """True if anything waits in the scheduler's queue."""
    return any(experiment.waiting and not experiment.paused for experiment in cluster.state.experiments.values())


def unserved(script: SimulationScript) -> SimulationScript:
    """The load without the script's own agents, in one pool."""
    facts: list[tuple[int, EventData]] = []
    for time_us, data in script.facts:
        if isinstance(data, ExperimentSubmitted):
            resources = data.config.resources.model_copy(update={"pool": POOL, "fallback_pools": ()})
            config = data.config.model_copy(update={"resources": resources})
            facts.append((time_us, data.model_copy(update={"config": config})))
        elif not isinstance(data, OF_PLACES):
            facts.append((time_us, data))
    return SimulationScript(facts, script.trials, script.startup_us, script.save_us)


def summary(run: NodeSimulation) -> dict[str, Any]:
    decided = run.fleet.decided if run.fleet is not None else {}
    return {kind.TYPE: decided.get(kind.TYPE, 0) for kind in (NodeRequested, NodeFailed, NodeReleased)}
