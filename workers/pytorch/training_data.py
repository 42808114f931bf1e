"""Training data of a trial, from any position on: its state in a checkpoint, and a check that it is the same when resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.batch_marks import ANOTHER_BATCH, Seen
from tenuto.workers.pytorch.data_settings import DataSettings, Path, scalars
from tenuto.workers.pytorch.distributed.shards import Shard
from tenuto.workers.pytorch.orders import Orders
from tenuto.workers.pytorch.own_iteration import has_own_iteration
from tenuto.workers.pytorch.own_iteration_batches import UsersPasses
from tenuto.workers.pytorch.streams import StreamBatches, is_stateful

COPIES_HAVE_STATE = (
    "the training data set has a state_dict, but loader workers read it, each a copy, ahead of the training; set num_workers=0, "
    "or make its records depend on nothing but the index"
)
NOT_KEPT = (
    "training changes {names} of the data set (or of what it holds), which a resumed trial begins without; a checkpoint holds "
    "numbers, strings and None: set one of these, and let the data set follow it"
)
STREAM_SET = (
    "training changes {names} of a stream that loader workers read, which a resumed trial begins without; set num_workers=0, or "
    "give it in the stream's state_dict"
)
NAMES_SHOWN_MAX = 4
LOOKS = 4
"""First batches of a process before which settings are looked at. If they change meanwhile they are looked at before each batch,
else at checkpoints only: that takes some 10 us or more."""


@dataclass(frozen=True)
class DataPosition:
    """Position of the data, beyond the number of batches."""

    stream: dict[str, Any] | None = None
    orders: list[Any] | None = None
    last_batch: str | None = None
    """Mark of the batch that was trained last."""
    dataset: dict[str, Any] | None = None
    """State of a dataset with an index, if the training process makes the batches."""
    settings: dict[str, Any] | None = None
    """Settings of the data (`DataSettings.state`): `begun`, when the epoch began; `last`, before the last batch was made, if the
    training process makes the batches; `now`."""


class TrainingData:
    def __init__(
        self, loader: DataLoader[Any], seed: int, note: Callable[[str], None], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """`note`: called once for each kind of state that a resumed trial does not restore. `tell`: called with what does not
        break exactness, each time."""
        self.loader, self._seed, self._note = loader, seed, note
        self.is_stream = data.is_stream(loader)
        self._orders = None if self.is_stream else Orders(loader, seed, note, tell)
        self._settings = DataSettings(loader)
        self._given = self._settings.now()
        """Settings when the epoch began, or when loader workers were started."""
        self._last: dict[Path, Any] | None = None
        """Settings before the last batch was made; None: not looked at, as nothing has changed within an epoch so far."""
        self._resumed = DataPosition()
        self._batches: Iterator[Any] | None = None
        self.seen = Seen()

    def resume(self, place: DataPosition) -> None:
        """Makes `begin` go on from there."""
        self._resumed, self._batches = place, None
        if self._orders is not None:
            self._orders.resume(place.orders or [])

    def begin(self, position: int, shard: Shard | None, steps: data.Steps = None) -> Iterator[Any]:
        """Batches from a position on. After loading a checkpoint, the batch before it is made once more, to check that it is
        the trained one."""
        last, self._resumed = self._resumed, DataPosition()
        if last.settings is not None:
            self._settings.put(last.settings["begun"])
            self._given = self._settings.now()
        again = last.last_batch is not None and self._orders is not None and steps is None and last.dataset is None
        again = again and not has_own_iteration(self.loader)  # it makes the batch again by itself
        batches = data.training_batches(
            self.loader, self._seed, position - again, last.stream, shard, steps, self._orders, self._note
        )
        if last.settings is not None and not self.loader.num_workers and again:
            self._settings.put(last.settings["last"])
        made = next(batches) if again else getattr(batches, "again", None)
        if made is not None and last.last_batch is not None:
            self.seen.note(made)
            if self.seen.mark() != last.last_batch:
                self._note(ANOTHER_BATCH.format(batch=position - 1))
        if last.settings is not None:
            self._settings.put(last.settings["now"])
        if last.dataset is not None:
            self.loader.dataset.load_state_dict(last.dataset)  # type: ignore[attr-defined]
        self._batches = batches
        return batches if self.loader.num_workers or self.is_stream else self._made_here(batches)

    def _made_here(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, which this process makes: each as it is asked for."""
        first = self._settings.now()
        for _ in range(LOOKS):
            self._last = self._settings.now()
            yield next(batches)
        if scalars(self._settings.now()) == scalars(first):
            self._last = None
        while True:
            if self._last is not None:
                self._last = self._settings.now()
            yield next(batches)

    def begins_epoch(self, epoch: int) -> bool:
        """Called when an epoch begins. True if batches that were made ahead are not those that training wants by now: it has
        changed the sampler, or settings of the data that loader workers have as they were, and `begin` has to be called again."""
        if self.is_stream:
            return False
        assert self._orders is not None
        renewed = self._orders.renew(epoch)
        now = self._settings.now()
        if now == self._given or (self.loader.num_workers and self.loader.persistent_workers):
            return renewed  # as with torch's own loader, whose workers are then never started again
        self._given = now
        return renewed or self.loader.num_workers > 0

    def _settings_now(self) -> dict[str, Any]:
        """Settings for a checkpoint."""
        now, workers = self._settings.now(), self.loader.num_workers > 0
        state = self._settings.state(now)
        names = self._settings.others(now) if workers else []  # else making batches may have changed them
        if names and not self.is_stream:
            self._note(NOT_KEPT.format(names=", ".join(names[:NAMES_SHOWN_MAX])))
        if workers and self.is_stream and (names := [*names, *(str(path[-1]) for path, _ in state)]):
            self._note(STREAM_SET.format(names=", ".join(names[:NAMES_SHOWN_MAX])))
        last = self._given if self._last is None else self._last
        if not workers and self._last is None and scalars(now) != scalars(self._given):
            self._last = now  # from here on it is looked at
        return {"begun": self._settings.state(self._given), "last": self._settings.state(last), "now": state}

    def place(self, position: int) -> DataPosition:
        """Position of the data, for a checkpoint."""
        if self._batches is None:
            return self._resumed  # nothing was trained since
        settings = self._settings_now()
        if isinstance(self._batches, StreamBatches):
            return DataPosition(stream=self._batches.state(), last_batch=self.seen.mark())
        assert self._orders is not None
        dataset: Any = self.loader.dataset
        own = dataset.state_dict() if is_stateful(dataset) and not self.loader.num_workers else None
        if is_stateful(dataset) and self.loader.num_workers:
            self._note(COPIES_HAVE_STATE)
        if isinstance(self._batches, UsersPasses):
            begun, position = self._batches.state(), self._batches.sampled_position
            orders = self._orders.state(position, data.sampled_batches(self.loader))
            return DataPosition(stream=begun, orders=orders, last_batch=self.seen.mark(), dataset=own, settings=settings)
        orders = self._orders.state(position, len(self.loader))
        return DataPosition(orders=orders, last_batch=self.seen.mark(), dataset=own, settings=settings)

    @property
    def records(self) -> int | None:
        """Records in the last batch, if they are known without looking into it."""
        return self._batches.records if isinstance(self._batches, StreamBatches) else None
