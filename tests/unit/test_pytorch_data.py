"""Batches are found again by position, whoever makes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, WeightedRandomSampler, default_collate

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.python_random import PythonAside
from tenuto.workers.pytorch.seeds import isolated_randomness, random_state, restore_random_state, seed_everything

SEED = 11


class Noisy(Dataset[torch.Tensor]):
    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, random.random(), float(np.random.rand()), float(torch.rand(()))], dtype=torch.float64)


class Together(Noisy):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [torch.tensor([index, random.random()]) for index in indices]


class GlobalShuffle(Sampler[int]):
    """A user's sampler that draws from Python's global generator."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(self.length), self.length))


def loaders(num_workers: int = 0) -> dict[str, DataLoader[Any]]:
    noisy = Noisy()
    return {
        "shuffled": DataLoader(noisy, batch_size=4, shuffle=True, num_workers=num_workers),
        "in order, drop_last": DataLoader(noisy, batch_size=4, drop_last=True, num_workers=num_workers),
        "own generator": DataLoader(
            noisy, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5), num_workers=num_workers
        ),
        "weighted": DataLoader(
            noisy, batch_size=4, sampler=WeightedRandomSampler([1.0] * 23, 23, replacement=True), num_workers=num_workers
        ),
        "batch sampler": DataLoader(noisy, batch_sampler=BatchSampler(GlobalShuffle(23), 4, False), num_workers=num_workers),
        "own generators": DataLoader(OwnGenerators(), batch_size=4, shuffle=True, num_workers=num_workers),
        "one by one": DataLoader(noisy, batch_size=None, shuffle=True, num_workers=num_workers),
        "together": DataLoader(Together(), batch_size=4, shuffle=True, num_workers=num_workers),
        "random collation": DataLoader(
            noisy, batch_size=4, collate_fn=lambda items: default_collate(items) * torch.rand(1), num_workers=num_workers
        ),
    }


class OwnGenerators(Noisy):
    """Draws from generators that it keeps itself, one of them deep inside."""

    def __init__(self) -> None:
        super().__init__()
        self.numpy = np.random.default_rng(4)
        self.transforms = [{"shift": random.Random(5)}, (torch.Generator().manual_seed(6), np.random.RandomState(7))]

    def __getitem__(self, index: int) -> torch.Tensor:
        shift: Any = self.transforms[0]
        generator, legacy = self.transforms[1]
        drawn = [self.numpy.random(), shift["shift"].random(), legacy.rand(), float(torch.rand((), generator=generator))]
        return torch.tensor([index, *drawn], dtype=torch.float64)


def take(loader: DataLoader[Any], start: int, count: int) -> list[torch.Tensor]:
    return list(islice(data.training_batches(loader, SEED, start), count))


def assert_same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert torch.equal(one, other), f"batch {index}"


@pytest.mark.parametrize("kind", list(loaders()))
def test_a_batch_depends_on_its_position_only(kind: str) -> None:
    loader = loaders()[kind]
    count = 2 * len(loader) + 3
    whole = take(loader, 0, count)
    for start in (1, len(loader) - 1, len(loader), count - 1):
        random.seed(start)  # whatever happened to the generators before
        torch.manual_seed(start)
        assert_same(take(loaders()[kind], start, count - start), whole[start:])


@pytest.mark.parametrize("kind", ["shuffled", "random collation", "batch sampler", "own generators"])
def test_loader_workers_make_the_same_batches(kind: str) -> None:
    alone = loaders()[kind]
    count = len(alone) + 2
    assert_same(take(loaders(num_workers=2)[kind], 1, count), take(alone, 1, count))


