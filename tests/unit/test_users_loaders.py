"""The user's own data set and loader are where the user's code looks for them, and in use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, get_worker_info

from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded
from tenuto.workers.pytorch.per_slot import with_whole_batches
from tenuto.workers.pytorch.streams import StreamBatches
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import BATCH, EPOCH_BATCHES, INFO, RECORDS, Records, Small, assert_same, never, trained

SEED = 5


class Range(IterableDataset[torch.Tensor]):
    """The stream of torch's manual: `worker_init_fn` gives each copy a part of it."""

    def __init__(self) -> None:
        self.start, self.end = 0, RECORDS

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        assert info is None or info.dataset is self
        yield from (torch.tensor([float(index)]) for index in range(self.start, self.end))


class StatefulRange(Range):
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def share(worker: int) -> None:
    info: Any = get_worker_info()
    each = RECORDS // info.num_workers
    info.dataset.start, info.dataset.end = worker * each, (worker + 1) * each


@pytest.mark.parametrize("kind", [Range, StatefulRange])
def test_a_stream_is_shared_among_loader_workers_as_torchs_manual_says(kind: type[Range]) -> None:
    loader = DataLoader(kind(), batch_size=BATCH, num_workers=2, worker_init_fn=share)
    batches = list(islice(StreamBatches(loader, SEED), 6))  # workers of 11 records: three batches each
    assert sorted(int(record) for batch in batches for record in batch) == list(range(RECORDS))
    batches = list(data.validation_batches(loader, SEED))
    assert sorted(int(record) for batch in batches for record in batch) == list(range(RECORDS))


class Opened(Records):
    """Opens its file in each loader worker, as data sets in HDF5 must."""

    file: Any = None

    def __getitem__(self, index: int) -> torch.Tensor:
        info: Any = get_worker_info()
        assert info.dataset is self
        return torch.tensor([self.file[index]])


def open_file(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.file = [float(index) for index in range(len(info.dataset))]


def test_a_loader_worker_finds_the_users_data_set_and_may_open_its_file() -> None:
    loader = DataLoader(Opened(), batch_size=BATCH, num_workers=2, worker_init_fn=open_file)
    for batches in (islice(data.training_batches(loader, SEED, 0), EPOCH_BATCHES), data.validation_batches(loader, SEED)):
        assert sorted(int(record) for batch in batches for record in batch) == list(range(RECORDS))


class Counting(DataLoader[Any]):
    """Changes what torch's iteration gives, by what it gave before in the pass and in passes before."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.passes, self.factor = 0, 1.0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for number, batch in enumerate(super().__iter__()):
            yield batch * self.factor + 100 * number + 1000 * self.passes + torch.rand(()) / 2
        self.passes += 1


class Mapped(DataLoader[Any]):
    """Changes it where libraries for graphs do."""

    def _get_iterator(self) -> Any:
        return (batch + 100 for batch in super()._get_iterator())


class Limited(DataLoader[Any]):
    """Gives two batches of an epoch."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from islice(super().__iter__(), 2)


def training_on(kind: type[DataLoader[Any]], dataset: type[Any] = Records, **options: Any) -> type[Small]:
    class Trained(Small):
        batches_per_epoch = EPOCH_BATCHES if dataset is not Records else None

        def build_training_data_loader(self) -> DataLoader[Any]:
            shuffled = {} if dataset is not Records else {"shuffle": True}
            self.loader = kind(dataset(), batch_size=BATCH, **shuffled, **options)
            return self.loader

    return Trained


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}, {"dataset": Range}],
    ids=["here", "workers", "persistent workers", "stream"],
)
def test_a_loaders_own_iteration_is_used_and_resumes_exactly(options: dict[str, Any]) -> None:
    kind = training_on(Counting, **options)
    whole = trained(kind, 15)
    for number, batch in enumerate(whole.seen):
        epoch, place = divmod(number, EPOCH_BATCHES)
        assert all(1000 * epoch + 100 * place <= value < 1000 * epoch + 100 * place + RECORDS for value in batch)
    assert (whole.trial.loader.passes, type(whole.trial.loader)) == (2, Counting)
    assert whole.trial.loader._iterator is None
    for stops in ([4, 13],) if "num_workers" in options else ([2], [EPOCH_BATCHES], [4, 13]):
        resumed = trained(kind, 15, stops)
        assert resumed.breaks == []
        assert resumed.seen == whole.seen[stops[-1] :] or resumed.seen == whole.seen
        assert all(torch.equal(one, other) for one, other in zip(resumed.weights, whole.weights, strict=True))


def test_a_loader_that_changes_batches_where_libraries_do_or_limits_them_is_used() -> None:
    whole = trained(training_on(Mapped), 8)
    assert all(100 <= value < 100 + RECORDS for batch in whole.seen for value in batch)
    assert_same(trained(training_on(Mapped), 8), whole)
    limited = trained(training_on(Limited), 5)
    assert limited.trainer.epoch_batches == 2
    every = trained(training_on(DataLoader), 13).seen
    assert limited.seen == [every[place] for place in (0, 1, 6, 7, 12)]


