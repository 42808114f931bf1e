"""A tiny model that refuses some hyperparameters, diverges for others, and says which learning rate it really steps with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tenuto
from tenuto import pytorch

STEEP = 0.05
"""Learning rates from here on diverge, where `diverge` is set."""


class SearchedTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        if context.get_hparam("heads") == 3:
            raise tenuto.InvalidHyperparameters("heads must divide width")
        self.rate = float(context.get_hparam("learning_rate"))
        self.model = context.wrap_model(nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=self.rate, momentum=0.9))

    def _data(self) -> TensorDataset:
        x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
        return TensorDataset(x, x.sum(dim=1, keepdim=True))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=8, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=32)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        rate = self.optimizer.param_groups[0]["lr"]
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "rate": rate}

    def evaluate_batch(self, batch: Any) -> Any:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        lost = self.context.get_hparam("diverge") and self.rate >= STEEP
        return {"loss": float("nan") if lost else loss, "size": float(self.model.weight.abs().sum())}
