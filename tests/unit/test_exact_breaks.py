"""Orders and batches that cannot come out the same again are said, and named where they did not."""

from __future__ import annotations

import json
import random
import warnings
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tenuto.workers.checkpoints.exactness import add_breaks
from tenuto.workers.errors import UserError
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.exactness import Exactness
from tests.support.exact_trials import BATCH, EPOCH_BATCHES, RECORDS, Records, Small, assert_same, trained
from tests.unit.test_exact_samplers import END, PassCounter, Permuted, ToldTheEpoch, trial_with, with_sampler

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


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


WORDINGS = {
    "scatter_add does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. You can": (
        "scatter_add has no deterministic kernel here"
    ),
    "cuDNN Attention defaults to a non-deterministic algorithm. To explicitly enable determinism call torch.use_(...)": (
        "cuDNN Attention defaults to a non-deterministic algorithm"
    ),
    "Memory Efficient attention defaults to a non-deterministic algorithm. To explicitly": (
        "Memory Efficient attention defaults to a non-deterministic algorithm"
    ),
    "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or `at::Context::x`, but this "
    "operation is not deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable": (
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or `at::Context::x`, but this "
        "operation is not deterministic because it uses CuBLAS and you have CUDA >= 10.2"
    ),
    "flex_attention: Running non-deterministic backward.": "flex_attention: Running non-deterministic backward",
}


@pytest.mark.parametrize("wording", WORDINGS)
def test_every_wording_of_an_operation_that_is_not_deterministic_is_a_break(
    wording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Warned(Small):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            warnings.warn(wording, UserWarning, stacklevel=1)
            warnings.warn("kernels are deterministic here", UserWarning, stacklevel=1)
            return super().train_batch(batch, epoch_idx, batch_idx)

    [sentence] = trained(Warned, 3).breaks
    assert sentence.startswith(f"{WORDINGS[wording]}; first used at {__file__}:")
    assert capsys.readouterr().err.count(WORDINGS[wording]) == 1


def test_a_record_with_a_break_does_not_call_itself_exact(tmp_path: Path) -> None:
    said: list[str] = []
    record = Exactness(True, torch.device("cpu"), said.append)
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert json.loads(record.record())["exact"] is True
    record.note("an operation has no deterministic kernel")
    (tmp_path / "exactness.json").write_bytes(record.record())
    found = json.loads(record.record())
    assert (found["exact"], found["exact_kernels"]) == (False, True)
    again = Exactness(True, torch.device("cpu"), said.append)
    again.resume(record.record())
    assert again.breaks == record.breaks, "kernels were exact before, so nothing is added"
    again.resume(json.dumps({"exact": True, "breaks": [], "surroundings": again.surroundings()}).encode())  # an older one
    assert again.breaks == record.breaks
    (tmp_path / "exactness.json").write_bytes(Exactness(True, torch.device("cpu"), said.append).record())
    add_breaks(tmp_path, ["the buffer is not saved"])
    assert json.loads((tmp_path / "exactness.json").read_bytes())["exact"] is False
