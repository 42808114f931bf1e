"""Warm workers: processes forked from one that has already imported their framework (harness/zygote.py): PyTorch, or Keras if the
user's code imports it.

One such process, a zygote, keeps two pairs of forks ready for the next runs: a fork of half a gigabyte costs tens of
milliseconds.

A worker starts warm if it has the same framework, and if its environment differs from the zygote's only in variables that are
read after the imports: its identity, its trace and its GPU. Every other set of variables (OMP_NUM_THREADS, PYTHONPATH, those of a
configuration's `environment`) has a zygote of its own; the least recently used one leaves if there are too many. After any
failure here the worker starts cold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from tenuto.kernel.account import Account
from tenuto.kernel.private_files import private
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, Identity, start_time
from tenuto.workers.harness.frameworks import FRAMEWORK_VARIABLE, Framework, framework_of
from tenuto.workers.harness.zygote import MARK_BYTES, Job
from tenuto.workers.launch.layout import GANG_VARIABLE
from tenuto.workers.launch.token import TOKEN_VARIABLE

logger = logging.getLogger(__name__)

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
        "TENUTO_AGENT_ADDRESS", "TENUTO_ALLOCATION_ID", TOKEN_VARIABLE, "TENUTO_RANK", "TENUTO_ERROR_FILE", RUN_VARIABLE,
        "TRACEPARENT", "CUDA_VISIBLE_DEVICES", GANG_VARIABLE, "TMPDIR",
    }
)  # fmt: skip
"""Variables that are read when a worker begins, or when the GPU is first used; never while the framework is imported."""

_FIXED = {"PYTHONHASHSEED": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Variables of every zygote. The second one: if an import asks whether there is a GPU, the driver's own library must not be
loaded, because it would see all GPUs of the node from then on. Runs have variables of their own."""

FRAMEWORKS_KNOWN_MAX = 256
"""Most model directories whose framework is remembered; finding it takes a millisecond."""

Key = tuple[tuple[str, str], ...]


class WarmSpawned:
    """The session leader of a warm run, which waits for the agent's go."""

    def __init__(self, control: socket.socket, identity: Identity) -> None:
        self._control = control
        self.identity = identity
        self.left_nothing = False
        """Set at its end: True if no process that it started is left."""

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
            self.left_nothing = word == b"a"
            return bool(word)
        except OSError:
            return False
        finally:
            self._control.close()

    def abandon(self) -> None:
        """Makes the leader leave without having run anything."""
        self._control.close()


class Zygote:
    """One process that forks workers, for one environment. Raises OSError if it cannot be started."""

    def __init__(self, environment: Mapping[str, str], log: Path, account: Account | None = None) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        with theirs, open(log, "ab", opener=private) as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tenuto.workers.harness.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_FIXED | dict(environment) | {RUN_VARIABLE: "-" * MARK_BYTES},
                cwd="/",
                start_new_session=True,
                **(account.process_options if account else {}),
            )
        self._spares: deque[socket.socket] = deque()
        """Sockets of pairs that were forked ahead and wait for a job, the oldest first."""
        self._closed = False
        self._ready: asyncio.Task[bool] = asyncio.create_task(self._wait_ready(), name="warming")

    async def _wait_ready(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(READY_SECONDS_MAX):
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

    async def fork(self, job: Job) -> WarmSpawned:
        """Gives the job to a waiting pair of processes, or to a new one. Raises OSError or TimeoutError."""
        while self._spares:
            with contextlib.suppress(OSError, TimeoutError):  # the pair was killed meanwhile: use the next one
                return await self._hand_over(self._spares.popleft(), job)
        return await self._hand_over(self._ask(), job)

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

    async def _hand_over(self, ours: socket.socket, job: Job) -> WarmSpawned:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(FORK_SECONDS_MAX):
                await loop.sock_sendall(ours, json.dumps(job).encode() + b"\n")
                pid = int(await loop.sock_recv(ours, 32) or b"0")
            started = start_time(pid) if pid else None
            if started is None:
                raise OSError("the forked process ended at once")
            ours.setblocking(True)
            return WarmSpawned(ours, Identity(pid, started))
        except BaseException:
            ours.close()
            raise

    async def close(self) -> None:
        """Ends the process, which leaves when its socket is closed; its forks go on."""
        self._closed = True
        self._ready.cancel()
        self._channel.close()
        for spare in self._spares:
            spare.close()
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
        self._frameworks: dict[tuple[Path, str, str], Framework] = {}
        """Frameworks of the model directories that were examined last."""
        self.forks = 0
        """Number of workers that were started warm."""

    @property
    def on(self) -> bool:
        return self._environments_max > 0 and sys.platform == "linux"

    def warm(self, environment: Mapping[str, str], framework: Framework = "torch") -> Zygote | None:
        """Starts a zygote for workers of that environment, unless there is one or its import failed before."""
        kept = {name: value for name, value in environment.items() if name not in PER_RUN}
        key = tuple(sorted((kept | {FRAMEWORK_VARIABLE: framework}).items()))
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

    def _framework(self, entrypoint: str, context: Path, environment: Mapping[str, str]) -> Framework:
        key = context, entrypoint, environment.get("KERAS_BACKEND", "")
        if key not in self._frameworks:
            while len(self._frameworks) >= FRAMEWORKS_KNOWN_MAX:
                del self._frameworks[next(iter(self._frameworks))]
            self._frameworks[key] = framework_of(entrypoint, context, environment)
        return self._frameworks[key]

    async def spawn(self, files: RunFiles, environment: Mapping[str, str], cwd: Path, entrypoint: str = "") -> WarmSpawned | None:
        """A warm worker; None: start it cold. `cwd`: the model directory, in which `entrypoint` is found."""
        zygote = self.warm(environment, self._framework(entrypoint, cwd, environment)) if self.on else None
        if zygote is None:
            return None
        while len(self._zygotes) > self._environments_max:
            await self._zygotes.pop(next(iter(self._zygotes))).close()
        job = Job(
            environment={"PYTHONHASHSEED": "0", **environment},
            cwd=str(cwd),
            mark=environment[RUN_VARIABLE],
            exit_file=str(files.exit),
            stdout=str(files.stdout),
            stderr=str(files.stderr),
            gang=GANG_VARIABLE in environment,
        )
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
