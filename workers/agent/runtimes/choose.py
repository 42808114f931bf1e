"""Selection of the agent's runtimes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tenuto.kernel import plugins
from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.runtimes.combined_runtime import SeveralRuntimes
from tenuto.workers.agent.runtimes.opening import GROUP, Opening
from tenuto.workers.agent.runtimes.runtime import Runtime, RuntimeUnavailable
from tenuto.workers.agent.slots import find_slots


def make_runtime(
    settings: Settings,
    node: AgentNode,
    shared: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    slots: tuple[Slot, ...] | None = None,
) -> Runtime:
    """The runtime for these settings. `shared`: directory that all agents see; None: there is none. `environment`: of the
    agent, of which workers inherit a part; None: this process's. `command`: run instead of our own harness; then workers never
    start warm. Raises RuntimeUnavailable and NoSlots."""
    slots = find_slots(settings.cpu_slots, gpus_required=bool(settings.gpus_required)) if slots is None else slots
    base = os.environ if environment is None else environment
    asked = Opening(settings, node, shared, slots, base, command)
    made = [runtime for name in _names(settings) if (runtime := _made(name, asked)) is not None]
    if not made:
        raise RuntimeUnavailable(f"TENUTO_RUNTIMES is {settings.runtimes!r}, and none of these can run here: add process.")
    return made[0] if len(made) == 1 else SeveralRuntimes(*made)


def _names(settings: Settings) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in settings.runtimes.split(",") if name.strip()))


def _made(name: str, asked: Opening) -> Runtime | None:
    try:
        made: Runtime | None = plugins.load(GROUP, name)(asked)
    except plugins.PluginError as error:
        raise RuntimeUnavailable(f"TENUTO_RUNTIMES names {name}, which cannot be used: {error}") from error
    return made
