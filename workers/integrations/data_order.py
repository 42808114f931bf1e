"""Order of a trainer's training data, if the user's sampler or stream decides it; restored when a trial is resumed.

The trainers count the batches of an epoch and skip those that were trained. That is exact only if the epoch has the same order
again, which a sampler or a stream with a generator, or a count of passes, of its own does not have in a new process. So the
orders of the user's samplers are drawn as a Trial's are (`tenuto.workers.pytorch.orders`), streams begin each epoch with
generators seeded from (trial, epoch), and a checkpoint contains the other state of both. The user is told about state that cannot
be restored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler

from tenuto.workers.checkpoints.exactness import EXACTNESS_FILE
from tenuto.workers.core_api import Run
from tenuto.workers.core_api.session import say
from tenuto.workers.integrations import ranks
from tenuto.workers.pytorch import seeds
from tenuto.workers.pytorch.exactness import Exactness
from tenuto.workers.pytorch.orders import Orders
from tenuto.workers.user_state import values
from tenuto.workers.user_state.attributes import Attributes
from tenuto.workers.user_state.generators import is_users, own_generators, reseed

DATA_FILE = "tenuto_data.pt"
"""File in a checkpoint: a list, by rank, of the state of `DataOrder`."""
SEVERAL = "there are several training loaders, and those with samplers or streams of their own begin anew; give one loader"
NO_LENGTH = (
    "the sampler ({kind}) has no length, so its order cannot be drawn again; give it __len__, and an __iter__ that gives the "
    "records of each epoch anew"
)
DIVIDED = (
    "the trainer divides the order of the user's sampler ({kind}) among the ranks itself; give a sampler that does so, and set "
    "use_distributed_sampler=False"
)
PERSISTENT = (
    "persistent loader workers keep copies of the stream ({kind}), whose state no checkpoint has; set persistent_workers=False"
)
OWN_STATE = (
    "the stream ({kind}) has a state_dict and random generators of its own; a resumed trial draws what it drew only if its "
    "state_dict holds these generators"
)
OF_RECORDS = (
    "the data set, its transforms or collate_fn keep a random generator of their own, which a trial that is resumed within an "
    "epoch does not find where it was; draw from one that is seeded by the record's index"
)
OF_GLOBAL = (
    "the data set draws from the global random generators, which a trial resumed within an epoch does not find where they "
    "were: the trainer leaves out batches that were trained; draw from a generator that is seeded by the record's index"
)
OTHER_RANKS = "it was resumed on another number of slots, and the order of the interrupted epoch is another one"
NOT_KNOWN = "the checkpoint does not say how its sampler or stream had begun the epoch, which therefore begins anew"


class DataOrder:
    def __init__(self, run: Run, resumes: bool) -> None:
        """`resumes`: the trial goes on from a checkpoint of its own."""
        self._run, self._resumes = run, resumes
        self._seed = seeds.derive_seed(run.trial_seed, "trainer's data")
        tell: Callable[[str], None] = say if run.rank == 0 else _unsaid
        self.exactness = Exactness(False, torch.device("cpu"), tell)
        self._epoch: int | None = None
        self._loader: DataLoader[Any] | None = None
        self._orders: Orders | None = None
        self._kept: Attributes | None = None
        self._begun: list[Any] = []
        """State of the stream at the beginning of the epoch."""
        self._random: dict[str, Any] = {}
        """Global generators at that time: streams draw from them, too."""
        self._saved: dict[str, Any] = {}
        self.skip_in_order = 0
        """Batches at the beginning of an order that the trainer does not get."""

    def note(self, sentence: str) -> None:
        self.exactness.note_lost(sentence)

    def resume(self, directory: Path) -> None:
        """Loads the state, before the loader is attached."""
        with contextlib.suppress(FileNotFoundError):
            self.exactness.resume((directory / EXACTNESS_FILE).read_bytes())
        with contextlib.suppress(FileNotFoundError):
            found = torch.load(directory / DATA_FILE, weights_only=True)
            if len(found) == self._run.slots:
                self._saved = found[self._run.rank]
            else:
                self.note(OTHER_RANKS)

    finds_global_generators = False
    """True: in an interrupted epoch the trainer's loader restores the global generators."""

    def attach(self, loaders: Any, divided: Callable[[DataLoader[Any]], bool] = lambda _: False) -> Any:
        """Attaches to the trainer's training data, and returns the data for the trainer. `divided`: the trainer will make
        another loader of it."""
        several = list(each_loader(loaders))
        mine = [loader for loader in several if _users_stream(loader) is not None or _is_users_order(loader)]
        if mine and len(several) > 1:
            self.note(SEVERAL)
        for loader in several:
            if not isinstance(loader.dataset, IterableDataset) and own_generators(loader.dataset, loader.collate_fn):
                self.note(OF_RECORDS)
            if not self.finds_global_generators and _draws(loader.dataset):
                self.note(OF_GLOBAL)
        if not mine or len(several) > 1:
            return loaders
        [loader] = mine
        if (stream := _users_stream(loader)) is not None:
            self._attach_stream(loader, stream)
        else:
            self._attach_sampler(loader, divided(loader))
        if self._loader is not None and self._resumes and not self._saved:
            self.note(NOT_KNOWN)
        if self._epoch is not None:  # the trainer has the loader made when the epoch has begun
            epoch, self._epoch = self._epoch, None
            self.begin(epoch)
        return loaders

    def _attach_sampler(self, loader: DataLoader[Any], divided: bool) -> None:
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        sampler = getattr(loader, name)
        kind = type(next((part for part in _samplers(loader) if is_users(type(part))), sampler)).__name__
        if not _has_length(sampler) or divided:
            self.note((DIVIDED if divided else NO_LENGTH).format(kind=kind))
            return
        self._loader, self._orders = loader, Orders(loader, self._seed, self.note)
        self._orders.resume(self._saved.get("orders") or [])
        object.__setattr__(loader, name, _Drawn(sampler, self._draw))  # a DataLoader refuses what is set after its __init__

    def _attach_stream(self, loader: DataLoader[Any], stream: Any) -> None:
        self._loader, kind = loader, type(stream).__name__
        if loader.num_workers == 0:  # else each pass is read from copies
            self._kept = Attributes({kind: stream}, skip_types=(nn.Module,), asks=False)
        elif loader.persistent_workers:
            self.note(PERSISTENT.format(kind=kind))
        if callable(getattr(stream, "load_state_dict", None)) and own_generators(stream):
            self.note(OWN_STATE.format(kind=kind))

    def begin(self, epoch: int) -> None:
        """Begins an epoch, before the trainer asks the loader for its batches. The same epoch may begin again."""
        again, self._epoch = epoch == self._epoch, epoch
        if self._loader is None:
            return
        saved = self._saved if self._saved.get("epoch") in (epoch, epoch - 1) else {}
        self._saved = {}
        within = saved.get("epoch") == epoch
        if within:
            seeds.restore_random_state(saved["random"])
        self._random = seeds.random_state()
        if self._kept is not None:
            self._kept.restore(self._begun if again else saved.get("begun" if within else "now") or ())
            self._begun = self._kept.state(small=True)
        owners = (self._loader.generator,) if self._orders is not None else (self._loader.dataset, self._loader.collate_fn)
        for index, generator in enumerate(own_generators(*owners)):
            reseed(generator, seeds.derive_seed(self._seed, "own", epoch, index))

    def _draw(self) -> list[Any]:
        assert self._orders is not None
        assert self._epoch is not None
        return self._orders.draw(self._epoch)[self.skip_in_order :]

    def save(self, directory: Path) -> None:
        """Saves the state into a checkpoint. Every rank must call it."""
        if self._loader is not None and self._epoch is not None:
            state = {
                "epoch": self._epoch,
                "random": self._random,
                "orders": self._orders.state(self._epoch + 1, 1) if self._orders is not None else [],
                "begun": self._begun,
                "now": self._kept.state(small=True) if self._kept is not None else [],
            }
            states = ranks.of_all(self._run, state)
            if self._run.rank == 0:
                torch.save(states, directory / DATA_FILE)
        if self._run.rank == 0 and self.exactness.breaks:
            (directory / EXACTNESS_FILE).write_bytes(self.exactness.record())


