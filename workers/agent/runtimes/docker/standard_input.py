"""The standard input of a container, by which its first process is told what it runs."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

GO_SECONDS_MAX = 30.0
"""Longest wait for a container's first process to take its line; on a busy node its Python starts within a second or two."""


def send(opened: Any, line: bytes) -> None:
    """Raises OSError."""
    own = getattr(opened, "_sock", opened)
    own.settimeout(GO_SECONDS_MAX)
    own.sendall(line)


def hang_up(opened: Any) -> None:
    own = getattr(opened, "_sock", opened)
    with contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_WR)
    if (response := getattr(opened, "_response", None)) is not None:  # it holds the descriptor, too
        response.close()
    opened.close()
    own.close()
