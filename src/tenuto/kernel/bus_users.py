"""Users of the bus and their passwords, in a directory that only NATS and the operator can read.

`users.conf` is included by NATS's configuration and rewritten with each change; NATS reads it at SIGHUP, and then closes the
connections of users that were removed or have another password.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from tenuto.kernel.bus_permissions import SERVICES, accounts
from tenuto.kernel.private_files import private, write_private

PASSWORD_BYTES = 32
AGENT_NAME_MAX = 128
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class BadUserName(ValueError):
    pass


class BadAgentName(BadUserName):
    pass


class BusUsers:
    """Directory of users and passwords. Safe for several processes at once. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._services, self._agents = directory / "services", directory / "agents.json"
        self._readers = directory / "readers.json"

    @property
    def configuration(self) -> Path:
        return self._directory / "users.conf"

    def services(self) -> dict[str, str]:
        """Passwords of the services by name; made at the first call. Each is also in a file of its own, for
        TENUTO_NATS_PASSWORD_FILE."""
        with self._changing():
            self._services.mkdir(mode=0o700, exist_ok=True)
            for name in SERVICES:
                if not self._service(name).exists():
                    write_private(self._service(name), _password() + "\n")
            self._write()
        return self._known_services()

    def _service(self, name: str) -> Path:
        return self._services / f"{name}.password"

    def _known_services(self) -> dict[str, str]:
        return {name: self._service(name).read_text().strip() for name in SERVICES if self._service(name).exists()}

    def agents(self) -> list[str]:
        return sorted(_read(self._agents))

    def add_agents(self, names: Sequence[str], *, renew: bool = False) -> dict[str, str]:
        """Passwords of these agents by name, made for agents that have none. `renew`: made anew, and earlier ones are no
        longer valid. Raises BadAgentName."""
        for name in names:
            if len(name) > AGENT_NAME_MAX or not _AGENT_NAME.fullmatch(name):
                raise BadAgentName(
                    f"An agent cannot be named {name!r}: letters, digits and the characters . _ : - make a name, at most "
                    f"{AGENT_NAME_MAX}, and the first is a letter or digit."
                )
        with self._changing():
            known = _read(self._agents)
            passwords = {name: _password() if renew or name not in known else known[name] for name in names}
            write_private(self._agents, json.dumps(known | passwords, indent=1) + "\n")
            self._write()
        return passwords

    def remove_agent(self, name: str) -> bool:
        """Removes an agent; False if there is none of that name."""
        with self._changing():
            known = _read(self._agents)
            if known.pop(name, None) is None:
                return False
            write_private(self._agents, json.dumps(known, indent=1) + "\n")
            self._write()
        return True

    def readers(self) -> list[str]:
        return sorted(_read(self._readers))

    def add_reader(self, name: str, *, renew: bool = False) -> str:
        """Password of a reader of the log, made where it has none. `renew`: made anew. Raises BadUserName."""
        if len(name) > AGENT_NAME_MAX or not _AGENT_NAME.fullmatch(name):
            raise BadUserName(
                f"A reader cannot be named {name!r}: letters, digits and the characters . _ : - make a name, at most "
                f"{AGENT_NAME_MAX}, and the first is a letter or digit."
            )
        with self._changing():
            known = _read(self._readers)
            password = _password() if renew or name not in known else known[name]
            write_private(self._readers, json.dumps(known | {name: password}, indent=1) + "\n")
            self._write()
        return password

    def remove_reader(self, name: str) -> bool:
        """Removes a reader; False if there is none of that name."""
        with self._changing():
            known = _read(self._readers)
            if known.pop(name, None) is None:
                return False
            write_private(self._readers, json.dumps(known, indent=1) + "\n")
            self._write()
        return True

    def _write(self) -> None:
        text = json.dumps(accounts(self._known_services(), _read(self._agents), _read(self._readers)), indent=1)
        write_private(self.configuration, f"# Made by tenuto; see docs/security.md.\naccounts: {text}\n")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._directory / "users.lock", "a", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _read(file: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return found


def _password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)
