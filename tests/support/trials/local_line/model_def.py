"""A small model whose training can be interrupted from inside, by a file that names the batch."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tenuto import pytorch


class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=float(context.get_hparam("lr"))))
        self.seen = 0

    def _data(self) -> TensorDataset:
        x = torch.randn(40, 3, generator=torch.Generator().manual_seed(5))
        return TensorDataset(x, x.sum(dim=1, keepdim=True))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=8, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=40)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if os.environ.get("TEST_INTERRUPT_AT") == str(batch_idx):
            os.kill(os.getpid(), signal.SIGINT)
        if os.environ.get("TEST_BREAK_AT") == str(batch_idx):
            breakpoint()
        self.seen += 1
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        x, y = batch
        return {"loss": nn.functional.mse_loss(self.model(x), y)}
