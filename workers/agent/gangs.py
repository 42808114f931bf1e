"""A gang over several agents: its ranks find each other through what the launcher records."""

from __future__ import annotations

import logging
import socket

import psutil

from tenuto.schemas.assignments import Assignment
from tenuto.workers.agent.node import LOOPBACK
from tenuto.workers.agent.runtimes.runtime import Runtime

logger = logging.getLogger(__name__)

ROUTE_PORT = 9
"""Nothing is sent there: the kernel is asked for the way only."""


class NoInterface(RuntimeError):
    """The network interface that was asked for is not there."""


def find_interface(wanted: str, bus_host: str) -> tuple[str, str]:
    """(address, name) by which other nodes reach this one: of the interface that `wanted` names, by its name or an address of it;
    else of the one on the way to the bus, which all nodes can reach. Raises NoInterface."""
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
        logger.warning("there is no way to %s: gangs over several agents will not find this one (%s)", bus_host, error)
        return LOOPBACK
    return address, addresses.get(address, "")


async def place_rendezvous(assignment: Assignment, agent_id: str, runtime: Runtime) -> None:
    """Where the supervisor of this agent's ranks looks for it."""
    if not assignment.rendezvous or assignment.slots[0].agent_id == agent_id:
        return
    try:
        await runtime.place_rendezvous(assignment.allocation_id, assignment.rendezvous)
    except OSError as error:  # the directory is the worker's: what it does there harms itself alone
        logger.warning("the ranks of %s cannot be told where rank 0 listens: %s", assignment.allocation_id, error)
