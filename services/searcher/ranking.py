"""Who is how good at a rung: persistent sorted sequences, cheap to change and to ask for a rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, overload

Key = tuple[float, int]
"""(score, trial number): smaller is better, and of two equal scores the earlier trial. Total: scores are finite."""

CHUNK_KEYS_MAX = 512
"""A change copies one chunk and the list of chunks: about 2 * sqrt(n) references at 100,000 keys."""


def _last(chunk: tuple[Key, ...]) -> Key:
    return chunk[-1]


@dataclass(frozen=True, eq=False)
class Ranking:
    """A sorted set of keys that is never changed in place. Two are equal when their keys are, however they are chunked."""

    chunks: tuple[tuple[Key, ...], ...] = ()
    size: int = 0

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Ranking:
        ordered = sorted(keys)
        half = CHUNK_KEYS_MAX // 2
        return cls(tuple(tuple(ordered[i : i + half]) for i in range(0, len(ordered), half)), len(ordered))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Key]:
        for chunk in self.chunks:
            yield from chunk

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.size == other.size and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: Key) -> bool:
        at = bisect_left(self.chunks, key, key=_last)
        if at == len(self.chunks):
            return False
        chunk = self.chunks[at]
        return chunk[bisect_left(chunk, key)] == key

    @overload
    def __getitem__(self, rank: int) -> Key: ...
    @overload
    def __getitem__(self, rank: slice) -> tuple[Key, ...]: ...
    def __getitem__(self, rank: int | slice) -> Key | tuple[Key, ...]:
        if isinstance(rank, slice):
            return tuple(self)[rank]
        if rank < 0:
            if rank == -1 and self.chunks:
                return self.chunks[-1][-1]
            rank += self.size
        for chunk in self.chunks:
            if 0 <= rank < len(chunk):
                return chunk[rank]
            rank -= len(chunk)
        raise IndexError(rank)

    def rank(self, key: Key) -> int:
        """How many keys are better than this one, which need not be a member."""
        at = bisect_left(self.chunks, key, key=_last)
        before = sum(map(len, self.chunks[:at])) if at else 0
        return before + (bisect_left(self.chunks[at], key) if at < len(self.chunks) else 0)

    def add(self, key: Key) -> Ranking:
        if not self.chunks:
            return Ranking(((key,),), 1)
        at = min(bisect_left(self.chunks, key, key=_last), len(self.chunks) - 1)
        chunk = self.chunks[at]
        inside = bisect_left(chunk, key)
        if inside < len(chunk) and chunk[inside] == key:
            return self
        grown = (*chunk[:inside], key, *chunk[inside:])
        middle = len(grown) // 2
        parts = (grown,) if len(grown) <= CHUNK_KEYS_MAX else (grown[:middle], grown[middle:])
        return Ranking((*self.chunks[:at], *parts, *self.chunks[at + 1 :]), self.size + 1)

    def remove(self, key: Key) -> Ranking:
        """Without the key, if it was a member."""
        if key not in self:
            return self
        at = bisect_left(self.chunks, key, key=_last)
        chunk = self.chunks[at]
        inside = bisect_left(chunk, key)
        rest = (*chunk[:inside], *chunk[inside + 1 :])
        return Ranking((*self.chunks[:at], *((rest,) if rest else ()), *self.chunks[at + 1 :]), self.size - 1)


@dataclass(frozen=True)
class Rung:
    """One length at which trials are compared."""

    best_max: int
    """Only so many of the best are kept: no rule looks further down, and memory must not grow with the trials that lost."""
    size: int = 0
    """Trials that reached the rung, and those that failed on the way to it (they count as worst)."""
    best: Ranking = field(default_factory=Ranking)
    """The best `best_max` scores of those that reported a finite metric here."""
    waiting: Ranking = field(default_factory=Ranking)
    """Trials that are paused here and may go on later."""
    started: int = 0
    """Trials whose first target this rung is."""
    entered: int = 0
    """Trials that were ever sent here: those that started here, and those that came from the rung below."""

    def changed(self, **fields: Any) -> Rung:
        """As `dataclasses.replace`, at a fifth of its cost."""
        copy = object.__new__(Rung)
        copy.__dict__.update(self.__dict__, **fields)
        return copy

    def start(self) -> Rung:
        """One more trial begins with this rung as its first target."""
        return self.changed(started=self.started + 1, entered=self.entered + 1)

    def withdraw(self) -> Rung:
        """A trial that started here is taken back: it never counted."""
        return self.changed(started=self.started - 1, entered=self.entered - 1)

    def enter(self) -> Rung:
        return self.changed(entered=self.entered + 1)

    def arrive(self, key: Key | None) -> Rung:
        """One more trial is compared here. None: it has no finite metric, so it is worse than all others."""
        if key is None:
            return self.changed(size=self.size + 1)
        if self.best.size < self.best_max:
            return self.changed(size=self.size + 1, best=self.best.add(key))
        if self.best_max == 0 or key > self.best[-1]:
            return self.changed(size=self.size + 1)
        best = self.best.add(key)
        return self.changed(size=self.size + 1, best=best.remove(best[-1]))

    def wait(self, key: Key) -> Rung:
        return self.changed(waiting=self.waiting.add(key))

    def leave(self, key: Key) -> Rung:
        """The trial waits here no more. Its score stays and is compared with those that come later."""
        return self.changed(waiting=self.waiting.remove(key))
