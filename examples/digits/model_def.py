"""A small CNN on scikit-learn's digits: 1,797 images of 8x8 pixels, ten classes. Trains in seconds on a CPU."""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from tenuto import pytorch

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""
SHIFT_PIXELS_MAX = 1

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


class ShiftedDigits(Dataset[tuple[Tensor, Tensor]]):
    """Training images, each time shifted by up to one pixel in each direction."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = nn.functional.pad(images, (SHIFT_PIXELS_MAX,) * 4), labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        down, right = torch.randint(0, 2 * SHIFT_PIXELS_MAX + 1, (2,)).tolist()
        return self.images[index, :, down : down + 8, right : right + 8], self.labels[index]


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        channels, activation = context.get_hparam("channels"), ACTIVATIONS[context.get_hparam("activation")]
        model = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            activation(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.BatchNorm2d(2 * channels),
            activation(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(context.get_hparam("dropout")),
            nn.Linear(2 * channels * 4, 10),
        )
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(
                self.model.parameters(),
                lr=context.get_hparam("learning_rate"),
                weight_decay=context.get_hparam("weight_decay"),
            )
        )
        context.wrap_lr_scheduler(torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.5))
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(digits.target)
        held_out = torch.arange(len(labels)) % VALIDATION_EVERY == 0
        self.training = ShiftedDigits(images[~held_out], labels[~held_out])
        self.validation = TensorDataset(images[held_out], labels[held_out])

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.training, batch_size=self.context.get_hparam("batch_size"), shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(self.validation, batch_size=128)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Tensor]:
        images, labels = batch
        output = self.model(images)
        return {
            "validation_loss": nn.functional.cross_entropy(output, labels),
            "accuracy": (output.argmax(dim=1) == labels).float().mean(),
        }
