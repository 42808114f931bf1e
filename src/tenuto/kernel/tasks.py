"""Background tasks: running them together, and stopping them reliably."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

CANCEL_SECONDS_BETWEEN = 1.0
"""Pause between cancellations of a task. Until Python 3.12 `asyncio.wait_for` can swallow a cancellation that arrives together
with its result, so it is repeated, also for a task that takes longer to clean up."""


async def stop_task(task: asyncio.Task[Any] | None, *, seconds_between: float = CANCEL_SECONDS_BETWEEN) -> None:
    """Cancels the task; returns when it has ended, whatever its result."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=seconds_between)
    if task is not None and not task.cancelled():
        task.exception()  # marks the error as retrieved: the result of a stopped task is not needed


async def run_together(**work: Coroutine[Any, Any, None]) -> None:
    """Runs a service's parts, by name, until one of them ends or this is cancelled; then stops the others.

    Raises the error that ended it, itself and not in a group: the process's frame tells Fenced from Poisoned by it.
    """
    tasks = [asyncio.create_task(part, name=name) for name, part in work.items()]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            await stop_task(task)
