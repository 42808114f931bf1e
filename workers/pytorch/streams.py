"""Batches of an IterableDataset, from a position on.

A stream has no positions of its own. There are two ways back to one:

- The dataset has `state_dict` and `load_state_dict`: torchdata's StatefulDataLoader carries them between the training process and
its loader workers, past prefetched batches. It restores positions exactly, but not the randomness of a worker (tried with
torchdata 0.11 on torch 2.13: same order, other augmentation), so each item is made under randomness of its own here; and it reads
a loader worker's stream again that had ended before the others', so its end is remembered here.
- It has not: the resumed trial reads the stream from the start of its pass and drops the trained batches. This is as exact,
provided the stream gives the same items again, but it takes the time of reading.

Generators that the stream itself holds are seeded at the beginning of each pass. If `load_state_dict` does not restore them, the
second way is taken. Other state of the stream in the training process (a count of its passes) is put back as it was before the
pass.

For datasets with an index neither is used: see `data.py`.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.counting import Counted, CountingCollate
from tenuto.workers.pytorch.own_iteration import UsersPass, WorkerInit, attributes_of, has_own_iteration
from tenuto.workers.pytorch.seeds import derive_seed, isolated_randomness, seed_processor
from tenuto.workers.user_state import values
from tenuto.workers.user_state.attributes import Attributes, name_of
from tenuto.workers.user_state.generators import attributes, is_generator, is_users, own_generators, reseed
from tenuto.workers.user_state.kinds import NotPlain
from tenuto.workers.user_state.marks import mark_of_encoded


class _SeededStream(IterableDataset[Any]):
    """The user's dataset in one loader worker: item `n` is made under the randomness of (seed, worker, n)."""

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        self._dataset: Any = loader.dataset
        self._collate, self._seed = loader.collate_fn, seed
        self._items = 0
        self._over = self._loaded = False
        self._dropped = 0
        """Items that this pass has given before, when it is read again."""

    @property
    def users(self) -> Any:
        """The user's data set."""
        return self._dataset

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if not self._loaded:
            self.reseed()
        iterator = iter(()) if self._over else iter(self._dataset)
        if worker is None:
            yield from iterator
        while worker is not None:
            seed_processor(derive_seed(self._seed, "item", worker.id, self._items))
            try:
                item = next(iterator)
            except StopIteration:
                break
            self._items += 1
            if self._items > self._dropped:
                yield item
        self._over = True

    def own_generators(self) -> list[Any]:
        return own_generators(self._dataset, self._collate)

    def reseed(self) -> None:
        """Seeds generators, the same in all loader workers: their streams may rely on drawing the same order."""
        for index, generator in enumerate(self.own_generators()):
            reseed(generator, derive_seed(self._seed, "own", index))


