"""The environment of a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.processes import RUN_VARIABLE, RunFiles, run_mark
from tenuto.workers.agent.reconcile import rank_on, slots_on
from tenuto.workers.agent.runs import Run
from tenuto.workers.agent.slots import device_variables

_OWN_SETTINGS = frozenset(f"TENUTO_{item.name.upper()}" for item in fields(Settings))
"""The agent's own settings, with the bus's password among them: none of a worker's business."""


@dataclass(frozen=True)
class Node:
    """What all workers of one agent share."""

    agent_id: str
    directory: Path
    socket: Path
    slots: tuple[Slot, ...]
    base: Mapping[str, str]
    """The agent's own environment."""

    def files(self, allocation_id: str) -> RunFiles:
        return RunFiles(self.directory / "runs" / allocation_id)


def common_environment(node: Node, slots: tuple[Slot, ...]) -> dict[str, str]:
    """Of all workers on such slots."""
    return {name: value for name, value in node.base.items() if name not in _OWN_SETTINGS} | device_variables(slots)


def worker_environment(node: Node, run: Run) -> dict[str, str]:
    assignment = run.assignment
    held = set(slots_on(assignment, node.agent_id))
    slots = tuple(slot for slot in node.slots if slot.slot_id in held)
    devices = device_variables(slots)
    environment = common_environment(node, slots)
    environment |= assignment.config.environment.variables
    # A user may choose another number of threads, but not other devices: those belong to other allocations.
    environment["CUDA_VISIBLE_DEVICES"] = devices["CUDA_VISIBLE_DEVICES"]
    environment |= {
        "TENUTO_AGENT_SOCKET": str(node.socket),
        "TENUTO_ALLOCATION_ID": run.allocation_id,
        "TENUTO_TOKEN": run.token,
        "TENUTO_RANK": str(rank_on(assignment, node.agent_id)),
        "TENUTO_ERROR_FILE": str(node.files(run.allocation_id).error),
        RUN_VARIABLE: run_mark(node.directory, run.allocation_id),
    }
    if assignment.trace:
        environment["TRACEPARENT"] = assignment.trace
    return environment
