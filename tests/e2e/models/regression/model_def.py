"""A small model that reads declared data, fails once where it finds a file that tells it to, and waits in a batch while it finds
another one."""

from __future__ import annotations

import contextlib
import csv
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tenuto
from tenuto import pytorch

with contextlib.suppress(ImportError):
    import planted  # noqa: F401 - a package that is there in two versions

STEP_SECONDS = 0.02
DTYPE = torch.float32
CRASH_AT_BATCH = 30
HOLD_AT_BATCH = 50
"""After the checkpoint at batch 40, before the one at 60."""


class RegressionTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.directory = tenuto.data(str(context.get_hparam("data")), name="training data")
        self.model = context.wrap_model(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)).to(DTYPE))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=float(context.get_hparam("learning_rate")), momentum=0.9)
        )

    def _data(self) -> TensorDataset:
        with (self.directory / "points.csv").open() as file:
            rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)], dtype=DTYPE)
        return TensorDataset(rows[:, :4], rows[:, 4:])

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=int(self.context.get_hparam("batch_size")), shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=64)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        crash = self.directory.with_name("crash")
        if batch_idx == CRASH_AT_BATCH and crash.exists():
            crash.unlink()
            raise RuntimeError("the model crashed, as Dave's does")
        while batch_idx == HOLD_AT_BATCH and self.directory.with_name("hold").exists():
            time.sleep(STEP_SECONDS)
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        time.sleep(STEP_SECONDS)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}
