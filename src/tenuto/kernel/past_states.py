"""The state of a core at any position of the log, from the log alone, with states kept on the way.

A state shares all unchanged parts with the one before it, so some hundred of them cost little more than one. They lie evenly:
when there are too many, every second one is dropped, and the events between two are twice as many from then on.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Generic, TypeVar

from tenuto.kernel.core import Core
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.replay import FoldOrder
from tenuto.schemas.envelope import Event

S = TypeVar("S")

KEPT_MAX = 512
"""Most states that are kept: of a log with 100,000 events at most 400 lie between two, which are folded in some 60 ms."""
KEPT_EVENTS = 64
"""Events between two kept states at first. Fewer would save nothing: reading a page takes longer than to fold it."""
PAGE_EVENTS = 2_000
"""Most events of one read, so that a deadline is kept."""


class NotYet(Exception):
    """The log is longer than could be read in the time given; the next question goes on from there."""

    def __init__(self, read_upto: int) -> None:
        super().__init__(f"the log is read up to position {read_upto}")
        self.read_upto = read_upto


@dataclass(frozen=True)
class _KeptState(Generic[S]):
    position: int
    """Position up to which events were given to the order of folding."""
    state: S
    pending: tuple[Event, ...]
    """Inputs among them that no own event had seen yet."""


class Past(Generic[S]):
    """Not for several questions at once."""

    def __init__(self, core: Core[S], log: EventLog, *, kept_max: int = KEPT_MAX, kept_events: int = KEPT_EVENTS) -> None:
        self._core, self._log, self._kept_max, self._step = core, log, kept_max, kept_events
        self._kept = [_KeptState(0, core.initial(), ())]
        self._types = sorted(core.consumes | core.emits)

    async def at(self, position: int, seconds: float) -> S:
        """State after all events up to a position. Raises NotYet after `seconds`."""
        until = time.monotonic() + seconds
        nearest = self._kept[bisect_right(self._kept, position, key=lambda kept: kept.position) - 1]
        newest = nearest is self._kept[-1]
        order, state, read_upto, since = FoldOrder(self._core, nearest.pending), nearest.state, nearest.position, 0
        while read_upto < position:
            page = await self._log.read(read_upto, PAGE_EVENTS, upto=position, types=self._types)
            for event in page:
                for ready in order.push(event):
                    state = self._core.evolve(state, ready)
                read_upto, since = event.position, since + 1
                if newest and since >= self._step:
                    self._keep(_KeptState(read_upto, state, order.pending))
                    since = 0
            if not page.more:
                break
            if time.monotonic() >= until:
                if newest and since:
                    self._keep(_KeptState(read_upto, state, order.pending))
                raise NotYet(read_upto)
        for ready in order.rest():
            state = self._core.evolve(state, ready)
        return state

    def _keep(self, kept: _KeptState[S]) -> None:
        self._kept.append(kept)
        if len(self._kept) > self._kept_max:
            del self._kept[1::2]
            self._step *= 2
