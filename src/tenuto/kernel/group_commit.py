"""Group commit: appends of many concurrent callers share one transaction, hence one fsync.

While one commit is under way the next group gathers, so nobody waits for a timer: alone, a caller commits at once; under load
the groups grow. Each caller still has its own all-or-nothing append and its own error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol

from tenuto.kernel.eventlog import (
    APPEND_EVENTS_MAX,
    Append,
    Appended,
    DuplicateEvent,
    LogUnavailable,
    VersionConflict,
    check_append,
)
from tenuto.schemas.envelope import Event

GROUP_EVENTS_MAX = 1_000
"""Events per commit: beyond this the fsync is a small part of the work, and latency only grows."""
WAITING_APPENDS_MAX = 10_000
"""Callers that wait; further ones wait to be let in, so memory stays bounded."""


class Appender(Protocol):
    async def append(self, batch: Append) -> Appended: ...


@dataclass
class _Waiting:
    batch: Append
    done: asyncio.Future[Appended]


class GroupCommit:
    """Appends without a checkpoint (a checkpoint belongs to one consumer, which has one append at a time anyway).

    Order: appends are recorded in the order of the calls, except that one which conflicts is refused alone. A caller that is
    cancelled before its group is taken is not recorded; later, whether it was recorded is not known.
    """

    def __init__(self, log: Appender) -> None:
        self._log = log
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(WAITING_APPENDS_MAX)
        self._task: asyncio.Task[None] | None = None

    async def append(self, batch: Append) -> Appended:
        """Raises what the log raises, for this append only. Raises ValueError for one with a checkpoint."""
        check_append(batch)
        if batch.checkpoint is not None:
            raise ValueError("an append with a checkpoint cannot share a commit: hand it to the log itself")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="group commit")
        async with self._room:
            waiting = _Waiting(batch, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._wake.set()
            return await waiting.done

    async def close(self) -> None:
        """What waits is refused with LogUnavailable; a group under way is no longer waited for."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        while self._waiting:
            _refuse(self._waiting.popleft(), LogUnavailable("the group commit was closed"))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                group = self._take()
                try:
                    await self._commit(group)
                except asyncio.CancelledError:
                    for waiting in group:
                        _refuse(waiting, LogUnavailable("the group commit was closed; whether it was recorded is not known"))
                    raise

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting:
            size += len(self._waiting[0].batch.events)
            if group and size > min(GROUP_EVENTS_MAX, APPEND_EVENTS_MAX):
                break
            waiting = self._waiting.popleft()
            if not waiting.done.done():  # its caller was cancelled
                group.append(waiting)
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        """All at once; if that is refused, in halves, down to the one append that is to blame: log2(n) more commits each."""
        if not group:
            return
        try:
            appended = await self._log.append(_merged(group))
        except (VersionConflict, DuplicateEvent) as error:
            if len(group) == 1:
                _refuse(group[0], error)
                return
            half = len(group) // 2
            await self._commit(group[:half])
            await self._commit(group[half:])
        except Exception as error:  # whatever it is, nobody may wait for ever
            for waiting in group:
                _refuse(waiting, error)
        else:
            start = 0
            for waiting in group:
                end = start + len(waiting.batch.events)
                if not waiting.done.done():
                    waiting.done.set_result(Appended(appended.events[start:end], None))
                start = end


def _refuse(waiting: _Waiting, error: Exception) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)


def _merged(group: list[_Waiting]) -> Append:
    """One append for all. What a guard expects is reduced by what the group itself puts before it in that stream."""
    if len(group) == 1:
        return group[0].batch
    events: list[Event] = []
    expected: dict[str, int] = {}
    written: Counter[str] = Counter()
    for waiting in group:
        for stream, version in waiting.batch.expected_versions.items():
            before = version - written[stream]
            # Two guards that cannot both hold: an impossible version makes the log refuse, and the group is halved.
            expected[stream] = before if expected.get(stream, before) == before else -1
        events += waiting.batch.events
        written.update(event.stream for event in waiting.batch.events)
    return Append(events, expected_versions=expected)
