"""Lightning's Trainer with a loader of the user's own."""

from __future__ import annotations

import os
from typing import Any

import lightning
import torch
from own_samplers import Records, loader
from torch import nn
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import tenuto
from tenuto.lightning import fit


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        return nn.functional.mse_loss(self.layer(batch["features"]).squeeze(-1), batch["labels"])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("eval_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def train_dataloader(self) -> Any:
        return loader(StatefulDataLoader if "STATEFUL" in os.environ else DataLoader)


with tenuto.init() as run:
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    # In its own hook, or given, by turns: the loader is found in both.
    given = {"train_dataloaders": loader(DataLoader)} if os.environ["KIND"] in ("sampler", "workers") else {}
    if "SEVERAL" in os.environ:
        given = {"train_dataloaders": [loader(DataLoader), loader(DataLoader)]}
    fit(trainer, Model(), run, val_dataloaders=DataLoader(Records(), batch_size=8), **given)
