"""A signal of changes, for tasks that wait for one."""

from __future__ import annotations

import asyncio
import contextlib


class Changed:
    """Signals changes to waiting tasks. Take `next()`, check the condition, then wait for the event taken: a change in between
    is not missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        return self._event

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


async def within(changed: asyncio.Event, seconds: float) -> None:
    """Waits for the event, or for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()


def obey_cancellation() -> None:
    """Raises CancelledError if this task was cancelled. Needed after a NATS request: before Python 3.12 it uses
    `asyncio.wait_for`, which forgets a cancellation that arrives together with the answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
