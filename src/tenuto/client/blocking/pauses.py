"""Same as its namesake beside an event loop, without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def aside(work: Callable[[], T]) -> T:
    return work()
