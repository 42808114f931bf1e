"""Records come in the order of an uninterrupted training, whatever the user's sampler draws from and keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Sampler, WeightedRandomSampler

from tests.support.exact_trials import BATCH, EPOCH_BATCHES, RECORDS, Records, Small, assert_same, trained

GLOBAL = random.Random(3)
END = 3 * EPOCH_BATCHES + 2
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Permuted(Sampler[int]):
    """Base of samplers that go through all records in an order of their own."""

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[int]:
        return iter(self.order())

    def order(self) -> list[int]:
        raise NotImplementedError


class OwnPython(Permuted):
    def __init__(self) -> None:
        self.shuffler = random.Random(4)

    def order(self) -> list[int]:
        return self.shuffler.sample(range(RECORDS), RECORDS)


class OwnNumpy(Permuted):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(4)

    def order(self) -> list[int]:
        return [int(index) for index in self.rng.permutation(RECORDS)]


class OwnLegacyNumpy(Permuted):
    def __init__(self) -> None:
        self.parts = {"random": np.random.RandomState(4)}

    def order(self) -> list[int]:
        return [int(index) for index in self.parts["random"].permutation(RECORDS)]


class OwnTorch(Permuted):
    __slots__ = ("source",)

    def __init__(self) -> None:
        self.source = torch.Generator().manual_seed(9)

    def order(self) -> list[int]:
        return [int(index) for index in torch.randperm(RECORDS, generator=self.source)]


class PassCounter(Permuted):
    def __init__(self) -> None:
        self.passes = 0

    def order(self) -> list[int]:
        self.passes += 1
        return random.Random(self.passes).sample(range(RECORDS), RECORDS)


class GlobalVariable(Permuted):
    def order(self) -> list[int]:
        return GLOBAL.sample(range(RECORDS), RECORDS)


class ClosedOver(Permuted):
    def __init__(self) -> None:
        generator = random.Random(6)
        self.draw = lambda: generator.sample(range(RECORDS), RECORDS)

    def order(self) -> list[int]:
        return self.draw()


class Cached(Permuted):
    """Drawn once, from the system's entropy, when it is made; turned by one place with each pass."""

    def __init__(self) -> None:
        self.permutation = np.random.default_rng().permutation(RECORDS)

    def order(self) -> list[int]:
        self.permutation = np.roll(self.permutation, 1)
        return [int(index) for index in self.permutation]


class LongRound(Sampler[int]):
    """Half of the records in each pass; what is left over is for the next."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def __len__(self) -> int:
        return RECORDS // 2

    def __iter__(self) -> Iterator[int]:
        if not self.left:
            self.left = random.Random(1).sample(range(RECORDS), RECORDS)
        half, self.left = self.left[: RECORDS // 2], self.left[RECORDS // 2 :]
        return iter(half)


class TornHistory(Permuted):
    """Reads the global generators, and changes its own weights with each pass."""

    def __init__(self) -> None:
        self.weights = torch.ones(RECORDS)
        self.history: dict[str, list[int]] = {"firsts": []}

    def order(self) -> list[int]:
        drawn = torch.multinomial(self.weights, RECORDS).tolist()
        self.weights[drawn[0]] *= 2
        self.history["firsts"].append(drawn[0] + random.randrange(2))
        return drawn if sum(self.history["firsts"]) % 2 else drawn[::-1]


class OwnBatches(Sampler[list[int]]):
    def __init__(self) -> None:
        self.rng, self.inner = np.random.default_rng(2), OwnPython()

    def __len__(self) -> int:
        return EPOCH_BATCHES

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.inner)
        batches = [order[start : start + BATCH] for start in range(0, RECORDS, BATCH)]
        self.rng.shuffle(batches)  # type: ignore[arg-type]
        return iter(batches)


class ToldTheEpoch(Permuted):
    """As torch's sampler for several processes: wrapped in another one, which does not pass the word on."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> list[int]:
        return random.Random(self.epoch).sample(range(RECORDS), RECORDS)