class _Drawn(Sampler[Any]):
    """Replacement of a loader's sampler: its order is drawn completely when an epoch begins."""

    def __init__(self, sampler: Any, draw: Callable[[], list[Any]]) -> None:
        self._sampler, self._draw = sampler, draw

    def __iter__(self) -> Iterator[Any]:
        return iter(self._draw())

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        """Other attributes, such as `batch_size`, which the trainers read. The position in an epoch is no longer the
        sampler's."""
        if name.startswith("_") or name in ("state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self._sampler, name)


def each_loader(loaders: Any) -> Iterator[DataLoader[Any]]:
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, (list, tuple)):
        for loader in loaders:
            yield from each_loader(loader)
        return
    loader = getattr(loaders, "base_dataloader", loaders)  # which accelerate's loaders read
    if isinstance(loader, DataLoader):
        yield loader


def _users_stream(loader: DataLoader[Any]) -> Any:
    """The user's stream, even inside one of the trainer's own. None: there is none."""
    stream: Any = loader.dataset
    if not isinstance(stream, IterableDataset):
        return None
    for _ in range(8):
        if is_users(type(stream)):
            return stream
        stream = getattr(stream, "dataset", None)
    return None


def _samplers(loader: DataLoader[Any]) -> list[Any]:
    """Samplers of a loader, from the outermost inwards."""
    found: list[Any] = [loader.batch_sampler if loader.batch_sampler is not None else loader.sampler]
    for name in ("batch_sampler", "sampler") * 4:
        if (inner := getattr(found[-1], name, None)) is not None:
            found.append(inner)
    return found


def _is_users_order(loader: DataLoader[Any]) -> bool:
    """True if the user's code decides the order; false for samplers of libraries that save their own state, or follow from
    (seed, epoch)."""
    if isinstance(loader.dataset, IterableDataset):
        return False
    samplers = _samplers(loader)
    if any(is_users(type(part)) for part in samplers):
        return True
    known = any(hasattr(part, "state_dict") or hasattr(part, "set_epoch") for part in samplers)
    return not known and bool(own_generators(*samplers, skip=(loader.dataset,)))


def _draws(dataset: Any) -> bool:
    """True if a record of an indexed data set is made with numbers from Python's, NumPy's or torch's global generator."""
    if isinstance(dataset, IterableDataset):
        return False
    before = seeds.random_state(cuda=False)
    try:
        dataset[0]
    except Exception:  # training says it, if that is an error
        return False
    finally:
        after = seeds.random_state(cuda=False)
        seeds.restore_random_state(before)
    return values.mark(before, versions=False) != values.mark(after, versions=False)


def _has_length(sampler: Any) -> bool:
    try:
        len(sampler)
    except TypeError:
        return False
    return True


def _unsaid(_: str) -> None:
    """Ignores a sentence that rank 0 logs."""
