"""Waits, and work that must not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def aside(work: Callable[[], T]) -> T:
    """Work on disks and with compressors, in a thread."""
    return await asyncio.to_thread(work)
