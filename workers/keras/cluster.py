"""TF_CONFIG for TensorFlow's MultiWorkerMirroredStrategy: the addresses of the other ranks, from the gang's own.

This module does not import TensorFlow: the user's script does, or the trial.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang

PORTS = range(20_000, 32_000)
"""Ports for TensorFlow, below those that Linux uses for outgoing connections (from 32768 on): a free one stays free until
TensorFlow listens there, unless another program asks for that very port. TensorFlow must be told the port, and cannot take
over an open one."""
TRIES_MAX = 100


def prepare(gang: Gang) -> None:
    """Sets TF_CONFIG, on every rank; a script that sets it itself is left alone. Raises OSError if no port is free."""
    if "TF_CONFIG" in os.environ:
        return
    here = _own_address(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    workers = gang.gather(f"{here}:{_free_port(here)}", "tensorflow")
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": gang.rank}})


def _free_port(address: str) -> int:
    chance = random.SystemRandom()  # not the trial's: two ranks of one node would look at the same ports
    for _ in range(TRIES_MAX):
        port = chance.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise OSError(f"no free port found in {PORTS.start} to {PORTS.stop} on {address}")


def _own_address(other: str, port: int) -> str:
    """Address of this node on its route to rank 0's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, port))  # sends nothing
        return str(probe.getsockname()[0])
