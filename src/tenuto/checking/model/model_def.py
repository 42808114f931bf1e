"""A small convolutional network on drawn pictures, with all that an exact resume must keep: an order of records that is shuffled
anew in each epoch, dropout, momentum, a learning rate that changes, statistics of batches."""

import hashlib
import os
import signal
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tenuto import pytorch

RECORDS = 2_048
SIDE_PIXELS = 16
CLASSES = 4
DIGEST_BYTES = 6
"""So many bytes of a digest are a whole number that a float64 represents exactly."""


def network(width: int) -> nn.Module:
    """Network for pictures of (records, 3, SIDE_PIXELS, SIDE_PIXELS); `width`: channels of its first layer."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AvgPool2d(SIDE_PIXELS // 4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(8 * width, CLASSES),
    )


def records(seed: int = 1) -> TensorDataset:
    """Pictures whose class is told by which of four corners is the brightest."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(RECORDS, 3, SIDE_PIXELS, SIDE_PIXELS, generator=generator)
    labels = torch.randint(CLASSES, (RECORDS,), generator=generator)
    half = SIDE_PIXELS // 2
    for number, label in enumerate(labels.tolist()):
        pictures[number, :, half * (label // 2) :, half * (label % 2) :][:, :half, :half] += 0.3
    return TensorDataset(pictures, labels)


def digest(model: nn.Module) -> float:
    """Whole number that tells two states of a model apart, however little they differ."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return float(int.from_bytes(found.digest()[:DIGEST_BYTES], "big"))


class CheckTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(network(context.get_hparam("width")))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9))
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.7))
        self.training = records()
        self.begun: list[float] = []
        """Times at which batches began, in seconds of this machine's clock."""
        # The run that is killed is the first one of its trial; the next one goes on from a checkpoint.
        first = os.environ.get("TENUTO_ALLOCATION_ID", "").endswith("-1")
        self.killed_at = int(context.get_hparam("killed_at")) if first else 0

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.training, batch_size=self.context.get_per_slot_batch_size(), shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(TensorDataset(*records(seed=2)[:256]), batch_size=256)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        self.begun.append(time.perf_counter())
        if self.killed_at and batch_idx >= self.killed_at and self.context.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        pictures, labels = batch
        loss = nn.functional.cross_entropy(self.model(pictures), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, float]:
        (batch,) = data_loader
        pictures, labels = self.context.to_device(batch)
        right = (self.model(pictures).argmax(dim=1) == labels).float().mean().item()
        return {"accuracy": right, "weights": digest(self.model), **self.times()}

    def times(self) -> dict[str, float]:
        """Steps per second between checkpoints, and the time in seconds that a checkpoint keeps the next step waiting; zeros
        where there were too few batches."""
        period = int(self.context.get_hparam("checkpoint_batches"))
        # The first period makes caches, and chooses kernels.
        gaps = [
            (number, later - earlier)
            for number, (earlier, later) in enumerate(zip(self.begun, self.begun[1:], strict=False), start=1)
            if number > period
        ]
        plain = [gap for number, gap in gaps if number % period]
        saving = [gap for number, gap in gaps if number % period == 0]
        if not plain or not saving or sum(plain) <= 0:
            return {"steps_per_second": 0.0, "stall_seconds": 0.0}
        step = sum(plain) / len(plain)
        return {"steps_per_second": 1 / step, "stall_seconds": max(0.0, sum(saving) / len(saving) - step)}
