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
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from tenuto.workers.harness.errors import UserError
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded
from tenuto.workers.pytorch.orders import Orders, check_length
from tenuto.workers.pytorch.seeds import derive_seed, isolated_randomness, seed_processor
from tenuto.workers.pytorch.streams import StreamBatches, stream_loader
from tenuto.workers.user_state.generators import own_generators, reseed

Steps = Callable[[int], int] | None
"""Function from a position to the batches of the step that begins there."""


class BatchKey(NamedTuple):
    epoch: int
    batch: int
    """Number of the batch within its epoch."""
    indices: Any
    """Result of the user's sampler: a list of indices, or one index if automatic batching is off."""
    first: int = 0
    """Position in the batch of the first of `indices`, if they are a rank's share."""
    total: int | None = None
    """Records of the whole batch, if `indices` are a share."""
    records: int = 0
    """Records with weight: 0 if the share is empty."""
    places: tuple[tuple[int, int, int], ...] = ()
    """(epoch, batch, position in it) of each of `indices`, if a step trains several batches."""


class _PositionedDataset(Dataset[Any]):
    """Dataset that makes the whole batch of a key, under the key's own randomness. Runs in loader workers."""

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        self._dataset, self._collate = loader.dataset, loader.collate_fn
        self._batched, self._seed = loader.batch_sampler is not None, seed
        self._generators: list[Any] | None = None

    def __getitem__(self, key: BatchKey) -> Any:
        if key.total is not None:
            return Sharded(self._make_share(key), key.records, key.total)
        return self._make_whole(key)

    def _make_share(self, key: BatchKey) -> Any:
        """Makes each record under randomness of its own, so that it is the same however many ranks divide the batch."""
        seed = derive_seed(self._seed, "batch", key.epoch, key.batch)
        if get_worker_info() is not None:
            return self._make_records(key, seed)
        with isolated_randomness(seed):
            return self._make_records(key, seed)

    def _make_records(self, key: BatchKey, seed: int) -> Any:
        if getattr(self._dataset, "__getitems__", None) is not None:
            self._seed_all(derive_seed(seed, "from", key.first))
            return self._make(key)
        items = []
        for place, index in enumerate(key.indices):
            if key.places:
                epoch, batch, position = key.places[place]
                own = derive_seed(derive_seed(self._seed, "batch", epoch, batch), "record", position)
            else:
                own = derive_seed(seed, "record", key.first + place)
            self._seed_all(own)
            items.append(self._dataset[index])
        self._seed_all(derive_seed(seed, "from", key.first))
        return self._collate(items)

    def _seed_all(self, seed: int) -> None:
        if self._generators is None:
            self._generators = own_generators(self._dataset, self._collate)
        for index, generator in enumerate(self._generators):
            reseed(generator, derive_seed(seed, index))
        seed_processor(seed)

    def _make_whole(self, key: BatchKey) -> Any:
        seed = derive_seed(self._seed, "batch", key.epoch, key.batch)
        if self._generators is None:
            self._generators = own_generators(self._dataset, self._collate)
        for index, generator in enumerate(self._generators):
            reseed(generator, derive_seed(seed, index))
        if get_worker_info() is not None:
            seed_processor(seed)
            return self._make(key)
        with isolated_randomness(seed):
            return self._make(key)

    def _make(self, key: BatchKey) -> Any:
        if not self._batched:
            return self._collate(self._dataset[key.indices])
        together = getattr(self._dataset, "__getitems__", None)
        items = together(key.indices) if together else [self._dataset[index] for index in key.indices]
        return self._collate(items)


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
        self._epoch_batches = len(loader)
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


def training_batches(
    loader: DataLoader[Any],
    seed: int,
    start_batches: int,
    stream_state: dict[str, Any] | None = None,
    shard: Shard | None = None,
    steps: Steps = None,
    orders: Orders | None = None,
) -> Iterator[Any]:
    """Batches from position `start_batches` on, without end; those of a stream from `stream_state`. With `shard`: `Sharded`
    ones, or whole ones that are still to be cut; with `steps`, too: those of steps, except of a stream. `orders`: those of
    this loader, which hold its sampler's state. Raises UserError."""
    if is_stream(loader):
        return StreamBatches(loader, seed, stream_state)
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
    return iter(validation_loader(loader, seed))


def placed_validation_batches(
    loader: DataLoader[Any], seed: int, shard: Shard | None = None, orders: Orders | None = None
) -> Iterator[tuple[int, Any]]:
    """(position, batch); with `shard`: those of one rank. `orders`: passing the same object each time keeps the order the
    same, whatever the sampler remembers of earlier passes."""
    if shard is None:
        return enumerate(validation_loader(loader, seed, orders))
    if is_stream(loader):
        every = enumerate(validation_loader(loader, seed))
        return ((index, batch) for index, batch in every if index % shard.size == shard.rank)
    own = iter(_positioned(loader, seed, 0, endless=False, shard=shard, orders=orders))
    return ((shard.rank + shard.size * turn, batch) for turn, batch in enumerate(own))


def validation_loader(loader: DataLoader[Any], seed: int, orders: Orders | None = None) -> DataLoader[Any]:
    """The user's loader, with the same batches each time."""
    if is_stream(loader):
        return stream_loader(loader, seed)  # type: ignore[no-any-return]
    return _positioned(loader, seed, 0, endless=False, orders=orders)


def rounds_of_validation_batches(
    loader: DataLoader[Any], seed: int, shard: Shard, orders: Orders | None = None
) -> Iterator[tuple[int, Any]]:
    """The same number of batches for each rank: in the last round, ranks without a batch get one with position -1."""
    own: Any = None
    place = -1
    for place, batch in placed_validation_batches(loader, seed, orders=orders):
        # The first batch of a round also serves ranks without one of their own in the last round.
        if place % shard.size == 0 or place % shard.size == shard.rank:
            own = (place, batch)
        if place % shard.size == shard.size - 1:
            yield own
    if place % shard.size != shard.size - 1:
        yield own if own[0] % shard.size == shard.rank and own[0] // shard.size == place // shard.size else (-1, own[1])


def _positioned(
    loader: DataLoader[Any],
    seed: int,
    start_batches: int,
    endless: bool,
    shard: Shard | None = None,
    steps: Steps = None,
    orders: Orders | None = None,
) -> DataLoader[Any]:
    return DataLoader(
        _PositionedDataset(loader, seed),
        batch_size=None,
        sampler=_Keys(loader, seed, start_batches, endless, shard, steps, orders),  # type: ignore[arg-type]
        num_workers=loader.num_workers,
        collate_fn=_unchanged,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        generator=torch.Generator().manual_seed(derive_seed(seed, "workers")),  # else it draws from training's generator
    )


def _unchanged(batch: Any) -> Any:
    return batch
