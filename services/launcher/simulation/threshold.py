"""Two simple ways to have nodes, to compare with: a threshold, as many scripts have it, and the least that anyone could pay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.simulation.fleet import SimulationHost
from tenuto.services.launcher.simulation.provider import SimulatedMachine, SimulatedProvider


class Threshold:
    """One more node of the first type at each look while anything waits; a node without work for idle_us ends."""

    def __init__(
        self, host: SimulationHost, pool: str, provider: SimulatedProvider, poll_us: int, node_type: NodeType, nodes_max: int,
        idle_us: int, waiting: Callable[[], bool], busy: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """`waiting`: true if anything waits. `busy`: true if anything runs on the agent."""
        self._host, self._pool, self._provider, self._poll_us = host, pool, provider, poll_us
        self._node_type, self._nodes_max, self._idle_us = node_type, nodes_max, idle_us
        self._waiting, self._busy = waiting, busy
        self._used_us: dict[str, int] = {}
        self._numbers = 0

    def round(self) -> None:
        now_us = self._host.now_us
        live = self._provider.live(now_us)
        for machine in live:
            if not machine.joined or self._busy(machine.node_id):
                self._used_us[machine.node_id] = now_us
            elif now_us - self._used_us[machine.node_id] >= self._idle_us:
                self._provider.end(machine, now_us)
                self._host.lose(machine.node_id)
        if self._waiting() and len(live) < self._nodes_max:
            self._numbers += 1
            self._provider.start([(f"{self._pool}-{self._numbers}", self._node_type)], now_us)
            machine = self._provider.machines[-1]
            self._used_us[machine.node_id] = now_us
            self._host.at(machine.ready_us, lambda: self._up(machine))
        self._host.at(now_us + self._poll_us, self.round)

    def _up(self, machine: SimulatedMachine) -> None:
        machine.joined = True
        slots = tuple(Slot(slot_id=at, kind="cpu", device="cpu") for at in range(self._node_type.slots))
        self._used_us[machine.node_id] = self._host.now_us
        self._host.tell(
            AgentJoined(
                agent_id=machine.node_id, pool=self._pool, host=machine.node_id, slots=slots, version="1",
                labels=self._node_type.labels,
            )
        )  # fmt: skip


def least_paid_us(changes: Iterable[tuple[int, int]], boot_us: int) -> int:
    """The least node time that anyone could pay who knows the future, for so many nodes in use at each time: the time of use, a
    boot where one more is needed than there are, and between two uses the shorter of keeping it and booting anew. `changes`:
    (time, change of the number in use), in order.

    The node that is needed again first is the one that was freed last, so each level of the number in use is a node of its own
    (Lu, Chen and Andrew, "Simple and effective dynamic provisioning for power-proportional data centers", 2012)."""
    paid_us, count, last_us = 0, 0, 0
    freed: dict[int, int] = {}
    for time_us, change in changes:
        paid_us += count * (time_us - last_us)
        last_us = time_us
        for _ in range(abs(change)):
            if change > 0:
                count += 1
                paid_us += min(boot_us, time_us - freed[count]) if count in freed else boot_us
            else:
                freed[count] = time_us
                count -= 1
    return paid_us
