"""What training changes in its data set and its sampler reaches the records that are made from then on, also those of loader
workers, and a resumed trial goes on with it or says what it lost."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Sampler, Subset

from tenuto.pytorch import PyTorchCallback
from tests.support.exact_trials import BATCH, EPOCH_BATCHES, RECORDS, Records, Small, assert_same, trained, whole

pytestmark = pytest.mark.usefixtures("torch_as_it_was")
END = 3 * EPOCH_BATCHES + 2
STOPS = (4, EPOCH_BATCHES, EPOCH_BATCHES + 3)


class Shift:
    def __init__(self) -> None:
        self.by = 0.0


class Shifted(Records):
    """Records that the settings of the data set move."""

    def __init__(self) -> None:
        self.level, self.transforms, self.plan = 0.0, [Shift()], {"steps": [0.0]}
        self.offsets = np.zeros(RECORDS)

    def __getitem__(self, index: int) -> torch.Tensor:
        moved = 100 * self.level + 1_000 * self.transforms[0].by + 10_000 * self.plan["steps"][0]
        return super().__getitem__(index) + moved + float(self.offsets[index])


class ByCallback(PyTorchCallback):
    def __init__(self, trial: Settled) -> None:
        self.trial = trial

    def on_epoch_start(self, epoch_idx: int) -> None:
        self.trial.begin(epoch_idx)


class Settled(Small):
    workers = 0
    at_epochs = True

    def build_training_data_loader(self) -> DataLoader[Any]:
        self.data = Shifted()
        return DataLoader(Subset(self.data, range(RECORDS)), batch_size=BATCH, shuffle=True, num_workers=self.workers)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"settings": ByCallback(self)}

    def begin(self, epoch: int) -> None:
        if self.at_epochs:
            self.data.level += 1
            self.data.transforms[0].by = float(epoch)
            self.data.plan["steps"][0] += 0.5

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.seen.append(batch[:, 0].tolist())
        loss = (self.model(batch / 1e6) - batch / 1e6).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss


class SettledForWorkers(Settled):
    workers = 1


@pytest.mark.parametrize("kind", [Settled, SettledForWorkers])
def test_what_is_set_when_an_epoch_begins_reaches_all_of_its_records(kind: type[Settled]) -> None:
    resumed = whole(kind, END, STOPS)
    if not kind.workers:
        for place, batch in enumerate(resumed.seen):
            epoch = place // EPOCH_BATCHES
            moved = 100 * (epoch + 1) + 1_000 * epoch + 10_000 * 0.5 * (epoch + 1)
            assert all(0 <= value - moved < RECORDS for value in batch)
    else:
        assert resumed.seen == trained(Settled, END).seen


class SettledByBatch(Settled):
    at_epochs = False

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.data.level = 0.25 * batch_idx
        return super().train_batch(batch, epoch_idx, batch_idx)


class Counted(Shifted):
    def __getitem__(self, index: int) -> torch.Tensor:
        self.level += 0.25
        return super().__getitem__(index)


class SettledByItself(Settled):
    at_epochs = False

    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Counted(), batch_size=BATCH, shuffle=True)


@pytest.mark.parametrize("kind", [SettledByBatch, SettledByItself])
def test_what_is_set_within_an_epoch_goes_on(kind: type[Settled]) -> None:
    whole(kind, END, STOPS)


class ChangedArray(SettledForWorkers):
    def begin(self, epoch: int) -> None:
        self.data.offsets += 100.0


class ReplacedTransform(SettledForWorkers):
    def begin(self, epoch: int) -> None:
        if epoch == 1:
            self.data.transforms = [Shift()]
            self.data.transforms[0].by = 3.0


@pytest.mark.parametrize(
    ("kind", "name", "moved"), [(ChangedArray, "dataset.offsets", 200), (ReplacedTransform, "dataset.transforms", 3_000)]
)
def test_what_no_checkpoint_holds_reaches_loader_workers_and_is_told(kind: type[Settled], name: str, moved: float) -> None:
    result = trained(kind, 2 * EPOCH_BATCHES - 1)
    assert all(0 <= value - moved < RECORDS for value in result.seen[-1])
    [sentence] = result.breaks
    assert sentence.startswith("training changes dataset.")
    assert name in sentence


class Chosen(Sampler[int]):
    """The records with the largest weights first."""

    def __init__(self) -> None:
        self.weights = torch.arange(RECORDS, dtype=torch.float64)
        self.passes = 0

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        shifted = self.weights + torch.randperm(RECORDS) * 0.01 * self.passes
        return iter(shifted.argsort(descending=True).tolist())


class Weighing(Small):
    workers = 0

    def build_training_data_loader(self) -> DataLoader[Any]:
        self.sampler = Chosen()
        return DataLoader(Records(), batch_size=BATCH, sampler=self.sampler, num_workers=self.workers)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = super().train_batch(batch, epoch_idx, batch_idx)
        self.sampler.weights[batch[:, 0].long()] -= 3.0 + 7.0 * float(loss.detach())
        return loss


class WeighingForWorkers(Weighing):
    workers = 2


@pytest.mark.parametrize("kind", [Weighing, WeighingForWorkers])
def test_a_sampler_that_training_changes_goes_on_and_says_when_it_counts(
    kind: type[Weighing], capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = whole(kind, END, STOPS)
    assert "training changes the sampler (Chosen) within an epoch, and the order of an epoch is drawn when it begins" in (
        capsys.readouterr().err
    )
    assert_same(resumed, trained(Weighing, END))
    assert resumed.trial.sampler.passes == 4


class Staged(Weighing):
    """The sampler changes when an epoch begins, and only then."""

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"stages": ByCallback(self)}  # type: ignore[arg-type]

    def begin(self, epoch: int) -> None:
        self.sampler.weights.copy_(torch.roll(self.sampler.weights, 5 * (epoch + 1)))

    train_batch = Small.train_batch


class StagedForWorkers(Staged):
    workers = 2


@pytest.mark.parametrize("kind", [Staged, StagedForWorkers])
def test_a_sampler_that_changes_when_an_epoch_begins_counts_in_that_epoch(kind: type[Staged]) -> None:
    resumed = whole(kind, END, STOPS)
    firsts = [resumed.seen[epoch * EPOCH_BATCHES][0] for epoch in range(3)]
    weights = torch.arange(float(RECORDS))
    for epoch, first in enumerate(firsts):
        weights = torch.roll(weights, 5 * (epoch + 1))
        assert weights[int(first)] >= RECORDS - 2


class InThread(DataLoader[Any]):
    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        made: queue.Queue[Any] = queue.Queue()
        source = super().__iter__()

        def fill() -> None:
            for batch in source:
                made.put(batch)
            made.put(None)

        threading.Thread(target=fill, daemon=True).start()
        while (batch := made.get()) is not None:
            yield batch


class Prefetching(Small):
    def build_training_data_loader(self) -> DataLoader[Any]:
        return InThread(Records(), batch_size=BATCH, shuffle=True)


def test_a_loader_that_takes_batches_in_a_thread_is_told() -> None:
    assert trained(Prefetching, 2).breaks[0].startswith("InThread.__iter__ takes its batches in a thread of its own")


class Differentiated(Small):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return super().train_batch(batch.requires_grad_(True), epoch_idx, batch_idx)


def test_a_batch_that_gradients_are_asked_of_is_the_same() -> None:
    whole(Differentiated)
