"""A small network on scikit-learn's digits, trained by Lightning.

In a cluster: tenuto exp create config.yaml . --follow
By hand:      python train.py
"""

import os
from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import tenuto
from tenuto.lightning import fit

VALIDATION_EVERY = 5
"""Each fifth image is kept for validation."""


class Digits(lightning.LightningModule):
    def __init__(self, learning_rate: float, hidden: int, dropout: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.network = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 10))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        images, labels = batch
        output = self.network(images)
        self.log("validation_loss", nn.functional.cross_entropy(output, labels))
        self.log("accuracy", (output.argmax(dim=1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def main() -> None:
    with tenuto.init("config.yaml", hyperparameters={"learning_rate": 0.01, "hidden": 64}) as run:
        lightning.seed_everything(run.trial_seed % 2**32, verbose=False)
        digits = load_digits()
        images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
        held_out = torch.arange(len(labels)) % VALIDATION_EVERY == 0
        # A loader that knows its place: a trial that leaves within an epoch goes on with the next batch, not from the first.
        # Each slot has its share of each epoch, in an order that all know.
        train_set = TensorDataset(images[~held_out], labels[~held_out])
        shares = DistributedSampler(train_set, num_replicas=run.slots, rank=run.rank, seed=run.trial_seed % 2**32)
        training = StatefulDataLoader(train_set, batch_size=32, sampler=shares)
        validation = DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=128)
        run.epoch_batches = len(training)
        trainer = lightning.Trainer(
            max_epochs=-1,  # the search says how long
            devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),  # set where resources.slots_per_trial is more than 1
            num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
            use_distributed_sampler=False,  # training has its own; each slot validates on all images
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        fit(trainer, Digits(**run.hyperparameters), run, train_dataloaders=training, val_dataloaders=validation)


if __name__ == "__main__":
    main()
