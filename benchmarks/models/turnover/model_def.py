"""A model that costs nothing, and says when its steps begin and end."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tenuto import pytorch

if (settings := Path(__file__).with_name("settings.json")).exists():  # see `model_with` in benchmarks/embedded_cluster.py
    os.environ.update(json.loads(settings.read_text()))
STEPS_FILE = os.environ["STEPS_FILE"]
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
SLOW_WHILE = os.environ.get("SLOW_WHILE", "")
"""If given, steps last STEP_SECONDS only while this file exists."""


def say(what: str) -> None:
    with open(STEPS_FILE, "a") as file:
        file.write(f"{os.environ['TENUTO_ALLOCATION_ID']} {what} {time.time()} {os.getpid()} {memory_bytes()}\n")


def memory_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class TurnoverTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("learning_rate")))

    def _data(self) -> TensorDataset:
        return TensorDataset(torch.ones(64, 4), torch.ones(64, 1))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=8)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(self._data(), batch_size=64)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        say("begins")
        if not SLOW_WHILE or os.path.exists(SLOW_WHILE):
            time.sleep(STEP_SECONDS)
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        say("ends")
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> Any:
        return {"loss": nn.functional.mse_loss(self.model(batch[0]), batch[1])}
