"""Training data of Lightning's Trainer, pass by pass: a resumed trial goes on with the batch that follows the trained ones.

Lightning may ask the loader for a new pass at any time: resumed at the end of an epoch it counts one that has no batches. So
passes are counted here, by their trained batches. A pass begins, under the seeds of (trial, epoch), when its first batch is
requested; the one that is resumed skips the trained batches. A loader that saves its own position (torchdata's
`StatefulDataLoader`) goes on from that.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from tenuto.workers.core_api import Run
from tenuto.workers.integrations.data_order import DataOrder, each_loader
from tenuto.workers.pytorch import seeds

EPOCH, TRAINED, AHEAD = "epoch", "trained_of_epoch", "made_ahead"
"""Keys of a checkpoint's metadata: the epoch in which the trial goes on, the number of its trained batches, and the number of
further batches that had been made by then."""
NO_PLACE = (
    "Lightning begins the data of an epoch that is interrupted anew, so some batches are trained twice and others not; give it "
    "one DataLoader, and with several ranks a sampler that divides the records and use_distributed_sampler=False"
)
PERSISTENT_WORKERS = (
    "persistent loader workers go on with their random numbers from epoch to epoch, which a new process does not, so records "
    "that are drawn or changed at random come out otherwise; set persistent_workers=False"
)


class Passes(DataOrder):
    finds_global_generators = True

    def __init__(self, run: Run, resumes: bool) -> None:
        super().__init__(run, resumes)
        self.epoch = self.trained = 0
        """The current epoch, and the number of its trained batches."""
        self._given = 0
        self._followed: DataLoader[Any] | None = None
        self._first: tuple[int, int, int] | None = None
        """(epoch, trained, made ahead), from which a resumed trial goes on, until it has trained a batch."""
        self._generators: dict[str, Any] | None = None
        self._is_stateful = self._divided = False

    def go_on(self, metadata: Mapping[str, Any], generators: dict[str, Any] | None) -> None:
        """Sets the position. `generators`: their states at that time; None: this rank is new."""
        self._first = (int(metadata.get(EPOCH, 0)), int(metadata.get(TRAINED, 0)), int(metadata.get(AHEAD, 0)))
        self.epoch, self.trained, _ = self._first
        self._generators = generators

    def seed(self, epoch: int) -> None:
        """Seeds the generators, the same on all ranks: loaders shuffle by them."""
        seeds.seed_everything(seeds.derive_seed(self._run.trial_seed, "lightning epoch", epoch))

    @property
    def rank(self) -> int:
        return self._run.rank

    def begin_batch(self) -> None:
        """Called before a batch is trained."""
        if self._followed is None and self.trained and self._generators is not None:
            seeds.restore_random_state(self._generators)
        if self.trained == 0 and self.rank > 0:  # the order of the data is drawn; dropout is each rank's own
            seeds.seed_everything(seeds.derive_seed(self._run.trial_seed, "lightning epoch", self.epoch, self.rank))

    def note_trained(self) -> None:
        self.trained += 1
        self._first = self._generators = None

    def end_epoch(self) -> None:
        """Called at the end of an epoch of Lightning's, which may have had no batches."""
        epoch = self._first[0] if self._first is not None else self.epoch + (self.trained > 0)
        if self._followed is None:  # else a pass begins by itself
            self.epoch, self.trained = epoch, 0
        self.seed(epoch)

    def attach(self, loaders: Any, divided: Callable[[DataLoader[Any]], bool] = lambda _: False) -> Any:
        super().attach(loaders, divided)
        several = list(each_loader(loaders))
        self._divided = any(map(divided, several))
        if len(several) == 1 and (several[0] is loaders or loaders == several) and not self._divided:
            self._follow(several[0])
        return loaders

    def _follow(self, loader: DataLoader[Any]) -> None:
        self._followed, self._is_stateful = loader, hasattr(loader, "state_dict")
        is_stream = isinstance(loader.dataset, IterableDataset)
        if self._loader is None and not is_stream and not self._is_stateful:
            self._attach_sampler(loader, False)
        if loader.persistent_workers and not is_stream:
            self.note(PERSISTENT_WORKERS)
        kind, passes = type(loader), self

        class Followed(kind):  # type: ignore[misc, valid-type]
            def __iter__(self) -> Iterator[Any]:
                return passes.read(super().__iter__)

        Followed.__name__, Followed.__qualname__, Followed.__module__ = kind.__name__, kind.__qualname__, kind.__module__
        loader.__class__ = Followed

    def read(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """One pass, which begins with its first batch. `make`: makes the loader's own iterator."""
        epoch, trained, ahead = self._first or (self.epoch + (self.trained > 0), 0, 0)
        self.epoch, self.trained, self._given = epoch, trained, trained
        self.seed(epoch)
        self.set_epoch(self._followed, epoch)
        generators = self._generators if trained else None
        left_out = 0 if self._is_stateful else trained
        assert self._followed is not None
        self.skip_in_order = left_out if self._orders is not None and self._followed.num_workers == 0 else 0
        self.begin(epoch)
        batches = make()
        if self._first is not None and self._is_stateful and not trained:
            batches = self._past_the_end(batches, make)
        for _ in range(left_out - self.skip_in_order):  # loader workers draw at random what they draw for each
            next(batches, None)
        for count in itertools.count():
            if count == ahead and generators is not None:
                seeds.restore_random_state(generators)
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._given += 1
            before = seeds.random_state() if self._first is not None else None
            yield batch
            if before is not None and self._first is not None:  # Lightning may validate before the first step of a resumed trial
                seeds.restore_random_state(before)

    def _past_the_end(self, batches: Iterator[Any], make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Batches of a new pass. `batches`: of a loader that may still be at the end of the pass before, as it was saved."""
        for first in batches:
            return itertools.chain((first,), batches)
        self.seed(self.epoch)
        return make()

    @staticmethod
    def set_epoch(loaders: Any, epoch: int) -> None:
        """Ignores Lightning's own count of epochs, which it passes to samplers only after it has made the first iterators."""
        for loader in each_loader(loaders):
            for sampler in (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
                if callable(tell := getattr(sampler, "set_epoch", None)):
                    tell(epoch)

    @property
    def next_epoch(self) -> int:
        """Epoch that follows, between two epochs."""
        return self.epoch + (self.trained > 0)

    def metadata(self, loaders: Any, over: bool) -> dict[str, int]:
        """Metadata for a checkpoint. `over`: it is made between two epochs. `loaders`: the loaders that Lightning reads."""
        if over:
            return {EPOCH: self.next_epoch, TRAINED: 0, AHEAD: 0}
        found = loaders if isinstance(loaders, (list, tuple)) else [loaders]
        if self._followed is None and (self._divided or not all(hasattr(loader, "state_dict") for loader in found)):
            self.note(NO_PLACE)
        return {EPOCH: self.epoch, TRAINED: self.trained, AHEAD: max(0, self._given - self.trained)}


def attach(passes: Passes, trainer: Trainer, module: LightningModule, data: dict[str, Any]) -> None:
    """Attaches to the given loaders, or as soon as Lightning has the module or data module make them."""
    connector = getattr(trainer, "_accelerator_connector", None)

    def divided(loader: DataLoader[Any]) -> bool:
        shared = trainer.world_size > 1 and getattr(connector, "use_distributed_sampler", True)
        return bool(shared and not isinstance(loader.sampler, DistributedSampler))

    given = data.get("train_dataloaders")
    if given is not None and not isinstance(given, LightningDataModule):
        passes.attach(given, divided)
        return
    owner: Any = given or data.get("datamodule") or module
    make = owner.train_dataloader

    @functools.wraps(make)
    def train_dataloader(*arguments: Any) -> Any:
        return passes.attach(make(*arguments), divided)

    owner.train_dataloader = train_dataloader
