"""Nodes as processes of the launcher's own machine, each with a directory that is all that is known of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting, number, path, read

KNOWN = {"directory": path, "processes_max": number(1, 100), "python": path, "shared_directory": path}
EXAMPLE = {"directory": "directory=/srv/tenuto-nodes"}
PROCESSES_MAX = 4
ENDED_SECONDS_MAX = 3_600.0
"""Time for which a node that has ended is listed, and its log kept."""
DEAF_SECONDS_MAX = 60.0
"""Time that an agent has to end after SIGTERM."""
SAVE_SECONDS_MAX = DEAF_SECONDS_MAX - 10
"""Part of it for what runs there."""
READS_MAX, READ_SECONDS_BETWEEN = 100, 0.001
"""Reads of a process's environment, which is empty for a moment while the process becomes another program."""
LOG_BYTES_MAX = 1 << 20
"""Most of a log that is read, from its end."""
# Whoever writes its file first is seen by the other: a node that was stopped before it began never begins.
BEGIN = '''echo $$ > "$0/pid.new" && mv "$0/pid.new" "$0/pid" && [ ! -e "$0/stopped" ] && exec "$@"'''


class LocalProvisioner:
    """For one pool of one cluster."""

    waits_long = False

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        self._place, self._provisioning = Path(cluster, pool), provisioning
        self._begun: list[subprocess.Popen[bytes]] = []

    async def check(self) -> Sequence[Finding]:
        try:
            given = self._settings()
            room = f"room: {len(self._live())} of {given['processes_max']} processes run"
        except ProvisionerError as error:
            return [Finding("settings", str(error))]
        python, place = given["python"], given["directory"]
        runs, writes = os.access(python, os.X_OK), os.access(place, os.W_OK | os.X_OK)
        return [
            Finding(f"python {python}", "" if runs else f"The launcher cannot run {python}: name another."),
            Finding(f"directory {place}", "" if writes else f"The launcher cannot write into {place}: give it the right to."),
            Finding(room),
        ]

    async def start(self, orders: Sequence[Order]) -> None:
        given, live = self._settings(), self._live()
        missing = [order for order in orders if not (self._base() / self._place / order.node_id).exists()]
        if not os.access(given["python"], os.X_OK):
            raise ProvisionerError(f"The launcher cannot run {given['python']}.", "refused")
        if len(live) + len(missing) > given["processes_max"]:
            raise ProvisionerError(f"{len(live)} of at most {given['processes_max']} processes run here.", "capacity")
        try:
            for order in missing:
                self._begin(order, given)
        except OSError as error:
            for order in missing:
                await self.stop(RealNode(order.node_id, str(self._place / order.node_id), "running"))
            raise ProvisionerError(f"A process could not be started: {error.strerror}.", "refused") from error

    async def nodes(self) -> Sequence[RealNode]:
        return await asyncio.to_thread(self._look)

    async def stop(self, node: RealNode) -> None:
        here = self._base() / node.provider_id
        with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
            if not (here / "stopped").exists():
                (here / "stopped").touch()
            if (process := _process(here)) is not None:
                process.kill() if _age(here / "stopped") > DEAF_SECONDS_MAX else process.terminate()

    async def logs(self, node: RealNode, lines_max: int) -> str:
        return "".join(_last_lines(self._base() / node.provider_id, lines_max))

    async def close(self) -> None:
        """Nodes outlive the launcher."""

    def _settings(self) -> dict[str, Any]:
        try:
            given = read("local", KNOWN, self._provisioning.settings, EXAMPLE)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from None
        return {"processes_max": PROCESSES_MAX, "python": sys.executable, **given}

    def _base(self) -> Path:
        """One that an admin has made: it is missing where a disk is not mounted, and then nothing is known of the nodes on it."""
        base = Path(self._settings()["directory"])
        if not base.is_dir():
            raise ProvisionerError(f"There is no directory {base} where the launcher runs.", "unreachable")
        return base

    def _begin(self, order: Order, given: dict[str, Any]) -> None:
        here = self._base() / self._place / order.node_id
        here.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            here.mkdir(mode=0o700)
        except FileExistsError:  # another launcher was quicker
            return
        # What the launcher is told, such as the address of its database, is not an agent's business.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
        environment |= {**order.environment, "TENUTO_AGENT_DIRECTORY": str(here / "agent")}
        environment["TENUTO_LEAVE_SIGNAL_SECONDS"] = f"{SAVE_SECONDS_MAX:g}"
        if shared := given.get("shared_directory"):
            environment["TENUTO_SHARED_DIRECTORY"] = shared
        command = [given["python"], "-m", "tenuto.cli.main", "agent", "run", "--name", order.node_id]
        with (here / "log").open("wb") as log:
            session = {"start_new_session": True, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            started = subprocess.Popen(["sh", "-c", BEGIN, str(here), *command], env=environment, cwd=here, **session)
        self._begun.append(started)

    def _look(self) -> list[RealNode]:
        self._begun = [process for process in self._begun if process.poll() is None]
        base = self._base()
        found = [_node(base, here) for here in sorted((base / self._place).glob("*"))]
        for node in found:
            if node.phase == "ended" and _age(base / node.provider_id / "log") > ENDED_SECONDS_MAX:
                shutil.rmtree(base / node.provider_id, ignore_errors=True)
        return found

    def _live(self) -> list[RealNode]:
        return [node for node in self._look() if node.phase != "ended"]


def _node(base: Path, here: Path) -> RealNode:
    """A directory of another name is somebody's copy: its process runs under the same id."""
    lives = _process(here) is not None or not ((here / "pid").exists() or (here / "stopped").exists())
    detail = "" if lives else "".join(_last_lines(here, 1)).strip()
    return RealNode(here.name.partition("~")[0], str(here.relative_to(base)), "running" if lives else "ended", detail)


def _process(here: Path) -> psutil.Process | None:
    """None: it has not begun, or has ended; another process may have its number by now."""
    with contextlib.suppress(FileNotFoundError, psutil.Error):
        process = psutil.Process(int((here / "pid").read_text()))
        if _environment(process).get("TENUTO_AGENT_ID") == here.name.partition("~")[0]:
            return process
    return None


def _environment(process: psutil.Process) -> dict[str, str]:
    for _ in range(READS_MAX):
        if found := process.environ():
            return found
        time.sleep(READ_SECONDS_BETWEEN)
    return {}


def _age(file: Path) -> float:
    """Seconds since it was written last; 0 if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return time.time() - file.stat().st_mtime
    return 0.0


def _last_lines(here: Path, lines_max: int) -> list[str]:
    with contextlib.suppress(FileNotFoundError), (here / "log").open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
        return log.read().decode(errors="replace").splitlines(keepends=True)[-lines_max:]
    return []
