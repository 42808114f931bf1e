"""Worker processes: started so that they outlive the agent, found again by identity, awaited, and killed with all their children.

A worker runs under a small leader (harness/leader.py) in a session of its own. The leader first waits for a line from the agent:
if the agent dies before it has stored the process, the pipe closes and the leader leaves without having run anything. Afterwards
it writes how the worker ended to a file, so that this is known even if no agent was running then. It adopts all that the worker
leaves behind, and ends that before it leaves itself (harness/orphans.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tenuto.kernel.account import Account
from tenuto.kernel.process_environment import variable_of
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.runtime import Handle
from tenuto.workers.agent.untrusted_files import is_shortage
from tenuto.workers.harness import leader, orphans
from tenuto.workers.harness.orphans import is_cleaner
from tenuto.workers.launch.token import hand_down_token

RUN_VARIABLE = "TENUTO_RUN"
"""Variable in the environment of a worker and of all processes that it starts: `<agent directory>:<allocation id>`. A later
agent finds the processes of its runs by it."""
POLL_SECONDS = 0.2
"""Pause between checks of a process if the kernel cannot signal its end (no pidfd)."""
KILL_ROUNDS_MAX = 50
"""Most rounds of killing the processes that a worker left: each round catches those forked during the previous one."""
QUIET_LOOKS = 2
"""Searches in a row without a new process after which a tree of processes counts as killed."""
KILL_ROUND_SECONDS, KILL_FIRST_ROUND_SECONDS = 0.1, 0.01
"""Pause between rounds; the first ones are shorter, because most processes are about to leave."""
CLEANER_ROUNDS_MAX = 40
"""Rounds in which helpers that clean up after dead processes are spared, nearly four seconds: torch's shared memory manager
waits two for further users before it removes the memory."""
_FIELD_STATE, _FIELD_PARENT, _FIELD_START = 0, 1, 19
"""Fields of /proc/<pid>/stat, counted from the process state."""
_HAS_PROC = Path("/proc/self/environ").exists()

_LEADER = (sys.executable, "-I", "-S", os.path.abspath(leader.__file__))


@dataclass(frozen=True)
class Identity:
    """Identity of a process, which is not mistaken for a later one with the same pid."""

    pid: int
    started: int
    """Start time in the kernel's count: a pid alone may belong to another process by now."""

    @property
    def handle(self) -> Handle:
        return Handle(f"{self.pid}:{self.started}")

    @classmethod
    def of(cls, handle: Handle) -> Identity:
        pid, started, *_ = handle.split(":")  # behind them the number of its run, if the process has had several (kept.py)
        return cls(int(pid), int(started))


