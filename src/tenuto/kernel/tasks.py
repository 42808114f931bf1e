"""Stopping background tasks for certain."""

from __future__ import annotations

import asyncio
from typing import Any

CANCEL_SECONDS_BETWEEN = 1.0
"""Until Python 3.12 `asyncio.wait_for` can swallow a cancellation that comes together with its result; so we ask again. A task
that cleans up for longer is told again, too."""


async def stop_task(task: asyncio.Task[Any] | None, *, seconds_between: float = CANCEL_SECONDS_BETWEEN) -> None:
    """Returns when the task has ended, whatever it ended with."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=seconds_between)
    if task is not None and not task.cancelled():
        task.exception()  # seen: whoever stops a task no longer cares
