"""The node of an agent: its name, its directory, and its address for other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK = ("127.0.0.1", "lo")
"""(address, interface) of a gang on one agent: no other node has to reach it."""


@dataclass(frozen=True)
class AgentNode:
    agent_id: str
    directory: Path
    """The agent's own directory, on this node's disk."""
    address: str = LOOPBACK[0]
    """Address at which other nodes reach this node's ranks."""
    interface: str = LOOPBACK[1]
    """Name of the interface with that address."""
    network: str = ""
    """Docker network that the address is on; empty: the node's own."""
    has_shared: bool = True
    """True: the node sees the directory that machines share, with the store `shared` in it."""