class Spawned:
    """A leader that waits for the agent's go."""

    def __init__(self, process: subprocess.Popen[bytes], identity: Identity) -> None:
        assert process.stdin is not None
        self._stdin = process.stdin
        self.identity = identity
        # The process is awaited by pid, like those of an earlier agent, so the Popen object must neither wait nor warn.
        process.returncode = 0

    @property
    def handle(self) -> Handle:
        return self.identity.handle

    def go(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the leader was killed meanwhile, which `wait_gone` sees
            self._stdin.write(b"go\n")
            self._stdin.close()

    def abandon(self) -> None:
        """Makes the leader leave without having run anything."""
        self._stdin.close()


def spawn(
    command: Sequence[str], files: RunFiles, environment: Mapping[str, str], cwd: Path, account: Account | None = None
) -> Spawned:
    """Starts a leader that waits for its go, with files in the run's existing directory. Raises OSError."""
    with hand_down_token(environment) as (variables, descriptors):
        process = (account.start if account else popen)(
            [*_LEADER, str(files.exit), str(files.stdout), str(files.stderr), *command],
            variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            start_new_session=True,
            pass_fds=descriptors,
        )
    started = start_time(process.pid)
    assert started is not None, "a child that nobody has waited for has an entry in the process table"
    return Spawned(process, Identity(process.pid, started))


def popen(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process with the agent's own account and rights. Raises OSError."""
    return subprocess.Popen([*command], env=dict(environment), **options)


def start_time(pid: int) -> int | None:
    """Start time of the process in the kernel's count; None if there is no such process (a zombie counts as none, unless it is
    our own unwaited child). Raises OSError if the agent has no file descriptor left."""
    fields = _stat(pid)
    if fields is not None:
        dead = fields[_FIELD_STATE] in ("Z", "X") and int(fields[_FIELD_PARENT]) != os.getpid()
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
    return text[text.rindex(")") + 2 :].split()  # the process name before it may contain any character


def is_alive(identity: Identity) -> bool:
    _reap(identity.pid)
    try:
        return start_time(identity.pid) == identity.started
    except OSError:  # whether that is its pid's first owner is seen later; a worker that runs must not be taken for gone
        return _exists(identity.pid)


def _exists(pid: int) -> bool:
    """True if the process exists. Needs no file descriptor, unlike reads below /proc."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reap(pid: int) -> None:
    """Collects a child of this process that has ended, which would otherwise stay in the process table. Other processes are
    not affected."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def wait_gone(identity: Identity) -> None:
    """Returns when the process has ended, whichever process is its parent."""
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
        if is_alive(identity):  # the pid may belong to another process by now
            loop.add_reader(descriptor, ended.set)
            await ended.wait()
        _reap(identity.pid)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def run_mark(agent_directory: Path, allocation_id: str) -> str:
    return f"{agent_directory}:{allocation_id}"


def marked(agent_directory: Path) -> dict[int, str]:
    """Processes of this agent's runs, by their environment: pid -> allocation id. Takes some microseconds per process. Raises
    OSError if the agent has no file descriptor left."""
    prefix = f"{agent_directory}:"
    found: dict[int, str] = {}
    for pid in psutil.pids():
        mark = _mark_of(pid)
        if mark.startswith(prefix):
            found[pid] = mark.removeprefix(prefix)
    return found


def _mark_of(pid: int) -> str:
    """Mark of a process; empty if it has none, is gone, or may not be read."""
    try:
        return variable_of(pid, RUN_VARIABLE)
    except OSError as error:
        if is_shortage(error):
            raise
        return ""


def kill(identity: Identity) -> None:
    """SIGKILL for the leader of a run and all that is below it, except cleaners, if the pid still is that leader. Does not wait.
    Raises OSError if the agent has no file descriptor left."""
    if start_time(identity.pid) != identity.started:
        return
    if not _HAS_PROC:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(identity.pid, signal.SIGKILL)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(identity.pid, signal.SIGSTOP)  # it writes no exit code, but still adopts: what is below it stays there
    try:
        _kill_below(identity.pid)
    finally:
        kill_process(identity.pid)
    for pid in psutil.pids():  # where a leader could not adopt
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == identity.pid and not _is_spared(pid):
                os.kill(pid, signal.SIGKILL)


def _kill_below(pid: int) -> None:
    """Kills the processes below this one. A process to which SIGKILL was sent starts no other, so all are found once a search
    finds no new one. Two such searches are needed: a process that ends by itself during one may hide its children from it."""
    signalled: set[int] = set()
    quiet = 0
    for _ in range(KILL_ROUNDS_MAX):
        new = {one for one in orphans.below(pid, frozenset(signalled)) if one not in signalled and not _is_spared(one)}
        quiet = 0 if new else quiet + 1
        if quiet == QUIET_LOOKS:
            return
        for one in sorted(new):  # a shell before its children, of whose end it would say a word
            kill_process(one)
        signalled |= new


def _is_spared(pid: int) -> bool:
    """True for a cleaner with the mark of its run, which a real one has."""
    return is_cleaner(pid) and bool(_mark_of(pid))


def kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def forked(pid: int) -> list[int]:
    """Children of a process. Raises OSError if it is gone."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error as error:
        raise ProcessLookupError(str(error)) from error


async def kill_rest(agent_directory: Path, allocation_id: str, members: Callable[[str], Collection[int]]) -> bool:
    """Kills all remaining processes of this run (helpers that outlived the worker hold its GPU). `members`: those in its cgroup,
    which finds processes without their mark, too. False: one did not die."""

    def look() -> list[int]:
        found = {pid for pid, of in marked(agent_directory).items() if of == allocation_id}
        found |= set(members(allocation_id)) - {0, 1, os.getpid()}
        return sorted(found)  # a shell before its children, of whose end it would say a word

    for round_number in range(KILL_ROUNDS_MAX):
        left = await asyncio.to_thread(look)
        if not left:
            return True
        for pid in left:
            if round_number >= CLEANER_ROUNDS_MAX or not is_cleaner(pid):
                kill_process(pid)
        await asyncio.sleep(min(KILL_ROUND_SECONDS, KILL_FIRST_ROUND_SECONDS * 2**round_number))
    return False