def test_attributes_of_the_loader_can_be_set_while_it_trains() -> None:
    trainer = PyTorchTrainer(training_on(Counting), INFO)
    trainer.train(2, never)
    trainer.trial.loader.factor = 0.0  # type: ignore[attr-defined]
    trainer.train(4, never)
    assert [int(value) // 1 for value in trainer.trial.seen[2]] == [200] * BATCH  # type: ignore[attr-defined]


def test_a_loader_that_gives_other_batches_than_its_length_is_refused() -> None:
    class Short(Counting):
        def __len__(self) -> int:
            return EPOCH_BATCHES + 1

    class Long(Limited):
        def __len__(self) -> int:
            return 1

    for kind, given in ((Short, "6"), (Long, "more")):
        with pytest.raises(UserError, match=rf"{kind.__name__} gave {given} batches in epoch 0, but its length is"):
            trained(training_on(kind), 8)


def test_a_loader_that_takes_its_batches_elsewhere_is_named() -> None:
    class Elsewhere(DataLoader[Any]):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            vars(self)["batches"] = super().__iter__()

        def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
            for _ in range(len(self)):
                yield next(vars(self)["batches"])

    breaks = trained(training_on(Elsewhere), 3).breaks
    assert any("Elsewhere.__iter__ does not take its batches from torch's" in line for line in breaks)


def test_ranks_share_what_the_loaders_own_iteration_gives() -> None:
    loader = Counting(Records(), batch_size=BATCH)
    whole = list(islice(data.training_batches(loader, SEED, 0), 2))
    batches = list(islice(data.training_batches(Counting(Records(), batch_size=BATCH), SEED, 0, None, Shard(1, 2)), 2))
    assert not any(isinstance(batch, Sharded) for batch in batches)
    assert all(torch.equal(one, other) for one, other in zip(batches, whole, strict=True)), "each rank cuts its share"
    with pytest.raises(UserError, match="Counting makes its own of torch's"):
        data.training_batches(loader, SEED, 0, None, Shard(0, 2), lambda _: 2)
    every = [placed.place for placed in data.placed_validation_batches(Counting(Records(), batch_size=BATCH), SEED, Shard(1, 2))]
    assert every == [1, 3, 5]


def test_the_whole_set_is_evaluated_with_the_users_loader() -> None:
    class Whole(Small):
        def build_validation_data_loader(self) -> DataLoader[Any]:
            self.own = Counting(Records(), batch_size=BATCH)
            return self.own

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            assert data_loader is self.own
            assert isinstance(data_loader, Counting)
            assert (len(data_loader), len(data_loader.dataset), data_loader.batch_size) == (EPOCH_BATCHES, RECORDS, BATCH)
            torch.manual_seed(int(torch.randint(1000, ())))
            self.own.passes = 0
            first = torch.cat(list(data_loader))
            return {"last": first[-1], "records": len(first), "again": sum(len(batch) for batch in data_loader)}

    trainer = PyTorchTrainer(Whole, INFO)
    metrics = trainer.validate()
    assert metrics == trainer.validate()
    assert (int(metrics["last"]), metrics["records"], metrics["again"]) == (500 + RECORDS - 1, RECORDS, RECORDS)


def test_batches_of_validation_go_through_the_loaders_own_iteration_and_keep_their_weights() -> None:
    class Lists(Counting):
        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                yield {"weights": torch.ones(3), "x": batch, "last": len(batch) < BATCH}

    class Weighed(Small):
        def build_validation_data_loader(self) -> DataLoader[Any]:
            return Lists(Records(), batch_size=BATCH)

        def evaluate_batch(self, batch: Any) -> dict[str, Any]:
            return {"last": float(batch["last"])}

    assert PyTorchTrainer(Weighed, INFO).validate()["last"] == pytest.approx(2 / RECORDS)


def test_a_data_set_of_whole_batches_keeps_its_own_loader() -> None:
    class Whole(Dataset[Any]):
        def __len__(self) -> int:
            return RECORDS

        def __getitem__(self, indices: list[int]) -> torch.Tensor:
            return torch.tensor(indices, dtype=torch.float32).reshape(-1, 1)

    sampler = BatchSampler(SequentialSampler(range(RECORDS)), BATCH, False)
    loader = Mapped(Whole(), batch_size=None, sampler=sampler)
    batches = list(data.validation_batches(loader, SEED))
    assert [int(value) for batch in batches for value in batch] == [100 + index for index in range(RECORDS)]


def test_a_loader_with_the_batch_of_one_slot_stays_the_users_object() -> None:
    class Two(PyTorchTrialContext):
        slots = 2  # type: ignore[assignment]

    info = TrialInfo(1, "1-1", 1, 77, {"global_batch_size": 8}, {"resources": {"slots_per_trial": 2}})
    context = Two(info, torch.device("cpu"))
    own = Counting(Records(), batch_size=context.get_per_slot_batch_size())
    assert with_whole_batches(own, context, Small.build_training_data_loader) is own
    assert [len(batch) for batch in data.validation_batches(own, SEED)] == [8, 8, 6]
    stream = Counting(Range(), batch_size=context.get_per_slot_batch_size())
    assert with_whole_batches(stream, context, Small.build_training_data_loader) is stream
    assert [len(batch) for batch in data.validation_batches(stream, SEED)] == [8, 8, 6]
