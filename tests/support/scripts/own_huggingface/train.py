"""Hugging Face's Trainer with a loader of the user's own."""

from __future__ import annotations

from typing import Any

import torch
from own_samplers import RECORDS, Records, loader
from torch import nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments, set_seed

import tenuto
from tenuto import huggingface


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.layer(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(output, labels), "logits": output}


class OwnTrainer(Trainer):
    def get_train_dataloader(self) -> Any:
        return self.accelerator.prepare(loader(DataLoader))


with tenuto.init() as run:
    set_seed(1)
    run.epoch_batches = RECORDS // 8
    arguments = TrainingArguments(
        output_dir=f"output/{run.trial_id}",
        max_steps=run.max_steps,
        learning_rate=0.05,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    huggingface.train(OwnTrainer(model=Model(), args=arguments, train_dataset=Records(), eval_dataset=Records()), run)
