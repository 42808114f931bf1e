"""Worker processes: started so that they outlive the agent, found again by identity, waited for, killed with all they started.

A worker runs under a small shell in a session of its own. The shell first waits for a line from the agent: if the agent dies
before it has noted the process on disk, the pipe closes and the shell leaves without having run anything. Afterwards it writes
the worker's exit code to a file, so that the code is known even if no agent was there when the worker ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tenuto.kernel.account import Account
from tenuto.workers.agent.foreign import is_shortage
from tenuto.workers.agent.runtimes.process.files import RunFiles
from tenuto.workers.agent.runtimes.runtime import Handle
from tenuto.workers.launch.token import hand_down_token

RUN_VARIABLE = "TENUTO_RUN"
"""In the environment of a worker and of all that it starts: `<agent directory>:<allocation id>`. Finds what left the session."""
POLL_SECONDS = 0.2
"""How often a process is looked at where the kernel cannot tell us of its end (no pidfd)."""
KILL_ROUNDS_MAX = 50
"""Rounds of killing what a worker left behind: each catches what was forked during the one before."""
KILL_ROUND_SECONDS, KILL_FIRST_ROUND_SECONDS = 0.1, 0.01
"""Between rounds; the first ones are shorter, because what is left is usually about to leave."""
CLEANER_ROUNDS_MAX = 40
"""Rounds in which helpers that clean up after dead processes are left to do so, nearly four seconds: torch's keeper of shared
memory waits two for further users before it removes what it kept."""
_CLEANERS = (b"torch_shm_manager", b"multiprocessing.resource_tracker")
"""In the command line of such helpers. They end by themselves when the others are gone, and remove the shared memory that those
held; killed with them, it would stay until the node is started again."""
_FIELD_PARENT, _FIELD_SESSION, _FIELD_START = 1, 3, 19
"""Fields of /proc/<pid>/stat, counted from the process state."""

_HAS_PROC = Path("/proc/self/environ").exists()
_MARK_NAME = b"\0" + RUN_VARIABLE.encode() + b"="

_SHELL = """
read -r go || exit 0
trap : TERM INT HUP
exit_file=$1; out=$2; err=$3; shift 3
"$@" </dev/null >>"$out" 2>>"$err"
code=$?
echo $code >"$exit_file.partial" && mv "$exit_file.partial" "$exit_file"
"""


@dataclass(frozen=True)
class Identity:
    """A process that is not mistaken for a later one with the same pid."""

    pid: int
    started: int
    """In the kernel's count: a pid alone may be another process by now."""

    @property
    def handle(self) -> Handle:
        return Handle(f"{self.pid}:{self.started}")

    @classmethod
    def of(cls, handle: Handle) -> Identity:
        pid, _, started = handle.partition(":")
        return cls(int(pid), int(started))


class Spawned:
    """A shell that waits for its go."""

    def __init__(self, process: subprocess.Popen[bytes], identity: Identity) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin
        self.identity = identity
        # It is waited for by pid, like the processes of an earlier agent; the object must not wait too, or complain.
        process.returncode = 0

    def go(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile: the watcher sees that
            self._stdin.write(b"go\n")
            self._stdin.close()

    def abandon(self) -> None:
        """The shell leaves without having run anything."""
        self._stdin.close()


def spawn(
    command: Sequence[str], files: RunFiles, environment: Mapping[str, str], cwd: Path, account: Account | None = None
) -> Spawned:
    """In the run's directory, which is there. Raises OSError."""
    with hand_down_token(environment) as (variables, descriptors):
        process = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "tenuto-worker", str(files.exit), str(files.stdout), str(files.stderr), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
            cwd=cwd,
            start_new_session=True,
            pass_fds=descriptors,
            **(account.process_options if account else {}),
        )
    started = start_time(process.pid)
    assert started is not None, "a child that nobody has waited for has an entry in the process table"
    return Spawned(process, Identity(process.pid, started))


