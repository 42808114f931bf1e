"""The same small network three ways: as a Trial, as a script of ours, and as a script for torchrun.

Each rank writes `<rank> <step> <seconds since the epoch>` lines, so that steps can be timed from outside, all alike.
"""

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
RECORDS, BATCH = int(os.environ.get("RECORDS", "4096")), 64
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))
"""Before each step, for small forms: ranks that wait to be killed leave the processors to others."""


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def make_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    return TensorDataset(torch.randn(RECORDS, 3, 32, 32, generator=generator), torch.randint(10, (RECORDS,), generator=generator))


class Clock:
    def __init__(self, rank: int) -> None:
        self._file = open(os.environ["STEPS_FILE"], "a", buffering=1)  # noqa: SIM115 - as long as the process
        self._rank = rank

    def tick(self, step: int) -> None:
        self._file.write(f"{os.environ.get('TENUTO_ALLOCATION_ID', '-')} {self._rank} {step} {time.time()}\n")
        if PAUSE_SECONDS:
            time.sleep(PAUSE_SECONDS)


class RanksTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(make_model())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9))
        self.clock = Clock(context.rank)

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(make_data(), batch_size=BATCH, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(make_data(), batch_size=512)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.clock.tick(batch_idx)
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, float]:
        return {"loss": 0.0}
