"""The launcher's core with one provisioned pool: what the queue wants, what the provider has, and agents on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tenuto.kernel.decision import step
from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import Slot
from tenuto.schemas.events.node import NodeFailed, NodeReleased, NodeRequested
from tenuto.schemas.events.pool import AgentSlots, AllocationGranted, CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolProvisioned
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialRequested
from tenuto.schemas.ids import name_id
from tenuto.schemas.reports import WorkersExitedReport
from tenuto.services.launcher.commands import (
    ExpireLease,
    LookAtNodes,
    RecordHeartbeat,
    RecordRunReport,
    SeenNode,
    StartFailure,
    TickNodes,
)
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.policies.provisioning.nodes import NodeOrders, wanted_orders
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool
from tests.support.launcher_driver import CONFIG

WHY = Reason(rule="test")
T = TypeVar("T", bound=EventData)


def demand(slots: int = 1, count: int = 1, experiment: int = 1, **rest: Any) -> CapacityDemand:
    return CapacityDemand(slots=slots, count=count, experiment_id=experiment, **rest)


def types(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return list(items)


class NodesDriver:
    """Folds and decides in the order of the service loop, and checks the state after each step. `seconds`: the clock."""

    def __init__(self, pool: str = "gpus", **settings: Any) -> None:
        self.core = LauncherCore()
        self.state = self.core.initial()
        self.log: list[Event] = []
        self.pool_name, self.seconds, self.causes, self.grants = pool, 1_000.0, 0, 0
        self.provision(**settings)
        self.event(ExperimentSubmitted(experiment_id=9, config=CONFIG, seed=5, context_hash="c", context_size_bytes=1, user="u"))

    @property
    def now_us(self) -> int:
        return round(self.seconds * 1e6)

    @property
    def pool(self) -> ProvisionedPool:
        return self.state.pools[self.pool_name]

    def node(self, number: int) -> Node:
        return self.pool.nodes[f"{self.pool_name}-{number}"]

    def phases(self) -> dict[int, str]:
        return {node.number: node.phase for node in self.pool.in_order()}

    def event(self, data: EventData) -> list[EventData]:
        position = len(self.log) + 1
        event = Event(
            id=name_id("input", str(position)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self.now_us, payload=data.to_json(), actor="test/1", position=position,
        )  # fmt: skip
        self.log.append(event)
        self.state = self.core.evolve(self.state, event)
        return self._settle(event, position)

    def command(self, kind: Any, *fields: Any) -> list[EventData]:
        self.causes += 1
        return self._settle(kind(name_id("command", str(self.causes)), self.now_us, *fields), len(self.log))

    def _settle(self, cause: Any, seen: int) -> list[EventData]:
        self.state, decided = step(self.core, self.state, cause, seen_position=seen, time_us=self.now_us)
        for event in decided:
            self.log.append(event.recorded(len(self.log) + 1, 1))
        self.core.check(self.state)
        return [event.data for event in decided]

    def pass_time(self, seconds: float) -> list[EventData]:
        self.seconds += seconds
        return self.command(TickNodes)

    def provision(self, **settings: Any) -> list[EventData]:
        given = {"provisioner": "slurm", "idle_seconds": 300.0, "join_seconds": 600.0, **settings}
        return self.event(PoolProvisioned.model_validate({"pool": self.pool_name, **given}))

    def want(self, *demands: CapacityDemand) -> list[EventData]:
        return self.event(CapacityWanted(pool=self.pool_name, demands=demands))

    def release(self, number: int, *, drain: bool = True) -> list[EventData]:
        return self.event(NodeReleaseRequested(node_id=f"{self.pool_name}-{number}", drain=drain))

    def look(
        self, running: Iterable[int] = (), *, pending: Iterable[int] = (), ended: Iterable[int] = (),
        failures: Sequence[tuple[int, str]] = (), generation: int | None = None, no_image: Iterable[int] = (),
    ) -> list[EventData]:  # fmt: skip
        """The provider has these nodes, by number."""
        name = self.pool_name
        seen = [SeenNode(f"{name}-{n}", f"i-{n}", "running") for n in running]
        seen += [SeenNode(f"{name}-{n}", f"i-{n}", "pending") for n in pending]
        seen += [SeenNode(f"{name}-{n}", f"i-{n}", "running", "ErrImagePull", image_missing=True) for n in no_image]
        seen += [SeenNode(f"{name}-{n}", f"i-{n}", "ended", "out of memory") for n in ended]
        failed = tuple(StartFailure(f"{name}-{n}", kind, "no") for n, kind in failures)  # type: ignore[arg-type]
        return self.command(LookAtNodes, name, generation or self.pool.generation, tuple(seen), failed)

    def orders(self, real: Sequence[SeenNode] = ()) -> NodeOrders[SeenNode]:
        return wanted_orders(self.state, self.pool_name, self.pool.generation, real, self.now_us)

    def join(self, number: int, slots: int | None = None, device: str = "cpu", **said: Any) -> list[EventData]:
        node = self.node(number)
        offered = tuple(
            Slot(slot_id=at, kind="cpu" if device == "cpu" else "cuda", device=device)
            for at in range(node.slots if slots is None else slots)
        )
        said.setdefault("labels", node.node_type.labels)
        beat = Heartbeat(
            agent_id=node.node_id, spool_id="s", pool=self.pool_name, host="h", version="1", slots=offered, allocations=(),
            launcher_sequence=1, **said,
        )  # fmt: skip
        return self.command(RecordHeartbeat, beat, True)

    def start(self, *numbers: int) -> None:
        """The nodes run, and their agents join."""
        self.look(numbers)
        for number in numbers:
            self.join(number)

    def lose(self, number: int) -> list[EventData]:
        return self.command(ExpireLease, f"{self.pool_name}-{number}", "no heartbeat for 10 s")

    def grant(self, *numbers: int, slots: int = 1) -> str:
        """An allocation with so many slots on each of these nodes."""
        self.grants += 1
        allocation, trial = f"9-{self.grants}-1", f"9-{self.grants}"
        self.event(
            TrialRequested(
                experiment_id=9,
                trial_id=trial,
                trial_number=self.grants,
                hyperparameters={},
                seed=1,
                target_length=10,
                reason=WHY,
            )
        )
        self.event(
            AllocationGranted(
                pool=self.pool_name, allocation_id=allocation, trial_id=trial, experiment_id=9, reason=WHY,
                slots=tuple(
                    AgentSlots(agent_id=f"{self.pool_name}-{number}", slot_ids=tuple(range(slots))) for number in numbers
                ),
            )
        )  # fmt: skip
        return allocation

    def leave(self, allocation: str, number: int) -> list[EventData]:
        report = WorkersExitedReport(
            trial_id=allocation.rpartition("-")[0], allocation_id=allocation, agent_id=f"{self.pool_name}-{number}",
            outcome="preempted", exit_code=0, error=None,
        )  # fmt: skip
        return self.command(RecordRunReport, report)


def requested(decided: Sequence[EventData]) -> list[str]:
    """Types of the nodes that are requested, in order."""
    return [data.node_type for data in decided if isinstance(data, NodeRequested)]


def released(decided: Sequence[EventData]) -> dict[int, str]:
    """Number -> rule, of nodes that are given back."""
    return {_number(data.node_id): data.reason.rule for data in decided if isinstance(data, NodeReleased)}


def failed(decided: Sequence[EventData]) -> dict[int, str]:
    return {_number(data.node_id): data.failure for data in decided if isinstance(data, NodeFailed)}


def _number(node_id: str) -> int:
    return int(node_id.rpartition("-")[2])
