"""Ports for tests: on which nobody answers, or which only this process of the suite uses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tenuto.embedded.process import PORT_TRIES_MAX, PORTS, choose_port

_KEPT: list[socket.socket] = []
"""What stands for ports that this process has drawn, until it ends."""


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections: it is taken, and nobody listens. A port that was merely free a moment ago may
    be somebody else's by now, where tests run side by side."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def refusing_port() -> int:
    """As `closed_port`, until this process ends."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    _KEPT.append(taken)
    return int(taken.getsockname()[1])


def own_port(ports: range = PORTS) -> int:
    """A free port that no other process of a suite on this machine draws before this one ends: what is to listen there may need
    seconds until it does. The claim is a name in the kernel, one per network namespace, as ports are."""
    for _ in range(PORT_TRIES_MAX):
        port = choose_port(ports)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0tenuto-test-port-{port}")
        except OSError:
            claim.close()
            continue
        _KEPT.append(claim)
        return port
    raise AssertionError(f"each of {PORT_TRIES_MAX} draws between {ports.start} and {ports.stop - 1} was claimed by other tests")
