"""The process that `killed_training` kills: the product's training loop, with a store and a file of reports in the place of the
agent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tenuto.kernel.clock import SystemClock
from tenuto.pytorch import PyTorchTrial, PyTorchTrialContext
from tenuto.schemas.assignments import Assignment
from tenuto.schemas.base import Model
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.checkpoints.location import Place
from tenuto.workers.connection.directives import Directive, DirectiveBox
from tenuto.workers.harness import training
from tenuto.workers.harness.reporter import Lane
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.s3_server import S3Server


class Trial(PyTorchTrial):
    """Weights, optimizer, generators and state of its own, all of which each batch changes in place."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        width = context.get_hparam("width")
        self.model = context.wrap_model(nn.Sequential(nn.Linear(width, width), nn.Dropout(0.1), nn.BatchNorm1d(width)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), 1e-3))
        self.seen: list[float] = []
        self.memory = torch.zeros(width, width)

    def build_training_data_loader(self) -> DataLoader[Any]:
        width = self.context.get_hparam("width")
        return DataLoader(TensorDataset(torch.randn(36, width)), 4, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = (self.model(batch[0]) + torch.randn(1)).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.seen.append(float(loss.detach()))
        self.memory.mul_(0.9).add_(batch[0].mean())
        return loss.detach()

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.model(batch[0]).square().mean()}

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory, "part": self.memory[1:], "seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.memory, self.seen = state["memory"], state["seen"]


class ReportsInAFile:
    """Reports that are there once they are written, as those that an agent has."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def report(self, lane: Lane, *bodies: Model) -> None:
        for body in bodies:
            if isinstance(body, CheckpointReport):
                os.write(self._file, body.to_json() + b"\n")

    def flush(self) -> None: ...
    def close(self) -> None: ...


class StopsAtTheEnd(DirectiveBox):
    def wait_change(self, seen: Directive) -> Directive:
        self.leave("stop")
        return self.current


def train(order: dict[str, Any]) -> None:
    assignment = Assignment.from_json(json.dumps(order["assignment"]))
    if order["s3"] is not None:
        server = S3Server(Path("unused"))
        server.port, server.bucket, prefix = order["s3"]

        class InS3(Place):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                self.store = server.store(prefix)

        training.Place = InS3  # type: ignore[misc, attr-defined]
    trainer = PyTorchTrainer(Trial, TrialInfo.of(assignment))
    box = StopsAtTheEnd(Directive(assignment.action, assignment.target_length))
    reports = ReportsInAFile(Path(order["reports"]))
    loop = training.TrainingLoop(assignment, trainer, box, reports, Path(order["root"]), SystemClock())
    loop.run()
    trainer.close()
