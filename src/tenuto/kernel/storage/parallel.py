"""Parallel requests to a store, within a bound of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tenuto.kernel.storage.store import BUFFER_BYTES_MAX, PARALLEL_MAX

T = TypeVar("T")


def each(work: Callable[[T], None], items: Sequence[T], cost_bytes: Callable[[T], int]) -> list[BaseException]:
    """Calls `work` on each item, PARALLEL_MAX at once, with at most BUFFER_BYTES_MAX of cost under way. After the first error
    no more items are begun. Returns the errors."""
    if not items:
        return []
    budget = _Budget(BUFFER_BYTES_MAX)
    failed = threading.Event()

    def run(item: T, cost: int) -> None:
        try:
            if not failed.is_set():
                work(item)
        except BaseException:
            failed.set()
            raise
        finally:
            budget.give(cost)

    with ThreadPoolExecutor(min(PARALLEL_MAX, len(items)), thread_name_prefix="tenuto-store") as threads:
        futures = []
        for item in items:
            cost = min(max(cost_bytes(item), 1), BUFFER_BYTES_MAX)
            budget.take(cost)
            if failed.is_set():
                budget.give(cost)
                break
            futures.append(threads.submit(run, item, cost))
    return [error for future in futures if (error := future.exception()) is not None]


class _Budget:
    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()

    def take(self, amount: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._left >= amount)
            self._left -= amount

    def give(self, amount: int) -> None:
        with self._changed:
            self._left += amount
            self._changed.notify_all()
