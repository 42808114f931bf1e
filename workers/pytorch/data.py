"""Batches by position. Batch `n` of a trial is the same whether training got there in one go or resumed just before, and whether
0 or 20 loader workers made it.

The order of an epoch is a function of (seed, epoch). Random operations that make a batch (augmentation, collation) draw from
generators seeded by (seed, epoch, batch). Loader workers live through the whole training, across epochs.

torchdata's StatefulDataLoader, the library for this, is not used here: tried with 0.11 on torch 2.13, shuffled and resumed in the
middle of an epoch, it gives the same records in the same order, with 0 and 2 workers, but another augmentation (loader workers
are seeded anew, and without workers the generators are the training's own), it must keep the number of workers, and it restores
its position by stepping through the sampler. Streams, which have no index, do use it: see `streams.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.counting import Counted
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded
from tenuto.workers.pytorch.orders import Orders, check_length
from tenuto.workers.pytorch.own_iteration import UsersPass, WorkerInit, fed, has_own_iteration
from tenuto.workers.pytorch.own_iteration_batches import UsersPasses
from tenuto.workers.pytorch.seeded_batches import BatchKey, PositionedDataset
from tenuto.workers.pytorch.seeds import derive_seed
from tenuto.workers.pytorch.streams import StreamBatches, stream_loader

Steps = Callable[[int], int] | None
"""Function from a position to the batches of the step that begins there."""


class Placed(NamedTuple):
    """A validation batch."""

    place: int
    """Position in the validation set; -1: evaluated only because other ranks have one."""
    batch: Any
    records: int | None
    """None: not known."""


class _Keys:
    """Keys from a position on: to the end of its epoch, or without end."""

    def __init__(
        self,
        loader: DataLoader[Any],
        seed: int,
        start_batches: int,
        endless: bool,
        shard: Shard | None = None,
        steps: Steps = None,
        orders: Orders | None = None,
    ) -> None:
        """`shard`: yields its share of each training batch; of validation batches, every so many-th. `steps`: yields its share
        of each step, which may train several batches."""
        self._loader, self._seed, self._start, self._endless = loader, seed, start_batches, endless
        self._shard, self._steps = shard, steps
        self._epoch_batches = sampled_batches(loader)
        self._orders = orders or Orders(loader, seed)

    def __iter__(self) -> Iterator[BatchKey]:
        if self._steps is None:
            yield from self._batches()
            return
        batches, position = self._batches(), self._start
        while True:
            count = self._steps(position)
            yield self._share_of_step([next(batches) for _ in range(count)])
            position += count

    def _batches(self) -> Iterator[BatchKey]:
        epoch, first = divmod(self._start, self._epoch_batches)
        while True:
            order = self._orders.draw(epoch)
            if len(order) != self._epoch_batches:
                raise UserError(
                    f"the sampler gave {len(order)} batches in epoch {epoch}, but its length is {self._epoch_batches}; "
                    "both must be equal, and equal in every epoch."
                )
            for batch in range(first, len(order)):
                if self._shard is None or self._steps is not None:
                    yield BatchKey(epoch, batch, order[batch])
                elif not self._endless:
                    if batch % self._shard.size == self._shard.rank:
                        yield BatchKey(epoch, batch, order[batch])
                else:
                    yield self._share(BatchKey(epoch, batch, order[batch]))
            if not self._endless:
                return
            epoch, first = epoch + 1, 0

    def _share_of_step(self, keys: list[BatchKey]) -> BatchKey:
        """Share of the records of several batches, divided as if they were one."""
        assert self._shard is not None
        indices = [index for key in keys for index in key.indices]
        places = tuple((key.epoch, key.batch, position) for key in keys for position in range(len(key.indices)))
        low, high = self._shard.bounds(len(indices))
        records = high - low
        if records == 0:
            low, high = 0, len(indices)
        return keys[0]._replace(
            indices=indices[low:high], first=low, total=len(indices), records=records, places=places[low:high]
        )

    def _share(self, key: BatchKey) -> BatchKey:
        assert self._shard is not None
        if self._loader.batch_sampler is None:
            return key  # the dataset makes whole batches: they are cut later
        indices = list(key.indices)
        low, high = self._shard.bounds(len(indices))
        if low == high:
            return key._replace(indices=indices, first=0, total=len(indices), records=0)
        return key._replace(indices=indices[low:high], first=low, total=len(indices), records=high - low)


def check_loader(loader: Any, where: str, at: Any = None) -> DataLoader[Any]:
    """The loader. Raises UserError if its batches have no positions. `at`: the user's function."""
    if not isinstance(loader, DataLoader):
        raise UserError(
            f"{where} returned {type(loader).__name__}; it must return a tenuto.pytorch.DataLoader (torch's own).", at=at
        )
    if not is_stream(loader):
        check_length(loader, where, at)
    if epoch_batches(loader) == 0:
        raise UserError(
            f"{where} returned a loader without batches: the dataset is empty, or smaller than a batch with drop_last.", at=at
        )
    return loader


def is_stream(loader: DataLoader[Any]) -> bool:
    return isinstance(loader.dataset, IterableDataset)


def epoch_batches(loader: DataLoader[Any]) -> int | None:
    """Batches of an epoch; None for a stream without a length."""
    try:
        return len(loader)
    except TypeError:
        if is_stream(loader):
            return None
        raise


def sampled_batches(loader: DataLoader[Any]) -> int:
    """Batches of an epoch that the sampler gives. A loader with an iteration of its own may make others of them."""
    return DataLoader.__len__(loader) if has_own_iteration(loader) else len(loader)


