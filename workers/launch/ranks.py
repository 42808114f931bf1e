"""Starts one process per local rank: forked if this process was forked from one that has imported the framework, else started
anew."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenuto.workers.endings import SIGNAL_EXIT_BASE, Ending
from tenuto.workers.launch.layout import CHANNEL_VARIABLE, GANG_VARIABLE, PROGRESS_FILE, PROGRESS_VARIABLE, GangPart
from tenuto.workers.launch.token import hand_down_token

_PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1
"""Pause between checks of a rank if the kernel cannot signal its end (no pidfd)."""


@dataclass
class Rank:
    """One local rank's process."""

    rank: int
    pid: int
    channel: socket.socket
    """The supervisor's end of the channel."""
    code: int | None = None
    """Exit code as in a shell: 128 + n for death by signal n. None: the rank runs."""
    killed: bool = False
    """True: it died by a signal."""
    told: Ending | None = None
    """Ending that it announced; None if it announced none."""

    async def wait(self) -> int:
        """Returns the exit code when the rank has ended."""
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            while (code := self._poll()) is None:  # noqa: ASYNC110 - there is nothing that would set an event
                await asyncio.sleep(POLL_SECONDS)
            return code
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        code = self._poll()
        assert code is not None
        return code

    def _poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        self.code, self.killed = (code, False) if code >= 0 else (SIGNAL_EXIT_BASE - code, True)
        return self.code

    def kill(self) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def rank_directory(directory: str | Path, rank: int) -> Path:
    """Directory of one rank's files in its run's directory: stdout, stderr, error.txt."""
    return Path(directory) / f"rank-{rank}"


def rank_environment(part: GangPart, rank: int, base: Mapping[str, str], master: tuple[str, int]) -> dict[str, str]:
    """Environment of a rank: the variables of torchrun, and those of our own harness. `master`: address of rank 0's store."""
    environment = {name: value for name, value in base.items() if name != GANG_VARIABLE}
    if part.interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(name, part.interface)  # which a user may choose otherwise
    return environment | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - part.first_rank),
        "WORLD_SIZE": str(part.world_size),
        "LOCAL_WORLD_SIZE": str(part.local_size),
        "GROUP_RANK": str(part.agent_index),
        "GROUP_WORLD_SIZE": str(len(part.agents)),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        # The supervisor runs the store: rank 0 is a client of it like the others, so no port is opened twice.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": part.allocation_id,  # by which Lightning, among others, knows that it need not start ranks
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TENUTO_RANK": str(rank),
        "TENUTO_ERROR_FILE": str(rank_directory(part.directory, rank) / "error.txt"),
        PROGRESS_VARIABLE: str(Path(part.directory) / PROGRESS_FILE),
    }


class ForkedRank(Exception):
    """Raised in a forked rank, to leave the supervisor's frames before the rank's own code begins."""


def start_rank(part: GangPart, rank: int, environment: dict[str, str], *, warm: bool, close: list[socket.socket]) -> Rank:
    """Starts a rank. `close`: the supervisor's sockets, which a forked rank must close. Raises OSError; and ForkedRank in the
    rank itself."""
    ours, theirs = socket.socketpair()
    directory = rank_directory(part.directory, rank)
    directory.mkdir(parents=True, exist_ok=True)
    environment[CHANNEL_VARIABLE] = str(theirs.fileno())
    if not warm:
        with (
            theirs,
            (directory / "stdout").open("ab") as out,
            (directory / "stderr").open("ab") as err,
            hand_down_token(environment) as (variables, descriptors),
        ):
            process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=variables,
                pass_fds=[theirs.fileno(), *descriptors],
            )
        process.returncode = 0  # it is waited for by pid
        return Rank(rank, process.pid, ours)
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.getpid()
    pid = os.fork()
    if pid != 0:
        theirs.close()
        return Rank(rank, pid, ours)
    ours.close()
    theirs.detach()
    for connection in close:
        connection.close()
    _become(directory, environment, supervisor)
    raise ForkedRank


def _become(directory: Path, environment: Mapping[str, str], supervisor: int) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(OSError, AttributeError):  # a rank without its supervisor ends; where not, its agent sees to that
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os.kill(os.getpid(), signal.SIGKILL)
    for target, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
