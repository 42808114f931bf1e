"""Environment of a worker process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.kernel.account import Account, home_variables
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.local_ranks import is_gang, slots_on
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, run_mark
from tenuto.workers.agent.runtimes.process.scratch import kept_variables, variables
from tenuto.workers.agent.runtimes.runtime import Work
from tenuto.workers.agent.runtimes.variables import worker_variables
from tenuto.workers.agent.slots import device_variables
from tenuto.workers.launch.memory_protection import PRIVATE_VARIABLE
from tenuto.workers.record.environment import IMAGE_VARIABLE

WORKER_COMMAND = (sys.executable, "-m", "tenuto.workers.harness")
SUPERVISOR_COMMAND = (sys.executable, "-m", "tenuto.workers.launch")
"""Command of a gang's part on one agent; it starts the ranks."""


@dataclass(frozen=True)
class WorkerHost:
    """Facts that all worker processes of one agent share."""

    node: AgentNode
    slots: tuple[Slot, ...]
    address: str
    """Address of the agent, as gRPC names it."""
    base: Mapping[str, str]
    """Variables that workers inherit from the agent's own environment (inheriting.py)."""
    command: tuple[str, ...] = WORKER_COMMAND
    """Command of a training process that starts cold."""
    account: Account | None = None
    """Account of the workers. None: the agent's own."""
    image: str = ""
    """Image in which the agent runs with all its workers, as the trials name it; empty: none."""

    @property
    def home(self) -> Path:
        """Home directory of workers with an account of their own."""
        return self.node.directory / "home"

    def files(self, allocation_id: str) -> RunFiles:
        return RunFiles(self.node.directory / "runs" / allocation_id, self.account.uid if self.account else None)


def common_environment(host: WorkerHost, slots: tuple[Slot, ...]) -> dict[str, str]:
    """Environment of all workers on these slots."""
    base = dict(host.base)
    if host.account is not None and host.account.is_other:
        base = {name: value for name, value in base.items() if not name.startswith("XDG_")}
        base |= home_variables(host.account, host.home)
    if host.account is not None and host.account.hides:
        base |= {PRIVATE_VARIABLE: "1"}
    if host.image:
        base |= {IMAGE_VARIABLE: host.image}
    return kept_variables(host.account.name if host.account else None) | base | device_variables(slots)


def worker_environment(host: WorkerHost, work: Work, temporary: Path) -> dict[str, str]:
    """Environment of a run's worker. `temporary`: the allocation's own temporary directory."""
    assignment, node, files = work.assignment, host.node, host.files(work.allocation_id)
    held = set(slots_on(assignment, node.agent_id))
    slots = tuple(slot for slot in host.slots if slot.slot_id in held)
    environment = common_environment(host, slots[:1] if is_gang(assignment) else slots)  # a rank has the threads of one slot
    chosen = assignment.config.environment.variables | dict(work.secrets)
    environment |= variables(temporary, chosen) | chosen
    if (packages := host.base.get("TENUTO_PACKAGES")) and (path := chosen.get("PYTHONPATH")):
        # In a foreign image our own package is found by this variable alone, as in a container.
        environment["PYTHONPATH"] = f"{Path(packages).parent / 'own'}:{path}"
    # A user may choose another number of threads, but not other devices: those belong to other allocations.
    environment["CUDA_VISIBLE_DEVICES"] = device_variables(slots)["CUDA_VISIBLE_DEVICES"]
    environment |= worker_variables(
        work, node, address=host.address, directory=str(files.directory), error_file=str(files.error), command=host.command
    )
    environment[RUN_VARIABLE] = run_mark(node.directory, work.allocation_id)
    if host.account is not None and host.account.hides:
        environment[PRIVATE_VARIABLE] = "1"  # even if the configuration sets it
    return environment
