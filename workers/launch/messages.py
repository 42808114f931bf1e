"""Messages between ranks, supervisors and the coordinator: one line of JSON each."""

from __future__ import annotations

import json
import socket
from typing import Any

MESSAGE_BYTES_MAX = 4 << 20
"""Most bytes of one line. Ranks exchange names, positions and addresses here."""
Message = dict[str, Any]


def encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line. Raises ValueError."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


class LineReader:
    """Blocking reader of lines."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._data = connection, bytearray()

    def read(self) -> Message | None:
        """The next message. None: the other side has closed. Raises OSError, ValueError."""
        while (end := self._data.find(b"\n")) < 0:
            if len(self._data) > MESSAGE_BYTES_MAX:
                raise ValueError("a message is too long")
            piece = self._connection.recv(65_536)
            if not piece:
                return None
            self._data += piece
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return decode(line)
