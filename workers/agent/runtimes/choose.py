"""Selection of the agent's runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenuto.kernel.account import NoAccount, find_account
from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.node import Node
from tenuto.workers.agent.runtimes.process.environment import WORKER_COMMAND
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Runtime, RuntimeUnavailable
from tenuto.workers.agent.slots import find_slots


def make_runtime(
    settings: Settings,
    node: Node,
    shared: Path,
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    slots: tuple[Slot, ...] | None = None,
) -> Runtime:
    """The runtime for these settings. `shared`: directory that all agents see. `environment`: inherited by workers instead of
    this process's. `command`: run instead of our own harness; then workers never start warm. Raises RuntimeUnavailable and
    NoSlots."""
    try:
        account = find_account(settings.worker_user) if settings.worker_user else None
    except NoAccount as error:
        raise RuntimeUnavailable(str(error)) from error
    return ProcessRuntime(
        node,
        shared,
        slots=find_slots(settings.cpu_slots) if slots is None else slots,
        base=os.environ if environment is None else environment,
        command=command or WORKER_COMMAND,
        account=account,
        warm_environments_max=0 if command else settings.warm_environments_max,
    )
