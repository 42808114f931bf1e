"""Sign-in at a provider of identities, in a browser, for a command line: on this machine or on another one."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import select
import socket
import sys
import time
import urllib.parse
import webbrowser
from typing import Any

from tenuto.cli.errors import CliError
from tenuto.cli.say import say

WAIT_SECONDS_MAX = 600.0
"""So long the gateway remembers the way there."""
REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS_MAX = 2.0
_ANSWER = b"Go back to the command line: you may close this page.\n"


def code_and_verifier(url: str, open_browser: bool) -> tuple[str, str]:
    """The code that the user's browser was shown, by a link to this machine or typed. Raises CliError."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        query = urllib.parse.urlencode({"challenge": challenge, "port": listener.getsockname()[1]})
        address = f"{url}/api/v1/sso?{query}"
        word = f"{challenge[:4]}-{challenge[4:8]}"
        say(f"Sign in with a browser at\n  {address}\nand go on only if its last page shows the word {word}.")
        if open_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"):
            webbrowser.open(address)
        say("Follow its link, or type its code here:", flush=True)
        return _code(listener), verifier


def _code(listener: socket.socket) -> str:
    until = time.monotonic() + WAIT_SECONDS_MAX
    inputs: list[Any] = [listener, sys.stdin]
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select(inputs, [], [], left)
        if listener in ready and (code := _told(listener)):
            return code
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if line.strip():
                return line.strip()
            if not line:  # end of input: the code cannot be typed
                inputs.remove(sys.stdin)
    raise CliError("Nobody signed in within ten minutes: begin again with `tenuto login --sso`.")


def _told(listener: socket.socket) -> str:
    """The code of one request; empty if it has none."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(REQUEST_SECONDS_MAX)
        try:
            words = connection.recv(REQUEST_BYTES_MAX).split(b"\r\n", 1)[0].decode("ascii").split()
            query = (
                urllib.parse.parse_qs(urllib.parse.urlsplit(words[1]).query) if words[:1] == ["GET"] and len(words) > 1 else {}
            )
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nReferrer-Policy: no-referrer\r\n"
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(_ANSWER) + _ANSWER)
        except (OSError, ValueError):
            return ""
    return query.get("code", [""])[0]
