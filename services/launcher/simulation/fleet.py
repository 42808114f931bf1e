"""The launcher's core and its rounds at a simulated provider, under the virtual clock of a host that runs the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tenuto.kernel.decision import step
from tenuto.kernel.folding import DraftEnvelope
from tenuto.kernel.replay import fold
from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import IMAGES, AgentJoined, AgentLost, Slot
from tenuto.schemas.events.node import NodeEvent as NodeEvent
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.ids import name_id
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.commands import ExpireLease, LookAtNodes, RecordHeartbeat, StartFailure, TickNodes
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.evolve import FOLDS
from tenuto.services.launcher.policies.provisioning.nodes import wanted_orders
from tenuto.services.launcher.simulation.provider import SimulatedMachine, SimulatedProvider
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.nodes import ProvisionedPool

LEASE_US = 30_000_000


class SimulationHost(Protocol):
    """Runs the work, and knows the time."""

    @property
    def now_us(self) -> int: ...

    def at(self, time_us: int, action: Callable[[], None]) -> None: ...

    def tell(self, data: EventData) -> None:
        """An event that others read."""

    def lose(self, agent_id: str) -> None:
        """An agent is gone, with what ran there."""


class Fleet:
    def __init__(
        self,
        host: SimulationHost,
        pool: str,
        provider: SimulatedProvider,
        poll_us: int,
        *,
        latency_us: int = 0,
        keep_log: bool = False,
    ) -> None:
        """`latency_us`: longest time until the provider's answer is acted upon. `keep_log`: every event as it would be recorded,
        so that the launcher can be killed."""
        self.host, self.pool_name, self.provider, self.poll_us, self.latency_us = host, pool, provider, poll_us, latency_us
        self.core = LauncherCore()
        self.state: State = self.core.initial()
        self.log: list[Event] | None = [] if keep_log else None
        self.decided: dict[str, int] = {}
        """Number of decisions, by type."""
        self._failures: list[StartFailure] = []
        self._causes = self._launch = 0
        self._read = 0

    @property
    def pool(self) -> ProvisionedPool | None:
        return self.state.pools.get(self.pool_name)

    # The log.

    def hear(self, data: EventData) -> None:
        """An event of another service, or of agents, that the launcher reads."""
        if data.TYPE not in FOLDS.consumes and data.TYPE not in self.core.emits:
            return
        position = (len(self.log) if self.log is not None else 0) + 1
        # What workers did is told by the host in the launcher's name: it stands in the log like a decision on a report.
        own = data.TYPE in self.core.emits
        event = Event(
            id=name_id("input", str(position)), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
            time_us=self.host.now_us, payload=data.to_json() if self.log is not None else b"", actor="simulation",
            position=position, seen_position=self._read if own else 0,
            causation_id=name_id("report", str(position)) if own else None,
        )  # fmt: skip
        event.__dict__["data"] = data
        if self.log is not None:
            self.log.append(event)
        self.state = self.core.evolve(self.state, event)
        if not own:
            self._read = position
            self._settle(event)

    def provision(self, settings: Provisioning) -> None:
        """A person's word: the pool's nodes come from a provisioner."""
        said = PoolProvisioned(pool=self.pool_name, **{name: getattr(settings, name) for name in Provisioning.model_fields})
        self.host.tell(said)
        self.hear(said)

    def command(self, kind: Any, *fields: Any) -> None:
        self._causes += 1
        cause = kind(name_id("command", str(self._causes)), self.host.now_us, *fields)
        self._settle(cause)

    def _settle(self, cause: Any) -> None:
        if self.log is None:
            decided = list(self.core.decide(self.state, cause))
            for data in decided:
                self.state = FOLDS.apply(self.state, data, DraftEnvelope(self.host.now_us))
        else:
            self.state, events = step(self.core, self.state, cause, seen_position=self._read, time_us=self.host.now_us)
            for event in events:
                self.log.append(event.recorded(len(self.log) + 1, 1))
            self.core.check(self.state)
            decided = [event.data for event in events]
        for data in decided:
            self.decided[data.TYPE] = self.decided.get(data.TYPE, 0) + 1
            if isinstance(data, AgentLost):
                self.host.lose(data.agent_id)
            elif isinstance(data, AgentJoined | NodeEvent):
                self.host.tell(data)

    def kill(self) -> None:
        """The launcher begins anew from the log; calls that were under way and what was not recorded is forgotten."""
        assert self.log is not None
        state = fold(self.core, self.log)
        assert self.core.dump(state) == self.core.dump(self.state)
        self.state = state
        self._failures.clear()
        self._launch += 1
        self.round()

    # Rounds.

    def round(self) -> None:
        """The provider is asked, compared with the record, and told; then the next round."""
        launch = self._launch
        seen = self.provider.nodes(self.host.now_us)
        delay_us = round(self.provider.draw.random() * self.latency_us) if self.latency_us else 0

        def act() -> None:
            if launch != self._launch:
                return  # The process that asked is dead.
            self._act(seen)
            self.host.at(self.host.now_us + self.poll_us - delay_us, self._next(launch))

        if delay_us:
            self.host.at(self.host.now_us + delay_us, act)
        else:
            act()

    def _next(self, launch: int) -> Callable[[], None]:
        return lambda: self.round() if launch == self._launch else None

    def _act(self, seen: Any) -> None:
        pool, now_us = self.pool, self.host.now_us
        if pool is None:
            return
        if seen is not None:
            orders = wanted_orders(self.state, self.pool_name, pool.generation, seen, now_us)
            for group in orders.start:
                self._failures += self.provider.start([(node.node_id, node.node_type) for node in group], now_us)
                self._expect()
            for real in orders.stop:
                machine = self.provider.stop(real.provider_id, now_us)
                if machine is not None and machine.joined:
                    self._gone(machine)
        if seen or self._failures or pool.nodes or pool.demands or pool.provisioning.nodes_min:
            failures, self._failures = tuple(self._failures), []
            self.command(LookAtNodes, self.pool_name, pool.generation, seen, failures)
        self.command(TickNodes)

    # Agents.

    _expected = 0

    def _expect(self) -> None:
        """Machines come up later, and are lost later."""
        for machine in self.provider.machines[self._expected :]:
            self.host.at(machine.ready_us, lambda machine=machine: self._up(machine))  # type: ignore[misc]
            if machine.lost_us is not None:
                self.host.at(machine.lost_us, lambda machine=machine: self._taken(machine))  # type: ignore[misc]
        self._expected = len(self.provider.machines)

    def _up(self, machine: SimulatedMachine) -> None:
        if machine.ended_us is not None or machine.broken or machine.node_id in self.state.agents:
            return
        self.command(RecordHeartbeat, self._beat(machine), True)
        machine.joined = machine.node_id in self.state.agents

    def _gone(self, machine: SimulatedMachine) -> None:
        self.command(RecordHeartbeat, self._beat(machine, gone=True), True)
        if machine.node_id in self.state.agents:  # The launcher takes no word of it any more, so its lease ends.
            self._expire(machine)

    def _taken(self, machine: SimulatedMachine) -> None:
        if machine.ended_us is None:
            self.provider.end(machine, self.host.now_us)
            if machine.joined:
                self._expire(machine)

    def _expire(self, machine: SimulatedMachine) -> None:
        def expire() -> None:
            self.command(ExpireLease, machine.node_id, "no heartbeat for 30 s")

        self.host.at(self.host.now_us + LEASE_US, expire)

    def _beat(self, machine: SimulatedMachine, *, gone: bool = False) -> Heartbeat:
        node_type = machine.node_type
        device = node_type.device or "cpu"
        node = node_of(self.state, machine.node_id)
        slots = tuple(Slot(slot_id=at, kind="cpu" if device == "cpu" else "cuda", device=device) for at in range(node_type.slots))
        return Heartbeat(
            agent_id=machine.node_id, spool_id=machine.provider_id, pool=self.pool_name, host=machine.provider_id, version="1",
            slots=slots, labels=node_type.labels, allocations=(), gone=gone,
            runtimes=("process", IMAGES) if node_type.images else ("process",),
            image=node.own_image if node is not None else "",
        )  # fmt: skip