class Wrapping(Permuted):
    def __init__(self, inner: Permuted) -> None:
        self.inner = [inner]

    def order(self) -> list[int]:
        return list(self.inner[0])[::-1]


class SharesAGenerator(Records):
    """With its sampler."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index) + self.generator.random() / 2])


def with_sampler(sampler: Callable[[], Sampler[int]]) -> Callable[[int], DataLoader[Any]]:
    return lambda workers: DataLoader(Records(), batch_size=BATCH, sampler=sampler(), num_workers=workers)


def sharing(workers: int) -> DataLoader[Any]:
    sampler = OwnPython()
    return DataLoader(SharesAGenerator(sampler.shuffler), batch_size=BATCH, sampler=sampler, num_workers=workers)


KINDS: dict[str, Callable[[int], DataLoader[Any]]] = {
    "random.Random": with_sampler(OwnPython),
    "numpy Generator": with_sampler(OwnNumpy),
    "numpy RandomState": with_sampler(OwnLegacyNumpy),
    "torch.Generator": with_sampler(OwnTorch),
    "count of passes": with_sampler(PassCounter),
    "global variable": with_sampler(GlobalVariable),
    "closure": with_sampler(ClosedOver),
    "cached": with_sampler(Cached),
    "long round": with_sampler(LongRound),
    "weights": with_sampler(TornHistory),
    "weighted": with_sampler(lambda: WeightedRandomSampler([1.0] * RECORDS, RECORDS, generator=torch.Generator())),
    "wrapped count": with_sampler(lambda: Wrapping(PassCounter())),
    "wrapped twice": with_sampler(lambda: Wrapping(Wrapping(OwnNumpy()))),
    "wrapped, told the epoch": with_sampler(lambda: Wrapping(ToldTheEpoch())),
    "batches": lambda workers: DataLoader(Records(), batch_sampler=OwnBatches(), num_workers=workers),
    "batches of another": lambda workers: DataLoader(
        Records(), batch_sampler=BatchSampler(Wrapping(OwnTorch()), BATCH, False), num_workers=workers
    ),
    "shared with the data": sharing,
}


def trial_with(make: Callable[[int], DataLoader[Any]], workers: int = 0) -> type[Small]:
    class OfKind(Small):
        def build_training_data_loader(self) -> DataLoader[Any]:
            return make(workers)

    return OfKind


def disturb() -> None:
    """A fresh process begins with other generators, and with the module's variables as they were at first."""
    GLOBAL.seed(3)
    random.seed(random.randrange(99))
    torch.manual_seed(random.randrange(99))


_UNDISTURBED: dict[str, Any] = {}


def undisturbed(kind: str) -> Any:
    if kind == "cached":  # its first order is the first process's
        return None
    if kind not in _UNDISTURBED:
        disturb()
        _UNDISTURBED[kind] = trained(trial_with(KINDS[kind]), END)
    return _UNDISTURBED[kind]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), stops=st.lists(st.integers(1, END - 2), min_size=1, max_size=3, unique=True))
def test_a_resumed_trial_sees_the_records_of_an_undisturbed_one(kind: str, stops: list[int]) -> None:
    disturb()
    resumed = trained(trial_with(KINDS[kind]), END, stops, disturb)
    assert resumed.breaks == []
    if kind != "cached":
        assert_same(resumed, undisturbed(kind))
    if kind not in ("weighted", "long round"):
        assert len(resumed.seen) == END
        for epoch in range(3):
            batches = resumed.seen[epoch * EPOCH_BATCHES : (epoch + 1) * EPOCH_BATCHES]
            assert sorted(int(index) for batch in batches for index in batch) == list(range(RECORDS))


@pytest.mark.parametrize("kind", ["count of passes", "batches", "shared with the data"])
def test_orders_drawn_ahead_for_loader_workers(kind: str) -> None:
    disturb()
    resumed = trained(trial_with(KINDS[kind], workers=2), END, [EPOCH_BATCHES - 1, EPOCH_BATCHES + 3], disturb)
    assert resumed.breaks == []
    assert_same(resumed, undisturbed(kind))
