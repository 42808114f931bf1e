"""A trial in which everything that can be random is: weights, order, augmentation by three generators, dropout, collation."""

import os
import random
import signal

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

from tenuto import pytorch

RECORDS = 90


class Augmented(Dataset):
    def __init__(self, first):
        generator = torch.Generator().manual_seed(first)
        self.inputs = torch.randn(RECORDS, 12, generator=generator)
        self.labels = (self.inputs.sum(dim=1) > 0).long()

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        noise = torch.randn(12) * 0.1 + random.random() * 0.01 + float(np.random.rand()) * 0.01
        return self.inputs[index] + noise, self.labels[index]


def jittered(items):
    inputs, labels = default_collate(items)
    return inputs * (1 + 0.01 * torch.rand(1)), labels


class AugmentedTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(
            nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
        )
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("learning_rate")))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.9),
            pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
        )
        self.seen = 0
        self.order = list({f"word {number}" for number in range(100)})  # differs per process, unless hashing is fixed

    def build_training_data_loader(self):
        return pytorch.DataLoader(
            Augmented(1),
            batch_size=8,
            shuffle=True,
            collate_fn=jittered,
            num_workers=self.context.get_hparam("loader_workers"),
        )

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Augmented(2), batch_size=32)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        # Every third batch steps: gradients of the others wait, and a checkpoint between must keep them.
        self.context.backward(loss)
        self.seen += len(labels)
        if batch_idx % 3 == 2:
            self.context.step_optimizer(self.optimizer, clip_grads=lambda p: nn.utils.clip_grad_norm_(list(p), 1.0))
        if str(batch_idx) == os.environ.get("TEST_SIGTERM_AT"):
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": loss, "noise": random.random() + float(torch.rand(()))}

    def evaluate_batch(self, batch):
        inputs, labels = batch
        output = self.model(inputs)
        random.random(), torch.rand(3), np.random.rand()  # evaluation must leave no trace in training
        return {
            "loss": nn.functional.cross_entropy(output, labels),
            "accuracy": (output.argmax(dim=1) == labels).float().mean(),
            "seen": self.seen,
            "hashing": self.order.index("word 1"),
        }

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]