class _SeededStatefulStream(_SeededStream):
    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        super().__init__(loader, seed)
        self._generators = self.own_generators()
        self.astray = False
        """True: the stream's own state was loaded, and the rest of it (generators, attributes) is not as it was."""

    def state_dict(self) -> dict[str, Any]:
        # `over`: after resuming, torchdata asks a stream that has ended for another batch, and most streams then begin again.
        return {
            "items": self._items,
            "over": self._over,
            "dataset": self._dataset.state_dict(),
            "generators": self._marks(),
            "attributes": attribute_marks(self._dataset),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        in_worker = get_worker_info() is not None
        before = copy.deepcopy(self._dataset.state_dict()) if in_worker else None
        self._items, self._over, self._loaded = state["items"], state["over"], True
        self.reseed()  # those that this pass has not used are where they were, then
        self._dataset.load_state_dict(state["dataset"])
        self.astray = self._marks() != state.get("generators", [])
        # Where the training process reads the stream, all of its attributes are compared.
        self.astray |= in_worker and attribute_marks(self._dataset) != state.get("attributes", attribute_marks(self._dataset))
        if self.astray and in_worker:
            self._dataset.load_state_dict(before)
            self._dropped, self._items, self._over, self._loaded = self._items, 0, False, False

    def _marks(self) -> list[str]:
        return [values.mark(generator) for generator in self._generators]


READ_AGAIN = (
    "tenuto: {kind}.load_state_dict does not bring back {names}, so the stream reads this pass again up to its place; add what "
    "counts to its state_dict, and it goes on at once."
)
NAMES_SHOWN_MAX = 4
MARKED_ITEMS_MAX, MARKED_BYTES_MAX = 1_000, 64 << 10
"""Largest containers and arrays among a stream's attributes that a loader worker compares: it does after each batch."""


def attribute_marks(dataset: Any) -> dict[str, str]:
    """Marks of what the user's stream holds in attributes of plain kinds, the same in each process. Cheap."""
    found: dict[str, str] = {}
    for name, value in attributes(dataset) if is_users(type(dataset)) else ():
        if type(value) in (list, tuple, dict, set, deque) and len(value) > MARKED_ITEMS_MAX:
            continue
        if getattr(value, "nbytes", 0) > MARKED_BYTES_MAX or is_generator(value):
            continue
        with contextlib.suppress(NotPlain):
            found[name] = values.mark(value, versions=False)
    return found


def is_stateful(dataset: Any) -> bool:
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))


