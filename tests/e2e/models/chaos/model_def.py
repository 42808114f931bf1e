"""A real but tiny model whose steps take long enough to be interrupted."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tenuto import pytorch

STEP_SECONDS = 0.01


class ChaosTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        width = int(context.get_hparam("width"))
        self.model = context.wrap_model(nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=float(context.get_hparam("learning_rate")))
        )

    def _data(self, seed: int) -> TensorDataset:
        x = torch.randn(512, 8, generator=torch.Generator().manual_seed(seed))
        return TensorDataset(x, (x[:, :1] * x[:, 1:2]).tanh())

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(0), batch_size=32, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(1), batch_size=128)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        time.sleep(STEP_SECONDS)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}
