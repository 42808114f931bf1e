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

from tenuto.kernel.bus_permissions import KEEPER, SERVICES, accounts
from tenuto.kernel.private_files import private, write_private
from tenuto.schemas.names import AGENT_NAME_PATTERN

PASSWORD_BYTES = 32
AGENT_NAME_MAX = 128
_AGENT_NAME = re.compile(AGENT_NAME_PATTERN.strip("^$"))


class BadUserName(ValueError):
    pass


class BadAgentName(BadUserName):
    pass


class BusUsers:
    """Directory of users and passwords. Safe for several processes at once. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._services, self._agents = directory / "services", directory / "agents.json"
        self._readers, self._revoked = directory / "readers.json", directory / "revoked.json"

    @property
    def configuration(self) -> Path:
        return self._directory / "users.conf"

    def services(self) -> dict[str, str]:
        """Passwords of the services by name; made at the first call. Each is also in a file of its own, for
        TENUTO_NATS_PASSWORD_FILE."""
        with self._changing():
            self._services.mkdir(mode=0o700, exist_ok=True)
            for name in (*SERVICES, KEEPER):
                if not self._service(name).exists():
                    write_private(self._service(name), _password() + "\n")
            self._write()
        return self._known_services()

    def _service(self, name: str) -> Path:
        return self._services / f"{name}.password"

    def _known_services(self) -> dict[str, str]:
        return {name: self._service(name).read_text().strip() for name in SERVICES if self._service(name).exists()}

    def keeper(self) -> str:
        """Password of the keeper; empty: it was not made yet."""
        file = self._service(KEEPER)
        return file.read_text().strip() if file.exists() else ""

    def agents(self) -> list[str]:
        return sorted(_read(self._agents))

    def add_agents(self, names: Sequence[str], *, renew: bool = False) -> dict[str, str]:
        """Passwords of these agents by name, made for agents that have none. `renew`: made anew, and earlier ones are no
        longer valid. Raises BadAgentName, also for an agent that was revoked."""
        for name in names:
            if len(name) > AGENT_NAME_MAX or not _AGENT_NAME.fullmatch(name):
                raise BadAgentName(
                    f"An agent cannot be named {name!r}: letters, digits and the characters . _ : - make a name, at most "
                    f"{AGENT_NAME_MAX}, and the first is a letter or digit."
                )
        with self._changing():
            known, revoked = _read(self._agents), _read(self._revoked)
            if gone := [name for name in names if name in revoked]:
                raise BadAgentName(
                    f"Agent {gone[0]} was revoked: it comes back only by a join token (`tenuto agent token`); choose another "
                    "name."
                )
            passwords = {name: _password() if renew or name not in known else known[name] for name in names}
            write_private(self._agents, json.dumps(known | passwords, indent=1) + "\n")
            self._write()
        return passwords

    def admit_agent(self, name: str, password: str) -> None:
        """An agent that joined by a token, with the password that it made; also one that was revoked before."""
        with self._changing():
            revoked = _read(self._revoked)
            if revoked.pop(name, None) is not None:
                write_private(self._revoked, json.dumps(revoked, indent=1) + "\n")
            write_private(self._agents, json.dumps(_read(self._agents) | {name: password}, indent=1) + "\n")
            self._write()

    def remove_agent(self, name: str, *, revoked: bool = False) -> bool:
        """Removes an agent; False if there is none of that name. `revoked`: its name gets credentials only by `admit_agent`."""
        with self._changing():
            known, barred = _read(self._agents), _read(self._revoked)
            if revoked and name not in barred:
                write_private(self._revoked, json.dumps(barred | {name: ""}, indent=1) + "\n")
            if known.pop(name, None) is None:
                return False
            write_private(self._agents, json.dumps(known, indent=1) + "\n")
            self._write()
        return True

    def revoked(self) -> list[str]:
        return sorted(_read(self._revoked))

    def password(self, name: str) -> str | None:
        """An agent's; None: it has none."""
        return _read(self._agents).get(name)

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
        agents, readers = _read(self._agents), _read(self._readers)
        text = json.dumps(accounts(self._known_services(), agents, readers, self.keeper()), indent=1)
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
