"""Arguments from which each plug-in of the group `tenuto.runtimes` makes its runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import Slot
from tenuto.workers.agent.node import AgentNode

GROUP = "tenuto.runtimes"
"""Group of entry points. A plug-in is called with an Opening and returns its Runtime; None if the agent's settings do not ask for
it. It raises RuntimeUnavailable."""


@dataclass(frozen=True)
class Opening:
    settings: Settings
    node: AgentNode
    shared: Path | None
    """Directory that all agents see; None: there is none."""
    slots: tuple[Slot, ...]
    base: Mapping[str, str] = field(repr=False)
    """Environment of the agent, of which workers inherit a part."""
    command: Sequence[str] | None = None
    """Run instead of our own harness; then workers never start warm. None: our own."""
