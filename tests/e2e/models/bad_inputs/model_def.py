"""The smallest trial that trains: a linear model, whose loss leaves the numbers where the learning rate is absurd."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tenuto import pytorch


class MyTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(4, 1))
        rate = float(context.get_hparam("learning_rate"))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=rate))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=8)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=8)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"loss": self.model(batch[0]).square().mean()}
