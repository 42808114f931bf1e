"""The environment of a worker process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.account import Account, home_variables
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.processes import RUN_VARIABLE, RunFiles, run_mark
from tenuto.workers.agent.reconcile import rank_on, slots_on
from tenuto.workers.agent.runs import Run
from tenuto.workers.agent.scratch import kept_variables, variables
from tenuto.workers.agent.slots import device_variables
from tenuto.workers.launch.layout import GANG_VARIABLE, GangPart, gang_agents
from tenuto.workers.launch.privacy import PRIVATE_VARIABLE
from tenuto.workers.launch.token import TOKEN_VARIABLE

OWN_PREFIX = "TENUTO_"
"""Of the variables of the agent, of the cluster and of whoever started it, with tokens and passwords among them: none of a
worker's business."""
HANDED_DOWN = frozenset({"TENUTO_CLUSTER_DIRECTORY"})
"""The mark by which a laptop cluster finds all its processes."""

SUPERVISOR_COMMAND = (sys.executable, "-m", "tenuto.workers.launch")
"""What a gang's part on one agent is started by: it starts the ranks."""
LOOPBACK = ("127.0.0.1", "lo")
"""Of a gang that is on one agent: no other node has to reach it."""


@dataclass(frozen=True)
class Node:
    """What all workers of one agent share."""

    agent_id: str
    directory: Path
    socket: Path
    slots: tuple[Slot, ...]
    base: Mapping[str, str]
    """The agent's own environment."""
    address: str = LOOPBACK[0]
    """Where other nodes reach this one's ranks."""
    interface: str = LOOPBACK[1]
    """Name of the interface that has it."""
    command: tuple[str, ...] = ()
    """Of a training process that starts cold."""
    account: Account | None = None
    """That workers run as. None: the agent's own."""

    @property
    def home(self) -> Path:
        """Of workers that have an account of their own."""
        return self.directory / "home"

    def files(self, allocation_id: str) -> RunFiles:
        return RunFiles(self.directory / "runs" / allocation_id, self.account.uid if self.account else None)


def is_gang(assignment: Assignment) -> bool:
    """It trains on several slots, so a supervisor starts one process for each."""
    return sum(len(part.slot_ids) for part in assignment.slots) > 1


def gang_part(node: Node, run: Run) -> GangPart:
    assignment = run.assignment
    alone = len(assignment.slots) == 1
    address, interface = LOOPBACK if alone else (node.address, node.interface)
    return GangPart(
        allocation_id=run.allocation_id,
        agents=gang_agents(assignment.slots),
        agent_index=next(index for index, part in enumerate(assignment.slots) if part.agent_id == node.agent_id),
        directory=str(node.files(run.allocation_id).directory),
        address=address,
        interface=interface,
        command=node.command,
        progress_seconds_max=assignment.config.distributed.progress_seconds_max,
        link_seconds_max=assignment.config.distributed.link_seconds_max,
    )


def common_environment(node: Node, slots: tuple[Slot, ...]) -> dict[str, str]:
    """Of all workers on such slots."""
    base = {name: value for name, value in node.base.items() if not name.startswith(OWN_PREFIX) or name in HANDED_DOWN}
    if node.account is not None:
        base = {name: value for name, value in base.items() if not name.startswith("XDG_")}
        base |= home_variables(node.account, node.home) | {PRIVATE_VARIABLE: "1"}
    return kept_variables(node.account.name if node.account else None) | base | device_variables(slots)


def worker_environment(node: Node, run: Run, temporary: Path, secrets: Mapping[str, str]) -> dict[str, str]:
    """`temporary`: the allocation's own temporary directory. `secrets`: values by variable."""
    assignment = run.assignment
    held = set(slots_on(assignment, node.agent_id))
    slots = tuple(slot for slot in node.slots if slot.slot_id in held)
    devices = device_variables(slots)
    gang = is_gang(assignment)
    environment = common_environment(node, slots[:1] if gang else slots)  # a rank has the threads of one slot
    chosen = assignment.config.environment.variables | dict(secrets)
    environment |= variables(temporary, chosen) | chosen
    # A user may choose another number of threads, but not other devices: those belong to other allocations.
    environment["CUDA_VISIBLE_DEVICES"] = devices["CUDA_VISIBLE_DEVICES"]
    environment |= {
        "TENUTO_AGENT_ADDRESS": f"unix:{node.socket}",
        "TENUTO_ALLOCATION_ID": run.allocation_id,
        TOKEN_VARIABLE: run.token,
        "TENUTO_RANK": str(rank_on(assignment, node.agent_id)),
        "TENUTO_ERROR_FILE": str(node.files(run.allocation_id).error),
        RUN_VARIABLE: run_mark(node.directory, run.allocation_id),
    }
    if node.account is not None:
        environment[PRIVATE_VARIABLE] = "1"  # also where the configuration sets it
    if gang:
        environment[GANG_VARIABLE] = gang_part(node, run).to_json()
    if assignment.trace:
        environment["TRACEPARENT"] = assignment.trace
    return environment
