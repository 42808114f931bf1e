"""Division of room among those that wait for it, in turns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

T = TypeVar("T")


def fair_shares(waiting: Mapping[str, int], room: int, last_served: str) -> dict[str, int]:
    """Shares of `room` by name, as equal as the waiting numbers allow. The name after `last_served`, in alphabetical order, is
    served first, so that all get their turn when there is little room."""
    names = sorted(name for name, count in waiting.items() if count > 0)
    order = [name for name in names if name > last_served] + [name for name in names if name <= last_served]
    shares = dict.fromkeys(order, 0)
    open_names = order
    while room > 0 and open_names:
        each = max(room // len(open_names), 1)
        for name in open_names:
            given = min(each, waiting[name] - shares[name], room)
            shares[name] += given
            room -= given
        open_names = [name for name in open_names if shares[name] < waiting[name]]
    return {name: share for name, share in shares.items() if share > 0}


def interleaved(queues: Sequence[Sequence[T]]) -> list[T]:
    """One item of each queue, then a second one of each, and so on; the order within a queue is kept."""
    nothing = object()
    return [item for turn in zip_longest(*queues, fillvalue=nothing) for item in turn if item is not nothing]  # type: ignore[misc]
