"""Waiting in tests for what comes by itself, with one deadline for the whole suite.

A deadline of a test's own says how fast the machine of its author was. It is needed for one thing only: that a test ends where
what it waits for never comes. So there is one, far beyond what anything takes, and `gone` says at once that nothing will come.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psutil

SECONDS_MAX = 300.0
"""Less than the 420 s after which a test counts as hanging: its failure says what was seen, and not only where it stood."""
POLL_SECONDS = 0.02
SHOWN_CHARACTERS_MAX = 2_000
T = TypeVar("T")
Gone = Callable[[], object]
"""Returns why what is waited for cannot come any more; something false while it may."""


class NotCome(AssertionError):
    """What was waited for has not come, or cannot any more. The text says what was seen last."""


def never() -> None:
    """A `Gone` for what may always come."""


def until(look: Callable[[], T], holds: Callable[[T], object] = bool, *, gone: Gone = never) -> T:
    """The first value of `look` for which `holds` is true. What either raises is raised at once. Raises NotCome."""
    judge = _Judge(gone)
    while True:
        reason = judge.reason()  # before the look: what came before the end is still seen
        if holds(found := look()):
            return found
        judge.check(reason, found)
        time.sleep(POLL_SECONDS)


async def until_async(look: Callable[[], Awaitable[T]], holds: Callable[[T], object] = bool, *, gone: Gone = never) -> T:
    """As `until`, for what is asked with `await`, or changes on the event loop (`until_on_loop`)."""
    judge = _Judge(gone)
    while True:
        reason = judge.reason()
        if holds(found := await judge.in_time(look())):
            return found
        judge.check(reason, found)
        await asyncio.sleep(POLL_SECONDS)


async def until_on_loop(look: Callable[[], T], holds: Callable[[T], object] = bool, *, gone: Gone = never) -> T:
    """As `until`, while other tasks of this event loop go on."""

    async def looked() -> T:
        return look()

    return await until_async(looked, holds, gone=gone)


def ended(*awaited: Any) -> Gone:
    """What is waited for comes from one of these processes, threads, tasks or futures: with the end of any, it cannot come."""

    def gone() -> str:
        return next((reason for item in awaited if (reason := _end_of(item))), "")

    return gone


def _end_of(item: Any) -> str:
    if isinstance(item, (subprocess.Popen, psutil.Popen)):
        return "" if item.poll() is None else f"process {item.pid} has ended with {item.returncode}"
    if isinstance(item, Process):
        return "" if item.returncode is None else f"process {item.pid} has ended with {item.returncode}"
    if isinstance(item, threading.Thread):
        return "" if item.is_alive() else f"thread {item.name} has ended"
    if not isinstance(item, asyncio.Future):
        raise TypeError(f"{item!r} is neither a process, nor a thread, nor a task or future")
    if not item.done():
        return ""
    name = item.get_name() if isinstance(item, asyncio.Task) else "the future"
    if item.cancelled():
        return f"{name} was cancelled"
    return f"{name} has ended with {item.exception() or item.result()!r}"


class _Judge:
    def __init__(self, gone: Gone) -> None:
        self._gone = gone
        self._until = time.monotonic() + SECONDS_MAX
        self._last: object = "nothing yet"

    def reason(self) -> object:
        return self._gone()

    async def in_time(self, asked: Awaitable[T]) -> T:
        """The answer, which may itself never come. Raises NotCome."""
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())) as limit:
                return await asked
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotCome(f"No answer within {SECONDS_MAX:g} s; seen last: {_shown(self._last)}") from None

    def check(self, reason: object, found: object) -> None:
        """Raises NotCome."""
        self._last = found
        if reason:
            raise NotCome(f"It cannot come any more ({reason}); seen last: {_shown(found)}")
        if time.monotonic() > self._until:
            raise NotCome(f"It has not come within {SECONDS_MAX:g} s; seen last: {_shown(found)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"
