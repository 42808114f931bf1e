"""A GAN in which everything that a resumed trial could get wrong is at work: two models, two optimizers, two schedulers, mixed
precision, gathered gradients, dropout, shuffling, augmentation by several generators, callbacks with state, a custom reducer."""

import gc
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from tenuto import pytorch
from tenuto.workers.connection.directives import DirectiveBox

RECORDS = 50


class Points(Dataset):
    def __init__(self):
        self.points = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(1))
        self.generator = np.random.default_rng(3)  # of its own: a resumed trial must find it where it was

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        noise = torch.randn(6) + random.random() + float(np.random.rand()) + float(self.generator.random())
        return self.points[index] + 0.1 * noise


class PointStream(IterableDataset):
    def __init__(self):
        self.next_record = 0

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        while (record := first + step * self.next_record) < RECORDS:
            self.next_record += 1
            yield torch.full((6,), float(record)) / RECORDS + 0.1 * torch.randn(6) + random.random()
        self.next_record = 0

    def state_dict(self):
        return {"next_record": self.next_record}

    def load_state_dict(self, state):
        self.next_record = state["next_record"]


class Unfreeze(pytorch.PyTorchCallback):
    """Changes what no state dict holds: which parameters train, and a module's mode."""

    def __init__(self, trial):
        self.trial, self.best, self.epochs = trial, float("inf"), 0

    def on_training_start(self):
        random.random()  # what this draws must not reach the training: it runs once per process

    def on_epoch_end(self, epoch_idx):
        self.epochs += 1
        self.trial.generator[0].bias.requires_grad_(self.epochs % 2 == 0)

    def on_validation_end(self, metrics):
        self.best = min(self.best, metrics["distance"])
        self.trial.discriminator[2].p = 0.1 + 0.1 * random.random()

    def state_dict(self):
        return {"best": self.best, "epochs": self.epochs, "p": self.trial.discriminator[2].p}

    def load_state_dict(self, state):
        self.best, self.epochs, self.trial.discriminator[2].p = state["best"], state["epochs"], state["p"]


class Everything(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.generator = context.wrap_model(nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 6)))
        self.discriminator = context.wrap_model(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 1)))
        self.optimizers = [
            context.wrap_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
            for model in (self.generator, self.discriminator)
        ]
        for optimizer, mode in zip(self.optimizers, ("STEP_EVERY_OPTIMIZER_STEP", "STEP_EVERY_EPOCH"), strict=True):
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
            context.wrap_lr_scheduler(scheduler, pytorch.LRScheduler.StepMode[mode])
        self.largest = context.wrap_reducer(max, name="largest")
        self.batches_per_epoch = 7

    def build_callbacks(self):
        return {"unfreeze": Unfreeze(self)}

    def build_training_data_loader(self):
        stream, workers = self.context.get_hparam("stream"), self.context.get_hparam("loader_workers")
        if stream:
            return pytorch.DataLoader(PointStream(), batch_size=8, num_workers=workers)
        return pytorch.DataLoader(Points(), batch_size=8, shuffle=True, num_workers=workers)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Points(), batch_size=25)

    def train_batch(self, batch, epoch_idx, batch_idx):
        kill_at(batch_idx)
        self.hold_at(batch_idx, self.context.get_hparams().get("hold"))
        context, judge = self.context, nn.functional.binary_cross_entropy_with_logits
        made = self.generator(torch.randn(len(batch), 4))
        real, fake = self.discriminator(batch), self.discriminator(made.detach())
        judged = judge(real.float(), torch.ones(len(batch), 1)) + judge(fake.float(), torch.zeros(len(batch), 1))
        context.backward(judged)
        context.step_optimizer(self.optimizers[1])
        # Gradients of this loss reach the discriminator after its step, stay there, and count in its next one.
        fooled = judge(self.discriminator(made).float(), torch.ones(len(batch), 1))
        context.backward(fooled)
        context.step_optimizer(self.optimizers[0], clip_grads=lambda p: nn.utils.clip_grad_norm_(list(p), 0.5))
        self.largest.update(float(judged.detach()))
        return {"judged": judged, "fooled": fooled}

    def hold_at(self, batch_idx, directory):
        """Waits while there is a file with the batch's number as its name, or until this worker is told to leave."""
        if directory is None or not (held := Path(directory) / str(batch_idx)).exists():
            return
        # The same that the training loop looks at after each batch.
        box = next(one for one in gc.get_objects() if isinstance(one, DirectiveBox))
        while held.exists() and not box.current.leave:
            time.sleep(0.01)

    def evaluate_batch(self, batch):
        self.largest.update(float(batch.max()))
        return {"distance": (self.generator(torch.randn(len(batch), 4)).float().mean(0) - batch.mean(0)).abs().sum()}


def kill_at(batch_idx):
    """TEST_KILL_AT=batch:microseconds: kills this process and its loader workers so long after the batch began."""
    batch, _, microseconds = os.environ.get("TEST_KILL_AT", "").partition(":")
    if batch == str(batch_idx):
        threading.Timer(int(microseconds) / 1e6, lambda: os.killpg(os.getpgid(0), signal.SIGKILL)).start()
    if os.environ.get("TEST_PREEMPT_AT") == str(batch_idx):
        os.kill(os.getpid(), signal.SIGTERM)
