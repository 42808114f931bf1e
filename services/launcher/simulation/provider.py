"""A provider of nodes under a virtual clock, from a seed: machines boot, cost and end; calls fail, are late, or done twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.commands import SeenNode, StartFailure

REMEMBERED_US = 600_000_000
"""Time for which a machine that has ended is still listed."""


@dataclass(frozen=True)
class Faults:
    """Faults of the provider. Parts are fractions of 1."""

    fails: float = 0.0
    """Part of the calls that end with an error; half of the starts among them are carried out all the same."""
    doubled: float = 0.0
    """Part of the orders that start two machines."""
    late_us: int = 0
    """Longest time from an order until the machine is listed."""
    shortage: float = 0.0
    """Part of the hours in which there is no capacity of a type."""
    lost_after_us: int = 0
    """Mean time until a machine is taken away; 0: none is."""
    broken: float = 0.0
    """Part of the machines on which no agent ever comes up."""


@dataclass
class SimulatedMachine:
    provider_id: str
    node_id: str
    node_type: NodeType
    paid_from_us: int
    ready_us: int
    """Time at which its agent is up."""
    lost_us: int | None
    broken: bool
    ended_us: int | None = None
    joined: bool = False

    def live(self, now_us: int) -> bool:
        return self.ended_us is None and self.paid_from_us <= now_us


class SimulatedProvider:
    def __init__(self, boot_us: int, faults: Faults | None = None, seed: int = 0) -> None:
        self.boot_us, self.faults, self.draw = boot_us, faults or Faults(), random.Random(seed)
        self.seed = seed
        self.machines: list[SimulatedMachine] = []
        self._alive: list[SimulatedMachine] = []
        """Machines that have not ended, or ended a moment ago."""
        self.failed_us: list[int] = []
        """Times of calls that failed."""
        self.paid_us: dict[str, int] = {}
        """Paid time of machines that have ended, by type."""

    def _fails(self, now_us: int) -> bool:
        if self.faults.fails and self.draw.random() < self.faults.fails:
            self.failed_us.append(now_us)
            return True
        return False

    def _short(self, node_type: str, now_us: int) -> bool:
        """True if the type has no capacity now; the hours of shortage are the same for every caller."""
        if not self.faults.shortage:
            return False
        hour = now_us // 3_600_000_000
        return random.Random(f"{self.seed} {node_type} {hour}").random() < self.faults.shortage

    def start(self, orders: Sequence[tuple[str, NodeType]], now_us: int) -> list[StartFailure]:
        """Starts all or none. Returns the failures that its caller is told."""
        if self._fails(now_us):
            if self.draw.random() < 0.5 and not self._short(orders[0][1].name, now_us):
                self._launch(orders, now_us)
            return [StartFailure(node_id, "unreachable", "no answer") for node_id, _ in orders]
        if self._short(orders[0][1].name, now_us):
            return [StartFailure(node_id, "capacity", "no capacity") for node_id, _ in orders]
        self._launch(orders, now_us)
        return []

    def _launch(self, orders: Sequence[tuple[str, NodeType]], now_us: int) -> None:
        known = {machine.node_id for machine in self._alive if machine.live(now_us)}
        for node_id, node_type in orders:
            if node_id in known:
                continue
            for _ in range(2 if self.faults.doubled and self.draw.random() < self.faults.doubled else 1):
                late_us = round(self.draw.random() * self.faults.late_us)
                after_us = self.faults.lost_after_us
                lost_us = now_us + late_us + round(self.draw.expovariate(1 / after_us)) if after_us else None
                broken = bool(self.faults.broken) and self.draw.random() < self.faults.broken
                machine = SimulatedMachine(
                    f"i-{len(self.machines) + 1}", node_id, node_type, now_us + late_us, now_us + late_us + self.boot_us, lost_us,
                    broken,
                )  # fmt: skip
                self.machines.append(machine)
                self._alive.append(machine)

    def nodes(self, now_us: int) -> tuple[SeenNode, ...] | None:
        """None: the call failed."""
        if self._fails(now_us):
            return None
        self._alive = [item for item in self._alive if item.ended_us is None or now_us - item.ended_us < REMEMBERED_US]
        return tuple(
            SeenNode(item.node_id, item.provider_id, "running" if item.ended_us is None else "ended")
            for item in self._alive
            if item.paid_from_us <= now_us
        )

    def stop(self, provider_id: str, now_us: int) -> SimulatedMachine | None:
        """None: the call failed."""
        if self._fails(now_us):
            return None
        machine = next(item for item in self._alive if item.provider_id == provider_id)
        self.end(machine, now_us)
        return machine

    def end(self, machine: SimulatedMachine, now_us: int) -> None:
        if machine.ended_us is None:
            machine.ended_us = now_us
            name = machine.node_type.name
            self.paid_us[name] = self.paid_us.get(name, 0) + max(0, now_us - machine.paid_from_us)

    def paid_until(self, now_us: int) -> dict[str, int]:
        """Paid time by type, including machines that have not ended."""
        paid = dict(self.paid_us)
        for machine in self.live(now_us):
            paid[machine.node_type.name] = paid.get(machine.node_type.name, 0) + now_us - machine.paid_from_us
        return paid

    def live(self, now_us: int) -> list[SimulatedMachine]:
        return [machine for machine in self._alive if machine.live(now_us)]
