"""Small trials that are saved anywhere and go on in a fresh trainer, in this process, compared with one that was left alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tenuto.pytorch import PyTorchTrial, PyTorchTrialContext
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.trainer import PyTorchTrainer

RECORDS, BATCH = 22, 4
EPOCH_BATCHES = 6
INFO = TrialInfo(1, "1-1", 1, 77, {}, {})


class Records(Dataset[torch.Tensor]):
    """Each record is its index."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class Small(PyTorchTrial):
    """A trial whose weights depend on the order of all records trained."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9))
        self.seen: list[list[float]] = []

    def build_training_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Records(), batch_size=BATCH, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader[Any]:
        return DataLoader(Records(), batch_size=BATCH)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.seen.append(batch[:, 0].tolist())
        loss = (self.model(batch[:, :1].float() / RECORDS) - batch[:, :1].float()).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.model(batch[:, :1].float()).mean()}


@dataclass
class Result:
    trainer: PyTorchTrainer
    weights: list[torch.Tensor]
    seen: list[list[float]]
    breaks: list[str]

    @property
    def trial(self) -> Any:
        return self.trainer.trial


def never() -> bool:
    return False


def trained(kind: type[PyTorchTrial], end: int, stops: Sequence[int] = (), on_stop: Callable[[], None] = lambda: None) -> Result:
    return trained_anew(lambda: kind, end, stops, on_stop)


def trained_anew(
    load: Callable[[], type[PyTorchTrial]], end: int, stops: Sequence[int] = (), on_stop: Callable[[], None] = lambda: None
) -> Result:
    """Result of the class that `load` returns for each trainer. Trained to `end`; at each of `stops` a checkpoint is saved,
    training goes on for a moment, and a fresh trainer begins from the checkpoint, as after a kill."""
    with tempfile.TemporaryDirectory() as directory:
        trainer = PyTorchTrainer(load(), INFO)
        for number, stop in enumerate(sorted(stops)):
            trainer.train(stop, never)
            path = Path(directory) / str(number)
            path.mkdir()
            write = trainer.snapshot()
            trainer.train(stop + 2, never)  # what is lost
            write(path)
            trainer.close()
            on_stop()
            trainer = PyTorchTrainer(load(), INFO)
            trainer.load(path)
        trainer.train(end, never)
        path = Path(directory) / "end"
        path.mkdir()
        trainer.save(path)
        breaks: list[str] = json.loads((path / "exactness.json").read_text())["breaks"]
    trainer.close()
    weights = [value.clone() for model in trainer.context._models for value in model.state_dict().values()]
    return Result(trainer, weights, getattr(trainer.trial, "seen", []), breaks)


def assert_same(ours: Result, theirs: Result) -> None:
    assert ours.seen == theirs.seen
    assert len(ours.weights) == len(theirs.weights)
    assert all(torch.equal(one, other) for one, other in zip(ours.weights, theirs.weights, strict=True))


class Training(Small):
    """A trial of `net()`, which `optimizer(parameters)` trains with `loss(output, target)`."""

    net: Callable[[], nn.Module] = staticmethod(lambda: nn.Linear(1, 1))
    make: Callable[[Any], Any] = staticmethod(lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9))

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(type(self).net())
        self.optimizer = context.wrap_optimizer(type(self).make(self.model.parameters()))
        self.seen: list[list[float]] = []
        self.losses: list[float] = []

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.seen.append(batch[:, 0].tolist())
        loss = self.loss(self.model(batch / RECORDS), batch / RECORDS)
        self.losses.append(float(loss))
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss.detach()


def whole(kind: type[Small], end: int = 15, stops: Sequence[int] = (4, 9)) -> Result:
    """Result of an interrupted trial, compared with that of one that was left alone."""
    alone = trained(kind, end)
    resumed = trained(kind, end, stops)
    assert resumed.breaks == []
    assert_same(resumed, alone)
    assert getattr(resumed.trial, "losses", None) == getattr(alone.trial, "losses", None)
    return resumed


class Average:
    def __init__(self, model: nn.Module) -> None:
        self.updates = 0
        self.shadow = {name: value.detach().clone() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(0.99, (1 + self.updates) / (10 + self.updates))
        for name, value in model.named_parameters():
            self.shadow[name].mul_(decay).add_(value, alpha=1 - decay)
