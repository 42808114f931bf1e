"""Callbacks and reducers of a trial: heard once, kept over interruptions, and mistakes told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.pytorch import MetricReducer, PyTorchCallback, PyTorchTrial, PyTorchTrialContext
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.unit.test_pytorch_trial import INFO, Linear

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


def never() -> bool:
    return False


class Recorder(PyTorchCallback):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_training_start(self) -> None:
        self.calls.append("start")

    def on_epoch_start(self, epoch_idx: int) -> None:
        self.calls.append(f"epoch {epoch_idx}")

    def on_epoch_end(self, epoch_idx: int) -> None:
        self.calls.append(f"end of epoch {epoch_idx}")

    def on_validation_end(self, metrics: Mapping[str, float]) -> None:
        self.calls.append(f"validation {sorted(metrics)}")

    def on_checkpoint_load_end(self) -> None:
        self.calls.append("loaded")

    def on_checkpoint_save_start(self, batches: int) -> None:
        self.calls.append(f"save {batches}")

    def on_checkpoint_save_end(self, checkpoint_id: str) -> None:
        self.calls.append(f"saved {checkpoint_id}")

    def on_trial_end(self) -> None:
        self.calls.append("bye")

    def state_dict(self) -> Mapping[str, Any]:
        return {"calls": list(self.calls)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = [*state["calls"], "|"]


class Called(Linear):
    def build_callbacks(self) -> Mapping[str, PyTorchCallback]:
        return {"recorder": Recorder()}


def test_callbacks_hear_everything_once_and_keep_their_state(tmp_path: Path) -> None:
    first = PyTorchTrainer(Called, INFO)
    first.train(3, never)  # an epoch
    first.validate()
    first.save(tmp_path)
    first.saved("1-1-3")
    second = PyTorchTrainer(Called, INFO)
    second.load(tmp_path)
    second.train(3, never)  # nothing to do
    second.train(4, never)
    second.close()
    second.close()
    recorder = second._callbacks["recorder"]
    assert isinstance(recorder, Recorder)
    before = ["start", "epoch 0", "end of epoch 0", "validation ['accuracy']", "save 3"]
    assert recorder.calls == [*before, "|", "loaded", "start", "epoch 1", "bye"]
    assert getattr(first._callbacks["recorder"], "calls")[-1] == "saved 1-1-3"  # noqa: B009


class Spread(MetricReducer):
    def reset(self) -> None:
        self.values: list[float] = []

    def per_slot_reduce(self) -> Any:
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: Any) -> Any:
        values = [value for part in per_slot_metrics for value in part]
        return {"lowest": min(values), "highest": max(values)}


class Reduced(Linear):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.spread = context.wrap_reducer(Spread())
        self.count = context.wrap_reducer(len, name="count", for_training=False)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.spread.values.append(float(batch_idx))
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any) -> Mapping[str, Any]:
        self.spread.values.append(float(len(batch[1])))
        self.count.update(batch[1])
        return super().evaluate_batch(batch)


def test_custom_reducers_gather_over_batches_and_interruptions(tmp_path: Path) -> None:
    first = PyTorchTrainer(Reduced, INFO)
    first.train(2, never)
    first.save(tmp_path)
    second = PyTorchTrainer(Reduced, INFO)
    second.load(tmp_path)
    second.train(4, never)
    metrics = second.take_metrics()
    assert (metrics["lowest"], metrics["highest"], "count" in metrics) == (0.0, 3.0, False)
    assert second.take_metrics() == {}
    metrics = second.validate()
    assert {name: metrics[name] for name in ("lowest", "highest", "count")} == {"lowest": 2.0, "highest": 4.0, "count": 3.0}


class WrongCallbacks(Linear):
    def build_callbacks(self) -> Any:
        return [Recorder()]


class UnnamedReducer(Linear):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.wrap_reducer(len, for_training=False)


class TwoScalers(Linear):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        context.wrap_scaler(torch.amp.GradScaler("cpu"))


@pytest.mark.parametrize(
    ("trial_class", "optimizations", "expected"),
    [
        (WrongCallbacks, {}, "build_callbacks must return a dict"),
        (UnnamedReducer, {}, "returned one value, so its metric needs a name"),
        (TwoScalers, {"mixed_precision": "fp16"}, "remove it, or the scaler of your own"),
    ],
)
def test_mistakes_with_these_are_told(trial_class: type[PyTorchTrial], optimizations: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):  # noqa: PT012 - where it is noticed depends on the mistake
        config = {"optimizations": optimizations}
        PyTorchTrainer(trial_class, TrialInfo(**{**vars(INFO), "config": config})).validate()
