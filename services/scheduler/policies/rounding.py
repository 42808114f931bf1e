"""Rounding of shares to whole gangs: slots left over by rounding down go, a gang at a time, to the owners that lost most by it.

Kept up to date as some of them change, because with many thousands of waiting experiments nearly every slot is given out here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

FEW = 8
"""While at most one in so many leaves that lose by rounding changes, each is put in its place; of more all are sorted anew."""


class Loser(NamedTuple):
    """Leaf that lost slots by rounding; sorted by its loss, the largest first, among equals the earlier experiment."""

    lost: float
    order: tuple[float, int]
    key: int
    """The experiment."""
    step: int
    """Slots by which its share would become larger."""


Part = tuple[dict[int, int], list[Loser]]
"""Rounded shares, and the leaves that lost by rounding."""


class Remainder:
    """`targets`, where each loser in its turn gets its step if that is not more than what is left. So the first ones get their
    steps up to one for whose step too little is left; of those behind it, some may have smaller steps."""

    def __init__(self) -> None:
        self.targets: dict[int, int] = {}
        """Experiment -> its rounded share, with its step if it gets that."""
        self._losers: list[Loser] = []
        self._at = 0
        """Number of losers at the beginning of that order that get their steps."""
        self._given = 0
        """The sum of their steps."""
        self._behind: list[Loser] = []
        """Losers that get their steps although one before them does not."""

    def change(self, gone: Sequence[Part], new: Sequence[Part], touched: set[int]) -> None:
        """Some experiments' rounded shares are other ones. `gone`: as they were, `new`: as they are. `touched`: gets them, and
        those whose targets change."""
        # These steps came from the old remainder; `settle` gives out the new one.
        for loser in self._behind:
            self.targets[loser.key] -= loser.step
            touched.add(loser.key)
        self._behind = []
        many = sum([len(losers) for _, losers in (*gone, *new)]) * FEW > len(self._losers)
        last = self._losers[self._at - 1] if self._at else None
        for targets, losers in gone:
            touched.update(targets)
            for key in targets:
                del self.targets[key]
            for loser in losers if not many else ():
                at = bisect_left(self._losers, loser)
                del self._losers[at]
                if at < self._at:
                    self._at, self._given = self._at - 1, self._given - loser.step
        for targets, losers in new:
            touched.update(targets)
            self.targets.update(targets)
            for loser in losers if not many else ():
                at = bisect_left(self._losers, loser)
                self._losers.insert(at, loser)
                if at < self._at:
                    self._at, self._given = self._at + 1, self._given + loser.step
                    self.targets[loser.key] += loser.step
        if many:
            self._change_many(gone, new, last)

    def _change_many(self, gone: Sequence[Part], new: Sequence[Part], last: Loser | None) -> None:
        """All at once. `last`: the last one that got its step; those before it still do, and new ones among them get theirs."""
        leaving = [loser for _, losers in gone for loser in losers]
        coming = [loser for _, losers in new for loser in losers]
        if last is not None:
            early = [loser for loser in leaving if loser <= last]
            self._at -= len(early)
            self._given -= sum([loser.step for loser in early])
            early = [loser for loser in coming if loser <= last]
            self._at += len(early)
            self._given += sum([loser.step for loser in early])
            for loser in early:
                self.targets[loser.key] += loser.step
        missing = {loser.key for loser in leaving}
        kept = [loser for loser in self._losers if loser.key not in missing] if missing else self._losers
        self._losers = sorted([*kept, *coming])

    def settle(self, left: int, touched: set[int]) -> None:
        """Give out what is left, after `change`. `touched`: gets those whose targets change."""
        losers, at, given = self._losers, self._at, self._given
        # Only one of the two loops does anything: a step that was taken back here does not fit there.
        while given > left and at:
            at -= 1
            given -= losers[at].step
            self.targets[losers[at].key] -= losers[at].step
            touched.add(losers[at].key)
        while at < len(losers) and given + losers[at].step <= left:
            self.targets[losers[at].key] += losers[at].step
            touched.add(losers[at].key)
            given += losers[at].step
            at += 1
        self._at, self._given = at, given
        left -= given
        while left > 0 and at < len(losers):
            if losers[at].step <= left:
                self.targets[losers[at].key] += losers[at].step
                touched.add(losers[at].key)
                self._behind.append(losers[at])
                left -= losers[at].step
            at += 1
