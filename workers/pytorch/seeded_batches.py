"""Batches made whole under randomness of their own, in loader workers or in the training process."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.utils.data import DataLoader, Dataset, get_worker_info

from tenuto.workers.pytorch.counting import Counted, records_among, records_at
from tenuto.workers.pytorch.distributed.shards import Sharded
from tenuto.workers.pytorch.seeds import derive_seed, isolated_randomness, seed_processor
from tenuto.workers.user_state.generators import own_generators, reseed


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


class PositionedDataset(Dataset[Any]):
    """Dataset that makes the whole batch of a key, under the key's own randomness. Runs in loader workers."""

    def __init__(self, loader: DataLoader[Any], seed: int, counts: bool = False) -> None:
        """`counts`: batches are `Counted`, except shares."""
        self._dataset, self._collate, self._counts = loader.dataset, loader.collate_fn, counts
        self._batched, self._seed = loader.batch_sampler is not None, seed
        self._generators: list[Any] | None = None

    @property
    def users(self) -> Any:
        """The user's data set."""
        return self._dataset

    def __getitem__(self, key: BatchKey) -> Any:
        if key.total is not None:
            return Sharded(self._make_share(key), key.records, key.total)
        made = self._make_whole(key)
        return made if self._counts else made.batch

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
            return self._make(key).batch
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

    def _make_whole(self, key: BatchKey) -> Counted:
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

    def _make(self, key: BatchKey) -> Counted:
        if not self._batched:
            return Counted(self._collate(self._dataset[key.indices]), records_at(key.indices))
        together = getattr(self._dataset, "__getitems__", None)
        items = together(key.indices) if together else [self._dataset[index] for index in key.indices]
        records = records_among(items) if isinstance(items, (list, tuple)) else len(key.indices)
        return Counted(self._collate(items), records)
