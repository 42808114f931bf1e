"""The same pure function on several values, on all processors."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _NoPool(Exception):
    """Processes cannot be forked here."""


_work: Callable[[Any], Any] | None = None
"""Function of this process's children, which they have by the fork: it need not be sent."""


def each(function: Callable[[T], R], values: Sequence[T], *, worth_it: bool = True) -> list[R]:
    """Results of the function for the values, in their order. Processes are forked for it where there are several processors and
    `worth_it`; else, or where one of them is killed, it runs here. The function must be pure: what it changes is not seen. Raises
    what it raises."""
    count = min(_processors(), len(values))
    if worth_it and count > 1 and sys.platform == "linux":
        try:
            return _forked(function, values, count)
        except (BrokenProcessPool, _NoPool):  # such as for want of memory, which one process may still have enough of
            pass
    return [function(value) for value in values]


def _forked(function: Callable[[T], R], values: Iterable[T], count: int) -> list[R]:
    """Raises BrokenProcessPool, _NoPool, and what the function raises."""
    global _work
    _work = function
    gc.freeze()  # a child that collects garbage would copy all pages that it shares
    try:
        try:
            pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"))
        except (OSError, ImportError, NotImplementedError) as error:  # no semaphores here, as where /dev/shm is missing
            raise _NoPool from error
        with pool:
            try:
                under_way = [pool.submit(_worked, value) for value in values]
            except OSError as error:  # no further process may be made
                raise _NoPool from error
            return [future.result() for future in under_way]
    finally:
        gc.unfreeze()
        _work = None


def _worked(value: Any) -> Any:
    assert _work is not None
    return _work(value)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