class StreamBatches:
    """Batches without end, pass after pass over the stream. `state()` is its position; `resume` begins there."""

    def __init__(self, loader: DataLoader[Any], seed: int, resume: dict[str, Any] | None = None) -> None:
        """`resume`: result of `state`. Raises UserError if the number of loader workers has changed."""
        self._loader, self._seed = loader, seed
        self._users = has_own_iteration(loader)
        self._stateful = is_stateful(loader.dataset) and not self._users
        self.records: int | None = None
        """Records in the last batch. None: not known."""
        self._loaders = attributes_of(loader) if self._users else None
        self._loader_begun: list[Any] = []
        """State of the loader's own iteration at the beginning of this pass."""
        self._kept: Attributes | None = None
        """The stream, if this process reads it. Loader workers begin each pass with a fresh copy of it."""
        if not loader.num_workers:
            self._kept = Attributes({type(loader.dataset).__name__: loader.dataset}, skip_types=(nn.Module,), asks=False)
        self._begun: list[Any] = []
        """State of the stream at the beginning of this pass."""
        self.again: Any = None
        """The batch before this position, if it was made again."""
        self._pass = int(resume["pass"]) if resume else 0
        self._in_pass = int(resume["batches"]) if resume else 0
        if resume and resume["loader_workers"] != loader.num_workers:
            raise UserError(
                f"the checkpoint was made with num_workers={resume['loader_workers']} of the training data loader, now it is "
                f"{loader.num_workers}; a stream's order depends on it, so set it back."
            )
        made = self._kept.state(small=True) if resume and self._stateful and self._kept is not None else []
        if resume and self._kept is not None:
            self._kept.restore(resume.get("begun") or ())
        if resume and self._loaders is not None:
            self._loaders.restore(resume.get("loader_begun") or ())
        self._current = self._begin(resume["loader"] if resume and self._stateful else None)
        self._batches = self._begun_pass()
        if resume:
            self._go_on(resume, made)

    def _go_on(self, resume: dict[str, Any], made: list[Any]) -> None:
        """Goes to the place in the pass, where the stream's own state has not brought it there. `made`: what the constructor
        made of the stream."""
        others = self._others(resume.get("now")) if self._stateful else []
        if self._stateful and not others and not self._current.dataset.astray:
            return
        if self._stateful and self._loader.num_workers:
            return  # each worker reads its part again
        if self._stateful:
            assert self._kept is not None
            if others:
                print(READ_AGAIN.format(kind=type(self._loader.dataset).__name__, names=", ".join(others)), file=sys.stderr)
            self._kept.restore(made)
            self._kept.restore(resume.get("begun") or ())
            self._current = self._begin(None)
            self._batches = self._begun_pass()
        for batch in range(self._in_pass):
            self.again = self._make(batch)

    def _others(self, then: dict[str, str] | None) -> list[str]:
        """Attributes of the stream that its own state, which was loaded, has not brought to where they were. `then`: marks of
        them there."""
        now = self._now()
        if then is None or now is None:
            return []
        return sorted(name for name in then.keys() | now.keys() if then.get(name) != now.get(name))[:NAMES_SHOWN_MAX]

    def _now(self) -> dict[str, str] | None:
        """Marks of the attributes that differ from those that the constructor made, the same in each process; None for a stream
        that loader workers read, or a library's."""
        if self._kept is None or not self._stateful or not is_users(type(self._loader.dataset)):
            return None
        marks = ((name_of(path[1:]), mark_of_encoded(encoded, versions=False)) for path, encoded in self._kept.state())
        return {name.removeprefix("."): mark for name, mark in marks}

    def __iter__(self) -> StreamBatches:
        return self

    def __next__(self) -> Any:
        value = self._next()
        self._in_pass += 1
        return value

    def state(self) -> dict[str, Any]:
        """Position between two batches."""
        return {
            "pass": self._pass,
            "batches": self._in_pass,
            "loader_workers": self._loader.num_workers,
            "loader": self._current.state_dict() if self._stateful else None,
            "now": self._now(),
            "begun": self._begun,
            "loader_begun": self._loader_begun,
        }

    def _next(self) -> Any:
        """The next batch of this pass, or the first of the next one."""
        try:
            return self._make(self._in_pass)
        except StopIteration:
            if self._in_pass == 0:
                raise UserError("the training data's stream gave no batch.", at=type(self._loader.dataset)) from None
        self._pass, self._in_pass = self._pass + 1, 0
        self._current = self._begin(None)
        self._batches = self._begun_pass()
        return self._make(0)

    def _begun_pass(self) -> Iterator[Any]:
        current = self._current
        if not self._users:
            return iter(current)
        return UsersPass(self._loader, lambda: (getattr(made, "batch", made) for made in current))

    def _make(self, batch: int) -> Any:
        if self._loader.num_workers and not self._users:
            made = next(self._batches)
        else:
            with isolated_randomness(derive_seed(self._seed, "pass", self._pass, "batch", batch), cuda=self._users):
                made = next(self._batches)
        batch_made, self.records = made if isinstance(made, Counted) else (made, None)
        return batch_made

    def _begin(self, state: Any) -> Any:
        """A loader for this pass, at its beginning or at `state`."""
        if self._kept is not None:
            self._begun = self._kept.state()
        if self._loaders is not None:
            self._loader_begun = self._loaders.state()
        if callable(set_epoch := getattr(self._loader.dataset, "set_epoch", None)):
            set_epoch(self._pass)
        seed = derive_seed(self._seed, "pass", self._pass)
        with isolated_randomness(seed):
            current = stream_loader(self._loader, seed, self._stateful)
            if state is not None:
                current.load_state_dict(state)
        return current


def stream_loader(loader: DataLoader[Any], seed: int, stateful: bool = False) -> Any:
    """The user's loader again, with randomness as a function of `seed`. Its batches are `Counted`, unless the stream makes whole
    ones."""
    if not stateful:
        return DataLoader(_SeededStream(loader, seed), **_arguments(loader, seed))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="'set_vital' is deprecated")  # torchdata's own affair
        from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

        return StatefulDataLoader(_SeededStatefulStream(loader, seed), **_arguments(loader, seed))  # type: ignore[arg-type]


def _arguments(loader: DataLoader[Any], seed: int) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "collate_fn": loader.collate_fn if loader.batch_size is None else CountingCollate(loader.collate_fn),
        "num_workers": loader.num_workers,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": WorkerInit(loader.worker_init_fn),
        "multiprocessing_context": loader.multiprocessing_context,
        "prefetch_factor": loader.prefetch_factor,
        "generator": torch.Generator().manual_seed(derive_seed(seed, "workers")),
    }
