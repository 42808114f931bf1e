"""Where TensorFlow's MultiWorkerMirroredStrategy finds the other ranks: TF_CONFIG, from the gang's own addresses.

This imports no TensorFlow: the user's script does, or the trial.
"""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.workers.harness.gang import Gang

STRATEGY = "multi_worker_mirrored"
_reserved: list[socket.socket] = []
"""Keeps the port from other programs until TensorFlow listens there: its servers share a port with what is bound the same way."""


def prepare(gang: Gang) -> None:
    """Sets TF_CONFIG, on every rank. Once per process."""
    if _reserved:
        return
    here = _own_address(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind((here, 0))
    _reserved.append(reserved)
    workers = gang.gather(f"{here}:{reserved.getsockname()[1]}", "tensorflow")
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": gang.rank}})


def _own_address(other: str, port: int) -> str:
    """Of this node, on its way to rank 0's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, port))  # sends nothing
        return str(probe.getsockname()[0])
