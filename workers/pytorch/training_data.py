"""Training data of a trial, from any position on: its state in a checkpoint, and a check that it is the same when resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.batch_marks import ANOTHER_BATCH, Seen
from tenuto.workers.pytorch.distributed.shards import Shard
from tenuto.workers.pytorch.orders import Orders
from tenuto.workers.pytorch.own_iteration import has_own_iteration
from tenuto.workers.pytorch.own_iteration_batches import UsersPasses
from tenuto.workers.pytorch.streams import StreamBatches, is_stateful

COPIES_HAVE_STATE = (
    "the training data set has a state_dict, but loader workers read it, each a copy, ahead of the training; set num_workers=0, "
    "or make its records depend on nothing but the index"
)


@dataclass(frozen=True)
class DataPosition:
    """Position of the data, beyond the number of batches."""

    stream: dict[str, Any] | None = None
    orders: list[Any] | None = None
    last_batch: str | None = None
    """Mark of the batch that was trained last."""
    dataset: dict[str, Any] | None = None
    """State of a dataset with an index, if the training process makes the batches."""


class TrainingData:
    def __init__(self, loader: DataLoader[Any], seed: int, note: Callable[[str], None]) -> None:
        """`note`: called once for each kind of state that a resumed trial does not restore."""
        self.loader, self._seed, self._note = loader, seed, note
        self.is_stream = data.is_stream(loader)
        self._orders = None if self.is_stream else Orders(loader, seed, note)
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
        again = last.last_batch is not None and self._orders is not None and steps is None and last.dataset is None
        again = again and not has_own_iteration(self.loader)  # it makes the batch again by itself
        batches = data.training_batches(
            self.loader, self._seed, position - again, last.stream, shard, steps, self._orders, self._note
        )
        made = next(batches) if again else getattr(batches, "again", None)
        if made is not None and last.last_batch is not None:
            self.seen.note(made)
            if self.seen.mark() != last.last_batch:
                self._note(ANOTHER_BATCH.format(batch=position - 1))
        if last.dataset is not None:
            self.loader.dataset.load_state_dict(last.dataset)  # type: ignore[attr-defined]
        self._batches = batches
        return batches

    def place(self, position: int) -> DataPosition:
        """Position of the data, for a checkpoint."""
        if self._batches is None:
            return self._resumed  # nothing was trained since
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
            return DataPosition(stream=begun, orders=orders, last_batch=self.seen.mark(), dataset=own)
        orders = self._orders.state(position, len(self.loader))
        return DataPosition(orders=orders, last_batch=self.seen.mark(), dataset=own)

    @property
    def records(self) -> int | None:
        """Records in the last batch, if they are known without looking into it."""
        return self._batches.records if isinstance(self._batches, StreamBatches) else None
