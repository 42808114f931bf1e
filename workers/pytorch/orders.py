"""Order of each epoch, drawn from the user's sampler, and drawn again when a trial is resumed.

An order follows from (seed, epoch) if the sampler draws from any global generator, or from one that it, or a part of it, holds.
Other state of a sampler (a count of its passes, a permutation, the rest of a longer round) is put back as it was before the
epoch: that is part of a checkpoint. A checkpoint also contains a mark of the order, so that a different order is noticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.seeds import derive_seed, isolated_randomness
from tenuto.workers.user_state.attributes import Attributes, is_iterator
from tenuto.workers.user_state.generators import is_users, own_generators, reseed

Note = Callable[[str], None]
_ANOTHERS = (Dataset, DataLoader, nn.Module, torch.optim.Optimizer)
"""Types of objects that are not part of a sampler: the data, and objects that the trainer saves."""
EPOCHS_AHEAD = 8
"""Most orders drawn before the epoch being trained is over: few, unless an epoch has fewer batches than are made ahead."""
REDRAWN_BATCHES_MAX = 100_000
"""Longest order that is drawn twice when training begins, to see whether it can be."""
ANOTHER_ORDER = (
    "the order of the records in epoch {epoch} came out another when it was drawn again ({sampler}), so some records of it are "
    "trained twice and others not; draw it from torch's, NumPy's or Python's generators, or from (seed, epoch) in set_epoch"
)
NOT_AGAIN = (
    "the order of the records cannot be drawn again ({sampler}: {why}), so a resumed trial trains some records of its epoch "
    "twice and others not; draw it from torch's, NumPy's or Python's generators, or from (seed, epoch) in set_epoch"
)


class Orders:
    """Orders of one loader."""

    def __init__(self, loader: DataLoader[Any], seed: int, note: Note = lambda _: None) -> None:
        """`note`: called once if an order cannot be drawn again."""
        self._loader, self._seed, self._note = loader, seed, note
        self._sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        self._kept = Attributes(
            {self._name: self._sampler},
            skip=lambda: {"data set": loader.dataset},
            skip_types=_ANOTHERS,
            walks=_is_part,
            asks=False,
        )
        self._begun: dict[int, list[Any]] = {}
        """State of the sampler before each epoch's order was drawn."""
        self._marks: dict[int, str] = {}
        self._tried = all(type(part).__module__.startswith("torch.") for part in self._parts())
        """True if an order can be drawn again, as is known of torch's own samplers. None: not known yet."""
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self._epochs_kept = EPOCHS_AHEAD + ahead

    @property
    def _name(self) -> str:
        inner = [part for part in (self._sampler, getattr(self._sampler, "sampler", None)) if part is not None]
        return type(next((part for part in inner if not type(part).__module__.startswith("torch.")), inner[-1])).__name__

    def _is_anothers(self, value: Any) -> bool:
        return value is self._loader.dataset or isinstance(value, _ANOTHERS)

    def _parts(self) -> Iterator[Any]:
        """The sampler, and those inside it."""
        seen: set[int] = set()
        queue = [self._sampler]
        while queue:
            part = queue.pop()
            if id(part) in seen or self._is_anothers(part) or not _is_part(part):
                continue
            seen.add(id(part))
            yield part
            inner = list(vars(part).values())
            queue += [item for value in inner for item in (value if isinstance(value, (list, tuple)) else (value,))[:1_000]]

    def draw(self, epoch: int) -> list[Any]:
        """Batches of an epoch, as indices. Raises UserError if a saved state does not fit."""
        begun = self._begun.get(epoch)
        if begun is None:
            begun = self._begun[epoch] = self._kept.state(small=True)
        else:
            self._put_back(begun)
        order = self._draw(epoch)
        mark = mark_of_order(order)
        if self._marks.setdefault(epoch, mark) != mark:
            self._note(ANOTHER_ORDER.format(epoch=epoch, sampler=self._name))
            self._marks[epoch] = mark
        elif not self._tried:
            self._try_again(epoch, begun, order, mark)
        self._tried = True
        for old in [known for known in self._begun if known < epoch - self._epochs_kept]:
            self._begun.pop(old)
            self._marks.pop(old, None)
        return order

    def _draw(self, epoch: int) -> list[Any]:
        seed = derive_seed(self._seed, "order", epoch)
        with isolated_randomness(seed):
            generators = own_generators(self._sampler, self._loader.generator, skip=(self._loader.dataset,))
            for index, generator in enumerate(generators):
                reseed(generator, derive_seed(seed, index))
            for part in (*self._parts(), self._loader):
                if callable(set_epoch := getattr(part, "set_epoch", None)):
                    set_epoch(epoch)
            return list(self._sampler)

    def _try_again(self, epoch: int, begun: list[Any], order: list[Any], mark: str) -> None:
        """Draws an order again, so that a difference is noticed when training begins, and not when it is too late."""
        unsaved = self._kept.unsaved()
        if is_iterator(self._sampler):
            self._note(NOT_AGAIN.format(sampler=self._name, why="it is an iterator, which gives its records once"))
        elif unsaved:
            _, name, kind = unsaved[0]
            self._note(NOT_AGAIN.format(sampler=self._name, why=f"it keeps {name}, a {kind}, whose state cannot be saved"))
        elif len(order) <= REDRAWN_BATCHES_MAX:
            self._put_back(begun)
            if mark_of_order(self._draw(epoch)) != mark:
                self._note(NOT_AGAIN.format(sampler=self._name, why="drawn twice, it came out twice different"))

    def _put_back(self, begun: list[Any]) -> None:
        if lost := self._kept.restore(begun):
            self._note(f"the sampler's {', '.join(lost)} could not be put back; make these attributes in its __init__")

    def state(self, batches: int, epoch_batches: int) -> list[list[Any]]:
        """State at a position, for a checkpoint: [epoch, state of the sampler before it, mark of its order] of the epoch of
        the batch trained last, and of the next batch's."""
        last, following = max(0, batches - 1) // epoch_batches, batches // epoch_batches
        if following not in self._begun and self._begun and max(self._begun) < following:
            self._begun[following] = self._kept.state(small=True)
        return [
            [epoch, self._begun[epoch], self._marks.get(epoch) if epoch == last else None]
            for epoch in sorted({last, following})
            if epoch in self._begun
        ]

    def resume(self, state: list[list[Any]]) -> None:
        self._begun = {epoch: begun for epoch, begun, _ in state}
        self._marks = {epoch: mark for epoch, _, mark in state if mark is not None}


def mark_of_order(order: list[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for batch in order:
        digest.update(repr(batch.tolist() if hasattr(batch, "tolist") else batch).encode() + b",")
    return digest.hexdigest()


def _is_part(value: Any) -> bool:
    return isinstance(value, Sampler) or is_users(type(value))


def check_length(loader: DataLoader[Any], where: str, at: Any) -> None:
    """Raises UserError for a sampler without a length: the end of an epoch is unknown then."""
    try:
        len(loader)
    except TypeError:
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        inner = getattr(sampler, "sampler", sampler)
        raise UserError(
            f"{where} returned a loader whose sampler ({type(inner).__name__}) has no length, so the end of an epoch is not "
            "known; give a sampler with __len__ and an __iter__ that gives the records of each epoch anew.",
            at=at,
        ) from None
