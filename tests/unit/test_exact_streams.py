"""A stream that draws from generators of its own gives the same records again, whatever it says of its state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from tests.support.exact_trials import BATCH, EPOCH_BATCHES, RECORDS, Small, assert_same, trained

END = 3 * EPOCH_BATCHES + 2
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Shuffled(IterableDataset[torch.Tensor]):
    """Shuffles and augments with a generator of its own."""

    def __init__(self) -> None:
        self.rng = random.Random(5)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for record in self.share(self.rng.sample(range(RECORDS), RECORDS)):
            yield torch.tensor([record + self.rng.random() / 2, float(record)], dtype=torch.float64)

    def share(self, records: list[int]) -> list[int]:
        worker = get_worker_info()
        return records if worker is None else records[worker.id :: worker.num_workers]


class CountsPasses(Shuffled):
    def __init__(self) -> None:
        super().__init__()
        self.passes = np.zeros(1, dtype=np.int64)

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        records = random.Random(int(self.passes[0])).sample(range(RECORDS), RECORDS)
        return (torch.tensor([float(record)], dtype=torch.float64) for record in self.share(records))


class Stateful(Shuffled):
    """Base of streams that tell their place, but not where their generator is."""

    def __init__(self) -> None:
        super().__init__()
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class DrawsOnTheWay(Stateful):
    """Goes on drawing where it was."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        records = self.share(list(range(RECORDS)))
        while self.place < len(records):
            self.place += 1
            yield torch.tensor([records[self.place - 1] + self.rng.random() / 2], dtype=torch.float64)
        self.place = 0


class DrawsAtTheBegin(Stateful):
    """Draws the order of a pass, and goes to its place in it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        records = self.share(self.rng.sample(range(RECORDS), RECORDS))
        while self.place < len(records):
            self.place += 1
            yield torch.tensor([float(records[self.place - 1])], dtype=torch.float64)
        self.place = 0


class TellsAll(DrawsOnTheWay):
    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "rng": self.rng.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        version, internal, gauss = state["rng"]
        self.rng.setstate((version, tuple(internal), gauss))


class WithoutGenerators(IterableDataset[torch.Tensor]):
    """Base of streams that tell their place, and not what else they count."""

    def __init__(self) -> None:
        self.place = self.passes = self.drawn = 0
        self.recent: list[int] = []

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class CountsItsPasses(WithoutGenerators):
    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        records = random.Random(self.passes).sample(range(RECORDS), RECORDS)
        records = records if (worker := get_worker_info()) is None else records[worker.id :: worker.num_workers]
        while self.place < len(records):
            self.place += 1
            yield torch.tensor([float(records[self.place - 1])], dtype=torch.float64)
        self.place = 0


class CountsItsRecords(WithoutGenerators):
    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        records = list(range(RECORDS))[:: 1 if worker is None else worker.num_workers]
        while self.place < len(records):
            self.place += 1
            self.drawn += 1
            self.recent = [*self.recent[-2:], records[self.place - 1]]
            yield torch.tensor([records[self.place - 1] + self.drawn / 500 + sum(self.recent) / 5000], dtype=torch.float64)
        self.place = 0


class TellsItsPlaceAlone(WithoutGenerators):
    """All of its state is its place: nothing is read twice."""

    reads = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.place < RECORDS:
            self.place += 1
            type(self).reads += 1
            yield torch.tensor([float(self.place - 1)], dtype=torch.float64)
        self.place = 0


class RandomCollation:
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(8)

    def __call__(self, items: list[Any]) -> Any:
        return default_collate(items) + torch.rand((), generator=self.generator, dtype=torch.float64) / 4


KINDS: dict[str, Callable[[int], DataLoader[Any]]] = {
    kind.__name__: (lambda workers, kind=kind: DataLoader(kind(), batch_size=BATCH, num_workers=workers))  # type: ignore[misc]
    for kind in (Shuffled, CountsPasses, DrawsOnTheWay, DrawsAtTheBegin, TellsAll, CountsItsPasses, CountsItsRecords)
}
KINDS["RandomCollation"] = lambda workers: DataLoader(
    Stateful(), batch_size=BATCH, num_workers=workers, collate_fn=RandomCollation()
)


def trial_with(make: Callable[[int], DataLoader[Any]], workers: int = 0) -> type[Small]:
    class OfKind(Small):
        batches_per_epoch = EPOCH_BATCHES

        def build_training_data_loader(self) -> DataLoader[Any]:
            return make(workers)

    return OfKind


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), stops=st.lists(st.integers(1, END - 2), min_size=1, max_size=3, unique=True))
def test_a_resumed_trial_reads_what_an_undisturbed_one_reads(kind: str, stops: list[int]) -> None:
    resumed = trained(trial_with(KINDS[kind]), END, stops)
    assert resumed.breaks == []
    assert_same(resumed, trained(trial_with(KINDS[kind]), END))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_passes_differ_and_hold_every_record(kind: str) -> None:
    seen = trained(trial_with(KINDS[kind]), 2 * EPOCH_BATCHES).seen
    first, second = ([value for batch in part for value in batch] for part in (seen[:EPOCH_BATCHES], seen[EPOCH_BATCHES:]))
    assert first != second
    if kind != "RandomCollation":
        assert sorted(map(int, first)) == sorted(map(int, second)) == list(range(RECORDS))


@pytest.mark.parametrize(
    "kind", ["Shuffled", "DrawsOnTheWay", "DrawsAtTheBegin", "TellsAll", "CountsItsPasses", "CountsItsRecords"]
)
def test_loader_workers_go_on_where_they_were(kind: str) -> None:
    resumed = trained(trial_with(KINDS[kind], workers=2), EPOCH_BATCHES + 5, [4, EPOCH_BATCHES + 2])
    assert resumed.breaks == []
    assert_same(resumed, trained(trial_with(KINDS[kind], workers=2), EPOCH_BATCHES + 5))


def test_a_stream_that_gives_other_records_is_named() -> None:
    class Fresh(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return (torch.tensor([value]) for value in np.random.default_rng().random(RECORDS).tolist())

    kind = trial_with(lambda workers: DataLoader(Fresh(), batch_size=BATCH))
    [sentence] = trained(kind, END, [8]).breaks
    assert sentence.startswith("batch 7, made again, is another than the one that was trained")


def test_a_stream_that_tells_all_goes_on_without_reading_again() -> None:
    kind = trial_with(lambda workers: DataLoader(TellsItsPlaceAlone(), batch_size=1))
    TellsItsPlaceAlone.reads = 0
    expected = trained(kind, RECORDS + 12)
    alone = TellsItsPlaceAlone.reads
    TellsItsPlaceAlone.reads = 0
    assert_same(trained(kind, RECORDS + 12, [5, RECORDS + 8]), expected)
    lost = 2 * 2  # batches that the interrupted ones trained after their checkpoints
    assert TellsItsPlaceAlone.reads == alone + lost


def test_a_stream_that_is_read_again_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    trained(trial_with(KINDS["CountsItsRecords"]), 6, [4])
    assert "CountsItsRecords.load_state_dict does not bring back drawn, recent, so the stream reads" in capsys.readouterr().err
