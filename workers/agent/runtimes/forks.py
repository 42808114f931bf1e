"""The agent's side of a process that forks workers (harness/zygote.py): one on the node, or one in a container.

Such a process keeps two pairs of forks ready for the next runs: a fork of half a gigabyte costs tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from tenuto.workers.harness.fork_orders import KEPT, MARK_VARIABLE, ForkOrder
from tenuto.workers.harness.frameworks import framework_of, variables_of
from tenuto.workers.launch.layout import GANG_VARIABLE
from tenuto.workers.launch.token import TOKEN_VARIABLE

READY_SECONDS_MAX = 60.0
"""Longest import of the framework: seconds, on a cold network disk much longer. A cold start would have to wait for the same
imports."""
FORK_SECONDS_MAX = 5.0
"""Longest fork of a pair from a process of half a gigabyte: tens of milliseconds, on a busy machine many times that."""
SPARE_PAIRS = 2
"""Pairs kept ready. A pair needs some 150 ms to rehearse, and a short trial may be over sooner: the next one then finds the
other pair. Each costs about 30 MB."""
STAND_BY_SECONDS = 0.1
"""Delay between a start and the next fork ahead, so that the starting worker has the processors first."""
PER_RUN = frozenset(
    {
        "TENUTO_AGENT_ADDRESS", "TENUTO_ALLOCATION_ID", TOKEN_VARIABLE, "TENUTO_RANK", "TENUTO_ERROR_FILE", MARK_VARIABLE,
        "TRACEPARENT", "CUDA_VISIBLE_DEVICES", GANG_VARIABLE, "TMPDIR",
    }
)  # fmt: skip
"""Variables that are read when a worker begins, or when the GPU is first used; never while the framework is imported."""
FIXED = {"PYTHONHASHSEED": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Variables of every zygote. The second one: if an import asks whether there is a GPU, the driver's own library must not be
loaded, because it would see all GPUs of the node from then on, and forks could not use it. Runs have variables of their own."""
FRAMEWORKS_KNOWN_MAX = 256
"""Most model directories whose framework is remembered; finding it takes a millisecond."""


class FrameworkGuesses:
    """Frameworks of the model directories that were examined last."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, tuple[str, ...]], str] = {}

    def of(self, entrypoint: str, context: Path, environment: Mapping[str, str]) -> str:
        key = context, entrypoint, variables_of(environment)
        if key not in self._known:
            while len(self._known) >= FRAMEWORKS_KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[key] = framework_of(entrypoint, context, environment)
        return self._known[key]


class ForkedLeader:
    """The session leader of a warm run, which waits for the agent's go."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.left_nothing = False
        """Set at its end: True if no process that it started is left."""
        self.kept = False
        """Set at its end: True if the worker waits for another run (`again`)."""

    def go(self) -> None:
        with contextlib.suppress(OSError):  # the leader was killed meanwhile, which `wait_ended` sees
            self._control.sendall(b"go\n")
        self._control.setblocking(False)

    async def wait_ended(self) -> bool:
        """Waits for the end of the worker. True: its exit code is in the file. The leader reports this before it leaves
        itself, because returning half a gigabyte of mappings takes it some milliseconds, for which the slots need not wait.
        False: the leader died without a report."""
        try:
            word = await asyncio.get_running_loop().sock_recv(self._control, 1)
            self.kept = word == KEPT
            self.left_nothing = self.kept or word == b"a"
            return bool(word)
        except OSError:
            return False
        finally:
            if not self.kept:
                self._control.close()

    async def again(self, job: ForkOrder) -> None:
        """Gives a kept worker its next run, which then waits for its go. Raises OSError or TimeoutError."""
        self.kept = self.left_nothing = False
        await give_order(self._control, job)

    def abandon(self) -> None:
        """Makes the leader leave without having run anything."""
        self._control.close()


class Forks:
    """Connection to one such process."""

    def __init__(self, channel: socket.socket, ready_seconds_max: float | None = None) -> None:
        self._channel = channel
        self._ready_seconds_max = ready_seconds_max or READY_SECONDS_MAX
        self._channel.setblocking(False)
        self._spares: deque[socket.socket] = deque()
        """Sockets of pairs that were forked ahead and wait for a job, the oldest first."""
        self._closed = False
        self._ready: asyncio.Task[bool] = asyncio.create_task(self._wait_ready(), name="warming")

    async def _wait_ready(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._ready_seconds_max):
                ready = await asyncio.get_running_loop().sock_recv(self._channel, 1) == b"r"
                asyncio.get_running_loop().call_soon(self.stand_by)
                return ready
        return False

    @property
    def was_ready(self) -> bool:
        return self._ready.done() and not self._ready.cancelled() and self._ready.result()

    async def ready(self) -> bool:
        """Returns when the process has imported the framework (True), or will not (False), also if it is closed meanwhile."""
        await asyncio.wait({self._ready})
        return self.was_ready

    async def hand_over(self, job: ForkOrder) -> tuple[socket.socket, int]:
        """Gives the job to a waiting pair of processes, or to a new one: the leader's socket and process id, as it sees it.
        Raises OSError or TimeoutError."""
        while self._spares:
            with contextlib.suppress(OSError, TimeoutError):  # the pair was killed meanwhile: use the next one
                return await self._give(self._spares.popleft(), job)
        return await self._give(self._ask(), job)

    def stand_by(self) -> None:
        """Forks pairs ahead of the next jobs. Each leaves when its socket is closed."""
        while len(self._spares) < SPARE_PAIRS and self.was_ready and not self._closed:
            try:
                self._spares.append(self._ask())
            except OSError:  # the zygote ended, which the next job finds
                return

    def _ask(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._channel, [b"f"], [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours

    async def _give(self, ours: socket.socket, job: ForkOrder) -> tuple[socket.socket, int]:
        return ours, await give_order(ours, job)

    def let_go(self) -> None:
        """Ends the connection, at which the process leaves; its forks that have a job go on."""
        self._closed = True
        self._ready.cancel()
        self._channel.close()
        for spare in self._spares:
            spare.close()
        self._spares.clear()


async def give_order(control: socket.socket, job: ForkOrder) -> int:
    """Gives a job to a leader that waits for one; its process id, as it sees it. Raises OSError or TimeoutError, and then closes
    the socket, at which the leader leaves."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(FORK_SECONDS_MAX):
            await loop.sock_sendall(control, json.dumps(job).encode() + b"\n")
            pid = int(await loop.sock_recv(control, 32) or b"0")
        if not pid:
            raise OSError("the forked process ended at once")
        control.setblocking(True)
        return pid
    except BaseException:
        control.close()
        raise
