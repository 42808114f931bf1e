"""Addresses for a gang over several agents, whose ranks find each other through the launcher's record."""

from __future__ import annotations

import logging
import socket

import psutil

from tenuto.schemas.assignments import Assignment
from tenuto.workers.agent.node import LOOPBACK
from tenuto.workers.agent.runtimes.runtime import Runtime

logger = logging.getLogger(__name__)

ROUTE_PORT = 9
"""Port for asking the kernel for a route; nothing is sent to it."""


class NoInterface(RuntimeError):
    """The requested network interface does not exist."""


def find_interface(wanted: str, bus_host: str) -> tuple[str, str]:
    """(address, interface) by which other nodes reach this one: the interface that `wanted` names, by its name or one of its
    addresses; else the one on the route to the bus, which all nodes can reach. Raises NoInterface."""
    addresses = {
        item.address: name
        for name, items in psutil.net_if_addrs().items()
        for item in items
        if item.family == socket.AF_INET and item.address
    }
    if wanted:
        for address, name in addresses.items():
            if wanted in (address, name):
                return address, name
        names = ", ".join(sorted({f"{name} ({address})" for address, name in addresses.items()}))
        raise NoInterface(f"TENUTO_NETWORK_INTERFACE is {wanted!r}, but this node has {names}.")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((bus_host, ROUTE_PORT))
            address = probe.getsockname()[0]
    except OSError as error:
        logger.warning("there is no route to %s, so gangs over several agents cannot reach this one (%s)", bus_host, error)
        return LOOPBACK
    return address, addresses.get(address, "")


async def place_rendezvous(assignment: Assignment, agent_id: str, runtime: Runtime) -> None:
    """Writes rank 0's address where the supervisor of this agent's ranks reads it."""
    if not assignment.rendezvous or assignment.slots[0].agent_id == agent_id:
        return
    try:
        await runtime.place_rendezvous(assignment.allocation_id, assignment.rendezvous)
    except OSError as error:  # the directory is the worker's own, so it can only harm itself
        logger.warning("the ranks of %s cannot be told where rank 0 listens: %s", assignment.allocation_id, error)
