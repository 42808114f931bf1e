"""TF_CONFIG for TensorFlow's MultiWorkerMirroredStrategy: the addresses of the other ranks, from the gang's own.

This module does not import TensorFlow: the user's script does, or the trial.
"""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenuto.workers.launch.gang import Gang

SHARED_PORT_VARIABLE = "TF_GRPC_REUSE_PORT"
"""Variable by which TensorFlow listens on a port that another socket of this user holds. TensorFlow must be told its port,
seconds before it listens there, and cannot take over an open socket. In between, another program could take a port that no
socket holds; if that is the first rank of another gang, TensorFlow brings ranks of both together, and some wait for ever."""
_HELD: list[socket.socket] = []
"""The socket that holds this rank's port until the process ends."""


def prepare(gang: Gang) -> None:
    """Sets TF_CONFIG, on every rank; a script that sets it itself is left alone. Raises OSError if no port is free."""
    if "TF_CONFIG" in os.environ:
        return
    here = _own_address(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    holder = hold_port()
    _HELD.append(holder)
    workers = gang.gather(f"{here}:{holder.getsockname()[1]}", "tensorflow")
    os.environ[SHARED_PORT_VARIABLE] = "true"
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": gang.rank}})


def hold_port() -> socket.socket:
    """A socket bound to a port on all addresses, as TensorFlow will be. Nothing listens there, so no connection arrives before
    TensorFlow listens. Raises OSError."""
    dual = socket.has_dualstack_ipv6()
    holder = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    if dual:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("::" if dual else "0.0.0.0", 0))
    # Only now: the kernel, when it chooses, must not count a port that another such socket holds as free.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return holder


def _own_address(other: str, port: int) -> str:
    """Address of this node on its route to rank 0's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, port))  # sends nothing
        return str(probe.getsockname()[0])
