"""A tiny model that stays in one batch until the test says go, or until its worker is told to leave: so a test knows which batch
is under way when something changes."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tenuto import pytorch
from tenuto.workers.connection.directives import DirectiveBox

POLL_SECONDS = 0.01
HELD_SECONDS_MAX = 600.0
"""A test that forgot it must not hang for ever."""


class HeldTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.rate = float(context.get_hparam("learning_rate"))
        self.model = context.wrap_model(nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=self.rate))
        self.gate = Path(context.get_hparam("gate"))
        # The same that the training loop looks at after each batch.
        self.box = next(one for one in gc.get_objects() if isinstance(one, DirectiveBox))

    def _data(self) -> TensorDataset:
        x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
        return TensorDataset(x, x.sum(dim=1, keepdim=True))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=8, shuffle=True)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=32)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx + 1 == int(self.context.get_hparam("hold_at")):
            self._hold()
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def _hold(self) -> None:
        (self.gate / f"held-{self.context.get_trial_id()}").touch()
        deadline = time.monotonic() + HELD_SECONDS_MAX
        while not ((self.gate / "go").exists() or self.box.current.leave) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def evaluate_batch(self, batch: Any) -> Any:
        return {"loss": nn.functional.mse_loss(self.model(batch[0]), batch[1])}
