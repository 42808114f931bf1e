"""Rankings of the trials at a rung: persistent sorted sequences, cheap to change and to ask for a rank."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar, overload

from tenuto.services.searcher.state.records import copied

Key = tuple[float, int]
"""(score, trial number): smaller is better, and of two equal scores the earlier trial. Total: scores are finite."""

CHUNK_KEYS_MAX = 64
NODE_CHUNKS_MAX = 64
"""A change copies one chunk, one node and the list of nodes: some 100 references at 100,000 keys."""

T = TypeVar("T")
Node = tuple[tuple[Key, ...], tuple[int, ...], tuple[tuple[Key, ...], ...]]
"""Chunks of a node: their last keys, their numbers of keys, and their keys."""


def _put(items: tuple[T, ...], at: int, *new: T) -> tuple[T, ...]:
    """Items with `new`, none or several, in place of the one at `at`."""
    return (*items[:at], *new, *items[at + 1 :])


@dataclass(frozen=True, eq=False)
class Ranking:
    """A sorted set of keys that is never changed in place: a tree of two levels. Two are equal when their keys are, however they
    are chunked."""

    lasts: tuple[Key, ...] = ()
    sizes: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    """Nodes in ascending order; `lasts` and `sizes` have the last key and the number of keys of each."""
    size: int = 0

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Ranking:
        ordered = sorted(keys)
        # Chunks and nodes are made half full, so that the next keys split none of them.
        half = CHUNK_KEYS_MAX // 2
        chunks = [tuple(ordered[i : i + half]) for i in range(0, len(ordered), half)]
        half = NODE_CHUNKS_MAX // 2
        return _ranking(tuple(_node(tuple(chunks[i : i + half])) for i in range(0, len(chunks), half)))

    def stored(self) -> list[Key]:
        return list(self)

    @classmethod
    def restored(cls, keys: Iterable[Iterable[Any]]) -> Ranking:
        return cls.of((float(score), int(number)) for score, number in keys)

    @property
    def chunks(self) -> tuple[tuple[Key, ...], ...]:
        return tuple(chunk for _, _, chunks in self.nodes for chunk in chunks)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Key]:
        for _, _, chunks in self.nodes:
            for chunk in chunks:
                yield from chunk

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.size == other.size and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: Key) -> bool:
        at = bisect_left(self.lasts, key)
        if at == len(self.lasts):
            return False
        lasts, _, chunks = self.nodes[at]
        chunk = chunks[bisect_left(lasts, key)]
        # The index is in range: the chunk was found by its last key, which is not below `key`.
        return chunk[bisect_left(chunk, key)] == key

    @overload
    def __getitem__(self, rank: int) -> Key: ...
    @overload
    def __getitem__(self, rank: slice) -> tuple[Key, ...]: ...
    def __getitem__(self, rank: int | slice) -> Key | tuple[Key, ...]:
        if isinstance(rank, slice):
            return tuple(self)[rank]
        if rank < 0:
            rank += self.size
        if not 0 <= rank < self.size:
            raise IndexError(rank)
        if rank == 0:
            return self.nodes[0][2][0][0]
        if rank == self.size - 1:
            return self.lasts[-1]
        before = list(accumulate(self.sizes))
        at = bisect_right(before, rank)
        _, sizes, chunks = self.nodes[at]
        rank -= before[at] - self.sizes[at]
        before = list(accumulate(sizes))
        at = bisect_right(before, rank)
        return chunks[at][rank - before[at] + sizes[at]]

    def rank(self, key: Key) -> int:
        """Number of keys better than this one, which need not be a member."""
        at = bisect_left(self.lasts, key)
        if at == len(self.lasts):
            return self.size
        lasts, sizes, chunks = self.nodes[at]
        inside = bisect_left(lasts, key)
        before = sum(self.sizes[:at]) if at else 0
        if inside:
            before += sum(sizes[:inside])
        return before + bisect_left(chunks[inside], key)

    def add(self, key: Key) -> Ranking:
        if not self.size:
            return _ranking((_node(((key,),)),))
        at = min(bisect_left(self.lasts, key), len(self.lasts) - 1)
        lasts, _, chunks = self.nodes[at]
        inside = min(bisect_left(lasts, key), len(lasts) - 1)
        chunk = chunks[inside]
        place = bisect_left(chunk, key)
        if place < len(chunk) and chunk[place] == key:
            return self
        grown = (*chunk[:place], key, *chunk[place:])
        if len(grown) <= CHUNK_KEYS_MAX:
            return self._changed(at, inside, grown)
        middle = len(grown) // 2
        chunks = _put(chunks, inside, grown[:middle], grown[middle:])
        if len(chunks) <= NODE_CHUNKS_MAX:
            return _ranking(_put(self.nodes, at, _node(chunks)))
        middle = len(chunks) // 2
        return _ranking(_put(self.nodes, at, _node(chunks[:middle]), _node(chunks[middle:])))

    def remove(self, key: Key) -> Ranking:
        """Ranking without the key; unchanged if it was no member."""
        at = bisect_left(self.lasts, key)
        if at == len(self.lasts):
            return self
        lasts, _, chunks = self.nodes[at]
        inside = bisect_left(lasts, key)
        chunk = chunks[inside]
        place = bisect_left(chunk, key)
        if chunk[place] != key:
            return self
        if len(chunk) > 1:
            return self._changed(at, inside, (*chunk[:place], *chunk[place + 1 :]))
        rest = _put(chunks, inside)
        return _ranking(_put(self.nodes, at, _node(rest)) if rest else _put(self.nodes, at))

    def _changed(self, at: int, inside: int, chunk: tuple[Key, ...]) -> Ranking:
        """Ranking with another chunk in place of one, in which a key was added or removed."""
        lasts, sizes, chunks = self.nodes[at]
        more = len(chunk) - sizes[inside]
        if lasts[inside] != chunk[-1]:
            lasts = _put(lasts, inside, chunk[-1])
        node = (lasts, _put(sizes, inside, len(chunk)), _put(chunks, inside, chunk))
        changes = {
            "sizes": _put(self.sizes, at, self.sizes[at] + more),
            "nodes": _put(self.nodes, at, node),
            "size": self.size + more,
        }
        if self.lasts[at] != lasts[-1]:
            changes["lasts"] = _put(self.lasts, at, lasts[-1])
        return copied(self, changes)


def _node(chunks: tuple[tuple[Key, ...], ...]) -> Node:
    return tuple(chunk[-1] for chunk in chunks), tuple(map(len, chunks)), chunks


def _ranking(nodes: tuple[Node, ...]) -> Ranking:
    sizes = tuple(sum(sizes) for _, sizes, _ in nodes)
    return Ranking(tuple(lasts[-1] for lasts, _, _ in nodes), sizes, nodes, sum(sizes))


@dataclass(frozen=True)
class Rung:
    """One length at which trials are compared."""

    best_max: int
    """Most of the best scores that are kept: no rule looks further down, and memory must not grow with the trials that lost."""
    size: int = 0
    """Trials that reached the rung, and those that failed on the way to it (they count as worst)."""
    best: Ranking = field(default_factory=Ranking)
    """The best `best_max` scores of those that reported a finite metric here."""
    waiting: Ranking = field(default_factory=Ranking)
    """Trials that are paused here and may go on later."""
    ended: Ranking = field(default_factory=Ranking)
    """Trials that are compared here and never go on, because their own code ended their training."""
    started: int = 0
    """Trials whose first target this rung is."""
    entered: int = 0
    """Trials that were ever sent here: those that started here, and those that came from the rung below."""
    lost: Ranking = field(default_factory=Ranking)
    """Trials that got no score here, each as (0, number), by number: for a model that learns from all."""

    def changed(self, **fields: Any) -> Rung:
        return copied(self, fields)

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

    def end(self, key: Key) -> Rung:
        """The trial, which is compared here, never goes on."""
        return self.changed(ended=self.ended.add(key))

    def ahead(self, key: Key) -> int:
        """Number of better trials here, without those that never go on: they leave their places to others."""
        return self.best.rank(key) - (self.ended.rank(key) if self.ended.size else 0)

    def last_of(self, places: int) -> int:
        """Rank, from 1, of the last trial that goes on if `places` do; `places` where none has ended by itself."""
        last = places
        while places and self.ended.size and last <= self.best.size:
            score, number = self.best[last - 1]
            # The key behind it: nothing is between two numbers.
            more = places + self.ended.rank((score, number + 1))
            if more == last:
                break
            last = more
        return last

    def lose(self, number: int) -> Rung:
        """Notes, for the model, that this trial got no score here."""
        return self.changed(lost=self.lost.add((0.0, number)))

    def wait(self, key: Key) -> Rung:
        return self.changed(waiting=self.waiting.add(key))

    def leave(self, key: Key) -> Rung:
        """Rung without the trial among those that wait. Its score stays and is compared with those that come later."""
        return self.changed(waiting=self.waiting.remove(key))