def training_batches(
    loader: DataLoader[Any],
    seed: int,
    start_batches: int,
    stream_state: dict[str, Any] | None = None,
    shard: Shard | None = None,
    steps: Steps = None,
    orders: Orders | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[Any]:
    """Batches from position `start_batches` on, without end; those of a stream from `stream_state`. With `shard`: `Sharded`
    ones, or whole ones that are still to be cut; with `steps`, too: those of steps, except of a stream. `orders`: those of
    this loader, which hold its sampler's state. `note`: called if the batches cannot be made again. Raises UserError."""
    if is_stream(loader):
        return StreamBatches(loader, seed, stream_state)
    if has_own_iteration(loader):
        if steps is not None:
            raise UserError(
                "distributed.global_batch_size: scale puts batches together, but "
                f"{type(loader).__name__} makes its own of torch's: derive it from torch's DataLoader without an __iter__ of its "
                "own, or leave global_batch_size out."
            )

        def sampled(start: int) -> Iterator[Any]:
            return iter(_positioned(loader, seed, start, endless=True, orders=orders))

        return UsersPasses(loader, seed, sampled, sampled_batches(loader), start_batches, stream_state, note)
    if steps is not None and loader.batch_sampler is None:
        raise UserError(
            "distributed.global_batch_size: scale puts batches together, but the training dataset makes whole batches itself "
            "(DataLoader with batch_size=None); give the DataLoader a batch_size."
        )
    return iter(_positioned(loader, seed, start_batches, endless=True, shard=shard, steps=steps, orders=orders))


def share_of_stream(batches: list[Any], lengths: list[int], shard: Shard) -> Sharded:
    """Share of a step's batches of a stream: each rank takes one. A rank without one takes the last, with weight 0."""
    total = sum(lengths)
    if shard.rank < len(batches):
        return Sharded(batches[shard.rank], lengths[shard.rank], total)
    return Sharded(batches[-1], 0, total)


def validation_batches(loader: DataLoader[Any], seed: int) -> Iterator[Any]:
    """Batches of the whole set, once; the same each time."""
    return (placed.batch for placed in placed_validation_batches(loader, seed))


def placed_validation_batches(
    loader: DataLoader[Any], seed: int, shard: Shard | None = None, orders: Orders | None = None
) -> Iterator[Placed]:
    """Batches of the validation data with their places. `shard`: only those of one rank. `orders`: passing the same object each
    time keeps the order the same, whatever the sampler remembers of earlier passes."""
    if has_own_iteration(loader):
        every = _users_validation_batches(loader, seed, orders)
    elif shard is None or is_stream(loader):
        every = (Placed(index, *counted) for index, counted in enumerate(_counted(loader, seed, orders)))
    else:
        own = iter(_positioned(loader, seed, 0, endless=False, shard=shard, orders=orders, counts=True))
        return (Placed(shard.rank + shard.size * turn, *counted) for turn, counted in enumerate(own))
    if shard is None:
        return every
    return (placed for placed in every if placed.place % shard.size == shard.rank)


def _counted(loader: DataLoader[Any], seed: int, orders: Orders | None) -> Iterator[Counted]:
    if not is_stream(loader):
        return iter(_positioned(loader, seed, 0, endless=False, orders=orders, counts=True))
    made = iter(stream_loader(loader, seed))
    return made if loader.batch_size is not None else (Counted(batch, None) for batch in made)


def _users_validation_batches(loader: DataLoader[Any], seed: int, orders: Orders | None) -> Iterator[Placed]:
    counts: list[int | None] = []

    def begin() -> Iterator[Any]:
        for counted in _counted(loader, seed, orders):
            counts.append(counted.records)
            yield counted.batch

    one_each = not is_stream(loader) and len(loader) == sampled_batches(loader)
    for place, batch in enumerate(UsersPass(loader, begin)):
        yield Placed(place, batch, counts[place] if one_each and place < len(counts) else None)


def fed_validation_loader(loader: DataLoader[Any], seed: int, orders: Orders | None = None) -> AbstractContextManager[None]:
    """Context in which the user's loader gives the same batches each time."""
    return fed(loader, lambda: (counted.batch for counted in _counted(loader, seed, orders)))


def rounds_of_validation_batches(
    loader: DataLoader[Any], seed: int, shard: Shard, orders: Orders | None = None
) -> Iterator[Placed]:
    """The same number of batches for each rank: in the last round, ranks without a batch get one with position -1."""
    own: Any = None
    place = -1
    for placed in placed_validation_batches(loader, seed, orders=orders):
        place = placed.place
        # The first batch of a round also serves ranks without one of their own in the last round.
        if place % shard.size == 0 or place % shard.size == shard.rank:
            own = placed
        if place % shard.size == shard.size - 1:
            yield own
    if place % shard.size != shard.size - 1:
        is_own = own.place % shard.size == shard.rank and own.place // shard.size == place // shard.size
        yield own if is_own else own._replace(place=-1)


def _positioned(
    loader: DataLoader[Any],
    seed: int,
    start_batches: int,
    endless: bool,
    shard: Shard | None = None,
    steps: Steps = None,
    orders: Orders | None = None,
    counts: bool = False,
) -> DataLoader[Any]:
    return DataLoader(
        PositionedDataset(loader, seed, counts),
        batch_size=None,
        sampler=_Keys(loader, seed, start_batches, endless, shard, steps, orders),  # type: ignore[arg-type]
        num_workers=loader.num_workers,
        collate_fn=_unchanged,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=WorkerInit(loader.worker_init_fn),
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        generator=torch.Generator().manual_seed(derive_seed(seed, "workers")),  # else it draws from training's generator
    )


def _unchanged(batch: Any) -> Any:
    return batch
