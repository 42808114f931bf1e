"""Records come in the order of an uninterrupted training, whatever the user's sampler draws from and keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, Sampler, WeightedRandomSampler

from tenuto.workers.harness.errors import UserError
from tenuto.workers.pytorch import data
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


class Once(Permuted):
    """An iterator: it gives its records once."""

    def __init__(self) -> None:
        self.source = iter(range(10_000))

    def order(self) -> list[int]:
        return [next(self.source) % RECORDS for _ in range(RECORDS)]


class Entropy(Permuted):
    def order(self) -> list[int]:
        return [int(index) for index in np.random.default_rng().permutation(RECORDS)]


class System(Permuted):
    def __init__(self) -> None:
        self.rng = random.SystemRandom()

    def order(self) -> list[int]:
        return self.rng.sample(range(RECORDS), RECORDS)


class Cycled(Permuted):
    def __init__(self) -> None:
        self.endless = cycle(range(RECORDS - 1))

    def order(self) -> list[int]:
        return [next(self.endless) for _ in range(RECORDS)]


@pytest.mark.parametrize("sampler", [Once, Entropy, System, Cycled])
def test_an_order_that_cannot_be_drawn_again_is_said_before_anything_is_lost(
    sampler: type[Permuted], capsys: pytest.CaptureFixture[str]
) -> None:
    alone = trained(trial_with(with_sampler(sampler)), 2)
    assert [sentence for sentence in alone.breaks if f"cannot be drawn again ({sampler.__name__}" in sentence], alone.breaks
    said = capsys.readouterr().err
    assert said.count("this trial is not resumed exactly: the order of the records cannot be drawn again") == 1


def test_an_order_that_came_out_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sampler reads changed between two processes: nobody could know before."""
    monkeypatch.setattr(ToldTheEpoch, "epoch_offset", 0, raising=False)

    class Offset(ToldTheEpoch):
        def order(self) -> list[int]:
            return random.Random(self.epoch + type(self).epoch_offset).sample(range(RECORDS), RECORDS)  # type: ignore[attr-defined]

    kind = trial_with(with_sampler(Offset))
    resumed = trained(kind, END, [8], lambda: monkeypatch.setattr(ToldTheEpoch, "epoch_offset", 7))
    assert any("the order of the records in epoch 1 came out another" in sentence for sentence in resumed.breaks), resumed.breaks


def test_a_batch_that_comes_out_another_is_named() -> None:
    class Counting(Records):
        def __init__(self) -> None:
            self.calls = 0

        def __getitem__(self, index: int) -> torch.Tensor:
            self.calls += 1
            return torch.tensor([float(index) + self.calls / 1000])

    kind = trial_with(lambda workers: DataLoader(Counting(), batch_size=BATCH))
    assert trained(kind, END).breaks == []
    [sentence] = trained(kind, END, [8]).breaks
    assert sentence.startswith("batch 7, made again, is another than the one that was trained")


def test_a_data_set_that_says_its_state_is_asked_for_it() -> None:
    class Curriculum(Records):
        def __init__(self) -> None:
            self.difficulty = 0

        def __getitem__(self, index: int) -> torch.Tensor:
            self.difficulty += 1
            return torch.tensor([float(index) + self.difficulty / 1000])

        def state_dict(self) -> dict[str, Any]:
            return {"difficulty": self.difficulty}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.difficulty = state["difficulty"]

    kind = trial_with(lambda workers: DataLoader(Curriculum(), batch_size=BATCH))
    resumed = trained(kind, END, [5, 6, 13])
    assert resumed.breaks == []
    assert_same(resumed, trained(kind, END))


def test_validation_has_the_same_order_each_time() -> None:
    class Validated(Small):
        def __init__(self, context: Any) -> None:
            super().__init__(context)
            self.orders: list[list[float]] = []

        def build_validation_data_loader(self) -> DataLoader[Any]:
            return with_sampler(PassCounter)(0)

        def evaluate_batch(self, batch: Any) -> dict[str, Any]:
            self.orders.append(batch[:, 0].tolist())
            return super().evaluate_batch(batch)

    result = trained(Validated, 2)
    first, second = ([*result.trainer.validate()] and result.trial.orders[-EPOCH_BATCHES:] for _ in range(2))
    assert first == second


def test_a_sampler_without_a_length_is_refused_with_a_sentence() -> None:
    loader = DataLoader(Records(), batch_size=BATCH, sampler=(index for index in range(RECORDS)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"sampler \(generator\) has no length"):
        data.check_loader(loader, "build_training_data_loader")