def test_epochs_differ_and_hold_every_record_once() -> None:
    loader = loaders()["shuffled"]
    batches = take(loader, 0, 2 * len(loader))
    first, second = (torch.cat(batches[: len(batches) // 2]), torch.cat(batches[len(batches) // 2 :]))
    assert first[:, 0].sort().values.tolist() == second[:, 0].sort().values.tolist() == [float(index) for index in range(23)]
    assert first[:, 0].tolist() != second[:, 0].tolist()
    assert not set(first[:, 1].tolist()) & set(second[:, 1].tolist()), "augmentation is drawn anew"


def test_samplers_are_told_the_epoch() -> None:
    sampler = GlobalShuffle(8)
    take(DataLoader(Noisy(8), batch_size=4, sampler=sampler), 3, 3)
    assert sampler.epochs == [1, 2]


@pytest.mark.parametrize("kind", list(loaders()))
def test_making_batches_leaves_the_training_generators_alone(kind: str) -> None:
    seed_everything(3)
    expected = [random.random(), float(np.random.rand()), float(torch.rand(()))]
    seed_everything(3)
    take(loaders()[kind], 2, 9)
    list(data.validation_batches(loaders()[kind], SEED))
    assert [random.random(), float(np.random.rand()), float(torch.rand(()))] == expected


def test_validation_is_the_same_each_time() -> None:
    loader = loaders()["shuffled"]
    assert_same(list(data.validation_batches(loader, SEED)), list(data.validation_batches(loader, SEED)))


def test_numpys_generator_is_as_it_was_whatever_happened_before() -> None:
    def drawn(isolated: bool) -> list[float]:
        seed_everything(4)
        numbers = []
        for use in (0, 0, 1, 2, 0, 1, 1, 0, 3, 1, 0):
            if isolated:
                with isolated_randomness(8):
                    np.random.randn()  # leaves half a pair behind
            numbers += [float(np.random.randn()) for _ in range(use)]
        return numbers

    assert drawn(isolated=True) == drawn(isolated=False)


@pytest.mark.parametrize("memory", [True, False])
def test_pythons_generator_is_as_it_was_whatever_happened_before(memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = PythonAside()
    if memory:
        assert aside._memory is not None, "this CPython keeps the state where it was looked for"
    else:
        monkeypatch.setattr(aside, "_memory", None)  # as on another interpreter
    random.seed(6)
    for use in range(5):
        for _ in range(use):
            random.gauss(0, 1)  # keeps a second number for the next call
        before = random.getstate()
        first = aside.enter(8)
        drawn = [random.gauss(0, 1) for _ in range(700)]
        inner = aside.enter(9)
        random.random()
        aside.leave(inner)
        drawn.append(random.gauss(0, 1))
        aside.leave(first)
        assert random.getstate() == before
        fresh = random.Random(8)
        assert drawn == [fresh.gauss(0, 1) for _ in range(701)]


def test_generator_states_survive_a_round_trip() -> None:
    seed_everything(9)
    random.gauss(0, 1), np.random.randn()  # both keep a second number for the next call
    state = random_state()

    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), float(np.random.randn()), float(np.random.rand()), float(torch.randn(()))]

    expected = draw()
    restore_random_state(state)
    with isolated_randomness(1):
        first = draw()
        with isolated_randomness(2):
            draw()
    assert draw() == expected, "also the second halves of normal pairs, and twice aside"
    with isolated_randomness(1):
        assert draw() == first
    restore_random_state(state)
    assert draw() == expected


class Lying(GlobalShuffle):
    def __len__(self) -> int:
        return self.length - 4


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        ([1, 2], r"build_x returned list; it must return a tenuto.pytorch.DataLoader"),
        (DataLoader(Noisy(3), batch_size=4, drop_last=True), "without batches"),
    ],
)
def test_loaders_without_positions_are_refused(loader: Any, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        data.check_loader(loader, "build_x")


def test_a_sampler_that_gives_another_number_of_batches_than_it_says_is_named() -> None:
    loader = DataLoader(Noisy(12), batch_size=4, sampler=Lying(12))
    with pytest.raises(UserError, match="gave 3 batches in epoch 0, but its length is 2"):
        take(loader, 0, 1)
