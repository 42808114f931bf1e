"""Ports of the tests themselves."""

from __future__ import annotations

import socket

import pytest

from tests.support import ports


def test_two_processes_do_not_draw_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on the first one yet when the second is drawn."""
    draws = iter([17_001, 17_001, 17_002])
    monkeypatch.setattr(ports, "choose_port", lambda _: next(draws))
    kept: list[socket.socket] = []
    monkeypatch.setattr(ports, "_KEPT", kept)
    assert [ports.own_port(), ports.own_port()] == [17_001, 17_002]
    for claim in kept:
        claim.close()


def test_a_refusing_port_refuses() -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports.refusing_port()))
