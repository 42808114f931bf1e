"""Training batches by position. Batch `n` of a trial is the same whether training got there in one go or resumed just before.

Each kind of data finds a position in its own way:

- arrays and PyDatasets have an index: the order of an epoch is a function of (seed, epoch);
- a torch DataLoader uses the code of PyTorch trials (`tenuto.workers.pytorch.data`);
- a tf.data.Dataset saves its iterator, or reads an epoch again up to the position (`tf_data.py`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from tenuto.workers.errors import UserError
from tenuto.workers.harness.randomness import derive_seed
from tenuto.workers.keras.batches import Batches, BatchesPosition, RankShare
from tenuto.workers.keras.randomness import isolated_randomness
from tenuto.workers.user_state.generators import own_generators, reseed


def training_batches(
    data: Any,
    build: Any,
    *,
    seed: int,
    batch_size: int,
    shuffle: bool,
    epoch_batches: int | None,
    ranks: tuple[int, int] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Batches:
    """Training batches of the user's data. `build`: the user's function that made `data`. `ranks`: (this rank, number of
    ranks); data that can makes only its `RankShare`s. `note`: called with state that a resumed trial does not restore. Raises
    UserError for data without positions."""
    dataset = _tensorflow_dataset()
    if dataset is not None and isinstance(data, dataset):
        from tenuto.workers.keras.tf_data import DatasetBatches

        return DatasetBatches(data, build, seed, epoch_batches, note)
    if isinstance(data, keras.utils.PyDataset):
        return PyDatasetBatches(data, build, seed, shuffle, note)
    loader = getattr(getattr(sys.modules.get("torch"), "utils", None), "data", None)
    if loader is not None and isinstance(data, loader.DataLoader):
        return LoaderBatches(data, build, seed, epoch_batches, ranks, note)
    if isinstance(data, tuple) and 1 <= len(data) <= 3:
        return ArrayBatches(data, build, seed, batch_size, shuffle)
    raise UserError(
        f"{build.__name__} returned {type(data).__name__}, in which no place can be found again; return a tf.data.Dataset, a "
        "keras.utils.PyDataset, a torch DataLoader, or a tuple of arrays (x, y). A generator becomes a Dataset by "
        "tf.data.Dataset.from_generator.",
        at=build,
    )


def validation_batches(data: Any, build: Any, batch_size: int) -> Callable[[], Iterator[Any]]:
    """Function that yields all batches in order, from the start at each call."""
    if isinstance(data, tuple):
        arrays = ArrayBatches(data, build, 0, batch_size, shuffle=False)
    elif isinstance(data, keras.utils.PyDataset):
        return lambda: (data[index] for index in range(len(data)))
    else:
        return lambda: iter(data)

    def read() -> Iterator[Any]:
        arrays.seek(0, None)
        return (arrays.next_batch() for _ in range(arrays.epoch_batches))

    return read


def _tensorflow_dataset() -> Any:
    tensorflow = sys.modules.get("tensorflow")
    return None if tensorflow is None else tensorflow.data.Dataset


def epoch_order(seed: int, epoch: int, count: int, shuffle: bool) -> np.ndarray[Any, Any]:
    if not shuffle:
        return np.arange(count)
    return np.random.Generator(np.random.PCG64(derive_seed(seed, "order", epoch))).permutation(count)


class ArrayBatches(Batches):
    """`(x,)`, `(x, y)` or `(x, y, sample_weight)`, each an array or a structure of arrays with one first dimension."""

    def __init__(self, data: tuple[Any, ...], build: Any, seed: int, batch_size: int, shuffle: bool) -> None:
        self._arrays = keras.tree.map_structure(_array, tuple(part for part in data if part is not None))
        lengths = {len(array) for array in keras.tree.flatten(self._arrays)}
        if len(lengths) != 1 or 0 in lengths:
            raise UserError(
                f"{build.__name__} returned arrays of {', '.join(map(str, sorted(lengths))) or 'no'} records; they need the same "
                "number, and at least one.",
                at=build,
            )
        [self._records] = lengths
        self._seed, self._batch_size, self._shuffle = seed, batch_size, shuffle
        self.epoch_batches: int = -(-self._records // batch_size)
        self._batches, self._epoch = 0, -1

    def seek(self, batches: int, place: BatchesPosition | None) -> None:
        self._batches = batches

    def next_batch(self) -> Any:
        epoch, batch = divmod(self._batches, self.epoch_batches)
        if epoch != self._epoch:
            self._order, self._epoch = epoch_order(self._seed, epoch, self._records, self._shuffle), epoch
        chosen = self._order[batch * self._batch_size : (batch + 1) * self._batch_size]
        self._batches += 1
        return keras.tree.map_structure(lambda array: array[chosen], self._arrays)


def _array(value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return array.astype(keras.config.floatx()) if array.dtype == np.float64 else array


class PyDatasetBatches(Batches):
    """Batches of a PyDataset. Each is made under randomness of its own if one thread makes them (`workers=1`)."""

    def __init__(self, data: Any, build: Any, seed: int, shuffle: bool, note: Callable[[str], None] = lambda _: None) -> None:
        try:
            self.epoch_batches: int = len(data)
        except TypeError:
            self.epoch_batches = 0
        if self.epoch_batches < 1:
            raise UserError(f"{build.__name__} returned a PyDataset whose length is not known, or is 0.", at=build)
        self.data = self._data = data
        self._seed, self._shuffle = seed, shuffle
        self._batches = self._asked = self._epochs_ended = 0
        self._threads = ThreadPoolExecutor(data.workers, "tenuto-data") if data.workers > 1 else None
        self._ahead: deque[Future[Any]] = deque()
        self._generators = own_generators(data)
        if self._generators and self._threads is not None:
            note(
                f"{type(data).__name__} draws from a generator of its own in {data.workers} threads at once, so which batch gets "
                "which numbers is a matter of chance; set workers=1, or draw from a generator that is seeded by the index"
            )

    def seek(self, batches: int, place: BatchesPosition | None) -> None:
        self._batches = self._asked = batches

    def next_batch(self) -> Any:
        if self._threads is None:
            batch = self._make(self._batches)
        else:
            self._ask_ahead(self._threads)
            batch = self._ahead.popleft().result()
        self._batches += 1
        return batch

    def _ask_ahead(self, threads: ThreadPoolExecutor) -> None:
        """Requests batches ahead, up to the end of the epoch: the dataset may change its batches at that end."""
        if self._asked < self._batches or not self._ahead:
            self._asked = self._batches
        end = (self._batches // self.epoch_batches + 1) * self.epoch_batches
        while self._asked < end and len(self._ahead) < max(1, self._data.max_queue_size):
            self._end_epochs(self._asked // self.epoch_batches)
            self._ahead.append(threads.submit(self._data.__getitem__, self._index(self._asked)))
            self._asked += 1

    def _make(self, number: int) -> Any:
        epoch = number // self.epoch_batches
        self._end_epochs(epoch)
        seed = derive_seed(self._seed, "batch", epoch, number % self.epoch_batches)
        self._reseed(seed)
        with isolated_randomness(seed):
            return self._data[self._index(number)]

    def _index(self, number: int) -> int:
        epoch, batch = divmod(number, self.epoch_batches)
        return int(epoch_order(self._seed, epoch, self.epoch_batches, self._shuffle)[batch])

    def _end_epochs(self, epoch: int) -> None:
        """Repeats the ends of epochs: a dataset may change at each, so a resumed trial must go through the same ones."""
        while self._epochs_ended < epoch:
            seed = derive_seed(self._seed, "epoch end", self._epochs_ended)
            self._reseed(seed)
            with isolated_randomness(seed):
                self._data.on_epoch_end()
            self._epochs_ended += 1

    def own_generators(self) -> list[Any]:
        return self._generators

    def _reseed(self, seed: int) -> None:
        """Seeds generators that the dataset itself holds."""
        for index, generator in enumerate(self._generators):
            reseed(generator, derive_seed(seed, index))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class LoaderBatches(Batches):
    """Batches of a torch DataLoader."""

    def __init__(
        self,
        loader: Any,
        build: Any,
        seed: int,
        epoch_batches: int | None,
        ranks: tuple[int, int] | None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        from tenuto.workers.pytorch import data
        from tenuto.workers.pytorch.distributed.shards import Shard
        from tenuto.workers.pytorch.training_data import TrainingData

        self.data = loader
        self._shard = None if ranks is None else Shard(*ranks)
        self._data = TrainingData(data.check_loader(loader, build.__name__, build), seed, note)
        self.epoch_batches = epoch_batches or data.epoch_batches(loader)
        self._iterator: Iterator[Any] | None = None
        self._given = 0
        """Batches since the trial began."""

    def seek(self, batches: int, place: BatchesPosition | None) -> None:
        from tenuto.workers.pytorch import training_data

        self._given = batches
        if place is not None:
            values = dict(place.values)
            if self._shard is not None:
                values["last_batch"] = None  # it is that of rank 0
            self._data.resume(training_data.DataPosition(**values))
        self._iterator = self._data.begin(batches, self._shard)

    def next_batch(self) -> Any:
        from tenuto.workers.pytorch.distributed.shards import Sharded

        assert self._iterator is not None
        batch = next(self._iterator)
        self._data.seen.note(batch)
        self._given += 1
        return RankShare(*batch) if isinstance(batch, Sharded) else batch

    def place(self) -> BatchesPosition:
        return BatchesPosition(dict(vars(self._data.place(self._given))))

    def close(self) -> None:
        self._iterator = None
