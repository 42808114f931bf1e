"""Wakes whoever waits for a change."""

from __future__ import annotations

import asyncio


class Changed:
    """Take `next()`, look at the thing, then wait for the event taken: a change in between is not missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        return self._event

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


def obey_cancellation() -> None:
    """Raises CancelledError if this task was cancelled. Needed after a NATS request: before Python 3.12 `asyncio.wait_for`, on
    which it stands, forgets a cancellation that comes together with the answer."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
