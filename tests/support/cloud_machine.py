"""A stand-in for a machine of a cloud: it runs a boot script as a process of this machine, and what would change this machine is
written down in place of being done (`Machine.COMMANDS`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tests.support import litter

COMMANDS = ("shutdown", "poweroff", "halt", "useradd", "iptables", "ip6tables", "nft", "systemd-run", "runuser")
"""What a boot script may call that this machine must be kept from."""
_STUB = """#!/bin/sh
printf '%s\\n' "{name} $*" >>{log}
case "{name}" in
    systemd-run) exit 1 ;; # as where there is no systemd
    runuser) shift 3; exec "$@" ;;
    shutdown) if [ "$1 $2" = "-h now" ]; then touch {off}; fi ;;
esac
"""


class Machine:
    """One machine. `directory`: its own; it may be there already."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bin = directory / "bin"
        self._bin.mkdir(parents=True, exist_ok=True)
        self._said, self._off = directory / "commands", directory / "off"
        self._console = directory / "console"
        for name in COMMANDS:
            stub = self._bin / name
            stub.write_text(_STUB.format(name=name, log=self._said, off=self._off))
            stub.chmod(0o755)
        self.process: asyncio.subprocess.Process | None = None

    async def boot(self, script: str, **environment: str) -> asyncio.subprocess.Process:
        """Begins to run the script, as cloud-init does: from a file that only its owner reads."""
        file = self.directory / "user-data"
        file.touch(0o600)
        file.write_text(script)
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ} | litter.handed_down()
        with self._console.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                "/bin/bash", str(file), env={**kept, "PATH": f"{self._bin}:{os.environ['PATH']}", **environment},
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        return self.process

    def kill(self) -> None:
        """All that runs on it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def console(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def commands(self) -> list[str]:
        """Command lines of what was kept from this machine."""
        return self._said.read_text().splitlines() if self._said.exists() else []

    @property
    def is_off(self) -> bool:
        """It has turned itself off."""
        return self._off.exists()
