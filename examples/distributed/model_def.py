"""A small transformer that learns to sort digits: the same Trial on one slot or many, its model whole (DDP) or divided (FSDP)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tenuto import pytorch

DIGITS, LENGTH = 10, 12


class Sequences(Dataset[tuple[Tensor, Tensor]]):
    """Sequence `index` is a function of its number, so every slot sees the same data set without sharing files."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        digits = torch.randint(DIGITS, (LENGTH,), generator=torch.Generator().manual_seed(self.first + index))
        return digits, digits.sort().values


class Sorter(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(DIGITS, width)
        self.position = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, DIGITS)

    def forward(self, digits: Tensor) -> Tensor:
        hidden = self.embedding(digits) + self.position
        for layer in self.layers:
            hidden = layer(hidden)
        result: Tensor = self.head(hidden)
        return result


class SortingTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(Sorter(context.get_hparam("width"), context.get_hparam("layers")))
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )

    def build_training_data_loader(self) -> pytorch.DataLoader[Any]:
        # The batch of the whole trial, whatever the number of slots: each is given its share.
        return pytorch.DataLoader(Sequences(0, 4096), batch_size=self.context.get_global_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader[Any]:
        return pytorch.DataLoader(Sequences(1_000_000, 500), batch_size=100)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        digits, ordered = batch
        loss = nn.functional.cross_entropy(self.model(digits).flatten(0, 1), ordered.flatten())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any) -> dict[str, Tensor]:
        digits, ordered = batch
        scores = self.model(digits)
        return {
            "loss": nn.functional.cross_entropy(scores.flatten(0, 1), ordered.flatten()),
            "accuracy": (scores.argmax(dim=-1) == ordered).float().mean(),
        }
