"""Ports that ranks hold for TensorFlow until it listens there."""

from __future__ import annotations

import errno
import json
import os
import socket
from typing import Any

import pytest

from tenuto.workers.keras import cluster


def listening(address: str, port: int, *options: int) -> socket.socket:
    """Raises OSError."""
    found = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        for option in options:
            found.setsockopt(socket.SOL_SOCKET, option, 1)
        found.bind((address, port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_only_who_shares_it_can_listen_on_a_held_port(address: str) -> None:
    with cluster.hold_port() as holder:
        port = holder.getsockname()[1]
        for options in ((), (socket.SO_REUSEADDR,)):
            with pytest.raises(OSError, match="in use") as refused:
                listening(address, port, *options)
            assert refused.value.errno == errno.EADDRINUSE
        with (  # as gRPC does
            listening(address, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT) as server,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            accepted, _ = server.accept()
            with accepted:
                assert accepted.getpeername()[1] == client.getsockname()[1]


def test_the_kernel_gives_a_held_port_to_nobody_else() -> None:
    holders = [cluster.hold_port() for _ in range(500)]
    assert len({holder.getsockname()[1] for holder in holders}) == len(holders)
    for holder in holders:
        holder.close()


def test_two_gangs_that_draw_at_once_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have told their ports before TensorFlow listens on any."""

    class Gang:
        rank = 0

        def gather(self, value: str, purpose: str) -> list[Any]:
            assert purpose == "tensorflow"
            return [value]

    for name in ("TF_CONFIG", cluster.SHARED_PORT_VARIABLE):
        monkeypatch.setenv(name, "")  # which restores it afterwards
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    held: list[socket.socket] = []
    monkeypatch.setattr(cluster, "_HELD", held)
    found = set()
    for _ in range(2):
        del os.environ["TF_CONFIG"]
        cluster.prepare(Gang())  # type: ignore[arg-type]
        [where] = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
        found.add(where)
        with pytest.raises(OSError, match="in use"):
            listening("127.0.0.1", int(where.rpartition(":")[2]))
    assert len(found) == 2
    for holder in held:
        holder.close()