def start_time(pid: int) -> int | None:
    """The process's start in the kernel's count; None where there is no such process (a zombie counts as none, unless it is
    our own unwaited child). Raises OSError where the agent has no descriptor left to look with."""
    fields = _stat(pid)
    if fields is not None:
        dead = fields[0] in ("Z", "X") and int(fields[_FIELD_PARENT]) != os.getpid()
        return None if dead else int(fields[_FIELD_START])
    if Path("/proc/self/stat").exists():
        return None
    try:
        return int(psutil.Process(pid).create_time() * 1000)
    except psutil.Error:
        return None


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        if is_shortage(error):
            raise
        return None
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold anything


def is_alive(identity: Identity) -> bool:
    _reap(identity.pid)
    try:
        return start_time(identity.pid) == identity.started
    except OSError:  # whether that is its pid's first owner is seen later; a worker that runs must not be taken for gone
        return _exists(identity.pid)


def _exists(pid: int) -> bool:
    """Needs no descriptor, as everything under /proc does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reap(pid: int) -> None:
    """Our own children stay in the process table until they are waited for; others are not ours to wait for."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def wait_gone(identity: Identity) -> None:
    """Returns when the process has ended, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except (AttributeError, OSError):
        descriptor = -1
    if descriptor < 0:
        while is_alive(identity):  # noqa: ASYNC110 - there is nothing that would set an event
            await asyncio.sleep(POLL_SECONDS)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if is_alive(identity):  # the descriptor was opened by pid: make sure that it is the one we mean
            loop.add_reader(descriptor, ended.set)
            await ended.wait()
        _reap(identity.pid)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def run_mark(agent_directory: Path, allocation_id: str) -> str:
    return f"{agent_directory}:{allocation_id}"


def marked(agent_directory: Path) -> dict[int, str]:
    """Processes of this agent's runs, by their environment: pid -> allocation id. Takes some microseconds each. Raises OSError
    where the agent has no descriptor left to look with."""
    prefix = f"{agent_directory}:"
    found: dict[int, str] = {}
    for pid in psutil.pids():
        mark = _mark_of(pid)
        if mark.startswith(prefix):
            found[pid] = mark.removeprefix(prefix)
    return found


def _mark_of(pid: int) -> str:
    """Empty where a process has none, or is gone, or is not ours to look at."""
    if not _HAS_PROC:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).environ().get(RUN_VARIABLE, "")
        return ""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            block = b"\0" + file.read()
    except OSError as error:
        if is_shortage(error):
            raise
        return ""
    _, name, rest = block.partition(_MARK_NAME)
    return os.fsdecode(rest.partition(b"\0")[0]) if name else ""


def kill(identity: Identity) -> None:
    """SIGKILL for the shell and its whole process group but the cleaners, if it is still that shell. Does not wait. Raises
    OSError where the agent has no descriptor left to look with."""
    if start_time(identity.pid) != identity.started:
        return
    if not _HAS_PROC:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(identity.pid, signal.SIGKILL)
        return
    kill_process(identity.pid)  # first: it must not see the worker end, and write down how
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid != identity.pid and os.getpgid(pid) == identity.pid and not is_cleaner(pid):
                os.kill(pid, signal.SIGKILL)


def is_cleaner(pid: int) -> bool:
    """A helper that removes what dead processes held, and then leaves by itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            line = file.read()
    except OSError:
        return False
    return any(name in line for name in _CLEANERS)


def kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


async def kill_rest(agent_directory: Path, allocation_id: str) -> bool:
    """Kill whatever else of this run is left (helpers that outlived the worker hold its GPU). False: something did not die."""
    for round_number in range(KILL_ROUNDS_MAX):
        left = [pid for pid, of in (await asyncio.to_thread(marked, agent_directory)).items() if of == allocation_id]
        if not left:
            return True
        for pid in left:
            if round_number >= CLEANER_ROUNDS_MAX or not is_cleaner(pid):
                kill_process(pid)
        await asyncio.sleep(min(KILL_ROUND_SECONDS, KILL_FIRST_ROUND_SECONDS * 2**round_number))
    return False
