"""Start of the supervisor's processes: forked from the preloaded parent, or, if that cannot be used, as interpreters of their
own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import IO, Any, Protocol

from tenuto.embedded.cluster import ProcessSpec, common_environment, is_forkable
from tenuto.embedded.files import Layout
from tenuto.embedded.preloaded_parent import ForkedMember, PreloadedParent
from tenuto.kernel.clock import Clock
from tenuto.kernel.tasks import stop_task

READY_SECONDS_MAX = 60.0
"""Longest wait for the parent's imports. They take two seconds of a processor; only a machine without any to spare takes as long,
or one whose disk hangs, and then interpreters of their own would not be faster."""
STOPPED_LOOK_SECONDS = 1.0
FORK_SECONDS_MAX = 10.0
"""Longest wait for a fork, which takes milliseconds."""
RESTART_SECONDS_FIRST = 0.1
RESTART_SECONDS_MAX = 10.0
ENDS_MAX = 5
"""Ends in a row, each before the parent was ready, after which it is not tried again: its imports cost seconds each time."""
SPACE_BYTES = 8_192
"""Room for the variables that a process has beside the common ones, without the paths among them."""
SPACE_PATHS = 16
"""More than the paths among them."""

Report = Callable[[str], None]


class Child(Protocol):
    """Process that the supervisor has started, with the members that it needs."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ProcessStarter:
    def __init__(self, layout: Layout, clock: Clock, report: Report, *, preload: bool) -> None:
        self._layout, self._clock, self._report, self._preload = layout, clock, report, preload
        self._parent: PreloadedParent | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._unusable = "" if preload else "it is switched off"
        """Reason why no parent will be tried; else empty."""
        self._told = not preload
        """True if the user was told that processes start without it."""

    def begin(self) -> None:
        """Starts the parent, which imports while the servers start."""
        if self._preload and not _told_of_ends():
            self._unusable = "this system does not tell of the end of a process that is no child"
        elif self._preload:
            self._keeping = asyncio.create_task(self._keep())

    async def start(self, spec: ProcessSpec) -> Child:
        """Starts the process. Raises OSError."""
        with self._layout.log(spec.name).open("ab") as log:
            if not is_forkable(spec):
                return await self._execute(spec, log)
            forked = await self._fork(spec, log)
            return forked if forked is not None else await self._execute(spec, log)

    async def stop(self) -> None:
        """Ends the parent. What it has forked goes on."""
        parent = self._parent
        await stop_task(self._keeping)
        if parent is not None:
            await parent.close()

    @property
    def parent_pid(self) -> int | None:
        """Process id of the parent, if one is ready."""
        parent = self._parent
        return parent.process.pid if parent is not None and parent.ready.is_set() and not parent.ended.done() else None

    async def _execute(self, spec: ProcessSpec, log: IO[bytes]) -> Child:
        return await asyncio.create_subprocess_exec(
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=spec.environment,
            cwd=self._layout.root,
            start_new_session=True,
        )

    async def _fork(self, spec: ProcessSpec, log: IO[bytes]) -> Child | None:
        """None: the parent cannot be used now."""
        parent, why = await self._usable()
        if parent is not None:
            forking = asyncio.create_task(parent.fork(spec.command, spec.environment, log))
            try:
                if not (why := await self._why_late(parent, forking)):
                    return await forking
            except OSError as error:
                why = parent.refused or str(error)
            finally:
                await stop_task(forking)
        if not self._told:
            self._told = True
            self._report(f"warning: {spec.name} starts as an interpreter of its own, without the preloaded parent: {why}")
        return None

    async def _why_late(self, parent: PreloadedParent, forking: asyncio.Task[ForkedMember]) -> str:
        """Waits for the fork. Empty if it came, or failed; else the reason why it does not, and the parent was killed then."""
        deadline = self._clock.monotonic() + FORK_SECONDS_MAX
        while not forking.done():
            await asyncio.wait([forking], timeout=STOPPED_LOOK_SECONDS)
            why = "it was stopped" if parent.is_stopped() else ""
            if not why and self._clock.monotonic() > deadline:
                why = f"it did not answer in {FORK_SECONDS_MAX:.0f} s"
            if why and not forking.done():
                parent.kill()  # another one takes its place
                return why
        return ""

    async def _usable(self) -> tuple[PreloadedParent | None, str]:
        """The parent once it is ready, else the reason why it cannot be used."""
        deadline = self._clock.monotonic() + READY_SECONDS_MAX
        while not self._unusable:
            parent = self._parent
            if parent is not None and parent.is_stopped():
                parent.kill()  # a new one is ready sooner than this one might be continued
                return None, "it was stopped"
            if parent is not None and parent.ready.is_set() and not parent.ended.done():
                return (None, parent.refused) if parent.refused else (parent, "")
            if self._clock.monotonic() > deadline:
                return None, f"it was not ready after {READY_SECONDS_MAX:.0f} s"
            await self._next_change()
        return None, self._unusable

    async def _next_change(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOPPED_LOOK_SECONDS):
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep(self) -> None:
        """Starts the parent, and another one when it has ended."""
        ends = 0
        while not self._unusable:
            why, was_ready = await self._live()
            ends = 1 if was_ready else ends + 1
            if ends >= ENDS_MAX:
                self._unusable = why
            if not self._unusable:
                wait_seconds = min(RESTART_SECONDS_MAX, RESTART_SECONDS_FIRST * 2 ** (ends - 1))
                self._report(f"preload ended ({why}); it starts again in {wait_seconds:.1f} s")
                await asyncio.sleep(wait_seconds)
        self._notify()

    async def _live(self) -> tuple[str, bool]:
        """Runs one parent to its end; returns the reason of that, and True if it had been ready."""
        environment = common_environment(self._layout)
        space_bytes = SPACE_BYTES + SPACE_PATHS * len(str(self._layout.root))
        try:
            with self._layout.log("supervisor").open("ab") as log:
                parent = self._parent = PreloadedParent(environment, space_bytes, self._layout.root, log)
        except OSError as error:
            return str(error), False
        ready = asyncio.ensure_future(parent.ready.wait())
        awaited: set[asyncio.Future[Any]] = {ready, parent.ended}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if parent.refused:
            self._unusable = parent.refused  # an import that starts threads does so each time
            parent.kill()
        elif parent.ready.is_set():
            self._told = False  # another failure is told again
        self._notify()
        code = await asyncio.shield(parent.ended)
        return (f"signal {-code}" if code < 0 else f"exit code {code}"), parent.ready.is_set()


def _told_of_ends() -> bool:
    """False on other systems than Linux, with an old kernel, and in a container that may not ask."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True
