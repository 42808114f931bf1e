"""Warm workers: processes forked from one that has already imported their framework (harness/zygote.py), which is guessed
from the user's code.

A worker starts warm if it has the same framework, and if its environment differs from the zygote's only in variables that are
read after the imports: its identity, its trace and its GPU. Every other set of variables (OMP_NUM_THREADS, PYTHONPATH, those of a
configuration's `environment`) has a zygote of its own; the least recently used one leaves if there are too many. After any
failure here the worker starts cold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tenuto.kernel.account import Account
from tenuto.kernel.private_files import private
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.forks import (
    FIXED,
    FORK_SECONDS_MAX,
    PER_RUN,
    STAND_BY_SECONDS,
    ForkedLeader,
    Forks,
    FrameworkGuesses,
)
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, Identity, popen, start_time
from tenuto.workers.agent.runtimes.runtime import Handle
from tenuto.workers.harness.fork_orders import MARK_BYTES, ForkOrder
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE, usual
from tenuto.workers.launch.layout import GANG_VARIABLE

logger = logging.getLogger(__name__)

Key = tuple[tuple[str, str], ...]


class WarmSpawned(ForkedLeader):
    """One on the node, with its identity."""

    def __init__(self, control: socket.socket, identity: Identity) -> None:
        super().__init__(control)
        self.identity = identity
        self.runs_before = 0
        """Runs that this leader had before the present one."""

    @property
    def handle(self) -> Handle:
        """Identity of the present run: a leader may have several (kept.py)."""
        return Handle(f"{self.identity.handle}:{self.runs_before}") if self.runs_before else self.identity.handle


class Zygote(Forks):
    """One process that forks workers, for one environment. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], log: Path, account: Account | None = None) -> None:
        channel, theirs = socket.socketpair()
        with theirs, open(log, "ab", opener=private) as output:
            self._process = (account.start if account else popen)(
                [sys.executable, "-P", "-m", "tenuto.workers.harness.zygote", str(theirs.fileno())],
                FIXED | dict(environment) | {RUN_VARIABLE: "-" * MARK_BYTES},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )
        super().__init__(channel)

    async def fork(self, job: ForkOrder) -> WarmSpawned:
        """Gives the job to a waiting pair of processes, or to a new one. Raises OSError or TimeoutError."""
        control, pid = await self.hand_over(job)
        started = start_time(pid)
        if started is None:
            control.close()
            raise OSError("the forked process ended at once")
        return WarmSpawned(control, Identity(pid, started))

    async def close(self) -> None:
        """Ends the process, which leaves when its socket is closed; its forks go on."""
        self.let_go()
        if not self.was_ready:
            self._process.kill()  # while it imports, it does not read its socket and has no forks
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, FORK_SECONDS_MAX)
            return
        self._process.kill()
        await asyncio.to_thread(self._process.wait)


class WarmPool:
    def __init__(self, directory: Path, environments_max: int, account: Account | None = None) -> None:
        """`environments_max`: 0 switches warm workers off. `directory`: for the log of failed imports. `account`: account of
        the workers, if it is not the agent's own."""
        self._directory, self._environments_max, self._account = directory, environments_max, account
        self._zygotes: dict[Key, Zygote] = {}
        """Zygotes by environment, the most recently used one last."""
        self._failed: set[Key] = set()
        """Environments whose import failed; they are not tried again. A process that died later is."""
        self._frameworks = FrameworkGuesses()
        self.forks = 0
        """Number of workers that were started warm."""

    @property
    def on(self) -> bool:
        return self._environments_max > 0 and sys.platform == "linux"

    def warm(self, environment: Mapping[str, str], framework: str | None = None) -> Zygote | None:
        """Starts a zygote for workers of that environment, unless there is one or its import failed before. `framework`: None:
        the usual one."""
        kept = {name: value for name, value in environment.items() if name not in PER_RUN}
        key = tuple(sorted((kept | {FRAMEWORK_VARIABLE: framework or usual()}).items()))
        if not self.on or key in self._failed:
            return None
        zygote = self._zygotes.pop(key, None)
        if zygote is None:
            try:
                zygote = Zygote(dict(key), self._directory / "warm.log", self._account)
            except OSError as error:
                logger.warning("a worker starts cold: %s", error)
                return None
        self._zygotes[key] = zygote
        return zygote

    async def spawn(
        self, files: RunFiles, environment: Mapping[str, str], cwd: Path, entrypoint: str = "", *, keeps: bool = False
    ) -> WarmSpawned | None:
        """A warm worker; None: start it cold. `cwd`: the model directory, in which `entrypoint` is found. `keeps`: the worker may
        stay for another run."""
        zygote = self.warm(environment, self._frameworks.of(entrypoint, cwd, environment)) if self.on else None
        if zygote is None:
            return None
        while len(self._zygotes) > self._environments_max:
            await self._zygotes.pop(next(iter(self._zygotes))).close()
        job = order(files, environment, cwd, keeps=keeps)
        try:
            if not await zygote.ready():
                raise OSError("it did not import the framework")
            spawned = await zygote.fork(job)
            self.forks += 1
            asyncio.get_running_loop().call_later(STAND_BY_SECONDS, zygote.stand_by)
            return spawned
        except (OSError, TimeoutError, ValueError) as error:
            key = next((key for key, one in self._zygotes.items() if one is zygote), None)
            if key is not None:
                del self._zygotes[key]
                if not zygote.was_ready:
                    self._failed.add(key)
                reason = str(error) or type(error).__name__
                logger.warning("a worker starts cold, as warming failed (%s); see %s", reason, self._directory / "warm.log")
                await zygote.close()
            return None

    async def close(self) -> None:
        zygotes = [*self._zygotes.values()]
        self._zygotes.clear()
        await asyncio.gather(*(zygote.close() for zygote in zygotes))


def order(files: RunFiles, environment: Mapping[str, str], cwd: Path, *, keeps: bool) -> ForkOrder:
    """Order for a run. `keeps`: its worker may stay for another one."""
    return ForkOrder(
        environment={"PYTHONHASHSEED": "0", **environment},
        cwd=str(cwd),
        mark=environment[RUN_VARIABLE],
        exit_file=str(files.exit),
        stdout=str(files.stdout),
        stderr=str(files.stderr),
        gang=GANG_VARIABLE in environment,
        keeps=keeps,
    )
