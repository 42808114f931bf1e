"""Trials with optimizers, schedulers, averages of weights and data of many kinds."""

import copy
import functools
import random
from collections import deque

import numpy as np
import torch
from changed import Changed
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, IterableDataset, Sampler

from tenuto.pytorch import LRScheduler
from tests.support.exact_trials import BATCH, RECORDS, Records, Training

EACH_STEP = LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP


def optimized(make):
    """Trial with this optimizer."""
    return type("Optimized", (Training,), {"make": staticmethod(make), "__module__": __name__})


Adam = optimized(lambda parameters: torch.optim.Adam(parameters, lr=1e-2, amsgrad=True))
AdamW = optimized(lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))
NAdam = optimized(lambda parameters: torch.optim.NAdam(parameters, lr=1e-2))
RAdam = optimized(lambda parameters: torch.optim.RAdam(parameters, lr=1e-2))
Adagrad = optimized(lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2))
Rprop = optimized(lambda parameters: torch.optim.Rprop(parameters, lr=1e-2))
ASGD = optimized(lambda parameters: torch.optim.ASGD(parameters, lr=1e-2, t0=2))
RMSprop = optimized(lambda parameters: torch.optim.RMSprop(parameters, lr=1e-2, momentum=0.9, centered=True))


def scheduled(make, mode=EACH_STEP):
    """Trial with this scheduler."""

    class Scheduled(Training):
        def __init__(self, context):
            super().__init__(context)
            self.scheduler = make(self.optimizer)
            context.wrap_lr_scheduler(self.scheduler, mode)

    return Scheduled


Steps = scheduled(lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.5))
Cosine = scheduled(lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2))
OneCycle = scheduled(lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=20))
Cyclic = scheduled(lambda optimizer: lr_scheduler.CyclicLR(optimizer, 1e-3, 1e-2, 3, mode="exp_range", gamma=0.9))
Multiplied = scheduled(lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.9 + 0.01 * step))


def counting():
    """Function of a number that also remembers how often it was called."""
    calls = {"count": 0}

    def rate(step):
        calls["count"] += 1
        return 1 / (1 + 0.1 * calls["count"])

    return rate


class Listened(lr_scheduler.LambdaLR):
    """A scheduler of the user's that derives from torch's, which keeps the function."""

    def __init__(self, optimizer, rate):
        self.rates = []
        super().__init__(optimizer, rate)

    def step(self, *arguments):
        super().step(*arguments)
        self.rates.append(self.get_last_lr()[0])


Derived = scheduled(lambda optimizer: Listened(optimizer, counting()))
Chained = scheduled(
    lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.1, 3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )
)
Sequential = scheduled(
    lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 1, 4), lr_scheduler.PolynomialLR(optimizer, 9)], [4]
    )
)


class Plateau(Training):
    def __init__(self, context):
        super().__init__(context)
        self.scheduler = lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.5, patience=1, cooldown=1, threshold=0.5)
        context.wrap_lr_scheduler(self.scheduler, LRScheduler.StepMode.MANUAL_STEP)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = super().train_batch(batch, epoch_idx, batch_idx)
        self.scheduler.step(float(loss))
        return loss


class UnwrappedScheduler(Training):
    """One that the trial steps, with a rate that a function remembers."""

    def __init__(self, context):
        super().__init__(context)
        self.rates = {"step": lr_scheduler.StepLR(self.optimizer, 2, 0.9)}

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = super().train_batch(batch, epoch_idx, batch_idx)
        self.rates["step"].step()
        return loss


class Swa(Changed):
    def __init__(self, context):
        super().__init__(context)
        self.average = AveragedModel(self.model)
        self.rates = SWALR(self.optimizer, 0.01, 3)

    def change(self):
        if len(self.seen) > 4:
            self.average.update_parameters(self.model)
            self.rates.step()
        return self.average.module.weight.sum()


class Ema(Changed):
    """An average with torch's function, through a deepcopy that the trial keeps."""

    def __init__(self, context):
        super().__init__(context)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

    def change(self):
        self.average.update_parameters(self.model)
        return self.average.module.weight.sum() + self.average.n_averaged


class Swapped(Changed):
    """The weights are exchanged with those of an average, and back."""

    def __init__(self, context):
        super().__init__(context)
        self.backup, self.shadow = None, copy.deepcopy(self.model.state_dict())

    def change(self):
        self.backup = {name: value.clone() for name, value in self.model.state_dict().items()}
        for name, value in self.shadow.items():
            value.lerp_(self.backup[name], 0.1)
        return self.shadow["weight"].sum()


class Scaled(Training):
    """A scaler that grows."""

    def __init__(self, context):
        super().__init__(context)
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2))

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.seen.append(batch[:, 0].tolist())
        loss = self.loss(self.model(batch / RECORDS), batch / RECORDS)
        self.losses.append(self.scaler.get_scale())
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        self.scaler.update()
        return loss


class BatchNorm(Training):
    net = staticmethod(lambda: nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 1)))


class Dropout(Training):
    net = staticmethod(lambda: nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.3), nn.AlphaDropout(0.2), nn.Linear(8, 1)))


class Noise(Changed):
    """From the global generators."""

    def change(self):
        return torch.randn(1) + np.random.normal() + random.random()


class Replay(Changed):
    """A memory of what was seen, sampled."""

    def __init__(self, context):
        super().__init__(context)
        self.memory, self.rng = deque(maxlen=7), random.Random(1)

    def change(self):
        self.memory.append((torch.rand(1), len(self.memory)))
        return self.rng.choice(self.memory)[0]


# Data.

DRAWN = np.random.default_rng(9)
PASSES = 0


class OwnSampler(Sampler):
    def __init__(self):
        self.passes, self.rng = 0, random.Random(2)

    def __len__(self):
        return RECORDS

    def __iter__(self):
        self.passes += 1
        return iter(self.rng.sample(range(RECORDS), RECORDS)[self.passes :] + [0] * self.passes)


class Sampled(Training):
    def build_training_data_loader(self):
        return DataLoader(Records(), batch_size=BATCH, sampler=OwnSampler())


class GlobalSampler(OwnSampler):
    def __iter__(self):
        return iter(DRAWN.permutation(RECORDS).tolist())


class SampledByGlobal(Training):
    def build_training_data_loader(self):
        return DataLoader(Records(), batch_size=BATCH, sampler=GlobalSampler())


def jittered(rng, records):
    return torch.stack(records) + float(rng.normal())


class Collated(Training):
    """Noise of a generator that the function for batches holds."""

    def build_training_data_loader(self):
        collate = functools.partial(jittered, np.random.default_rng(6))
        return DataLoader(Records(), batch_size=BATCH, shuffle=True, collate_fn=collate)


class Stream(IterableDataset):
    def __init__(self):
        self.rng, self.given = np.random.default_rng(4), 0

    def __iter__(self):
        for _ in range(RECORDS):
            self.given += 1
            yield torch.tensor([float(self.rng.integers(RECORDS)) + self.given / 100])


class Streamed(Training):
    def build_training_data_loader(self):
        return DataLoader(Stream(), batch_size=BATCH)

    batches_per_epoch = 6


class AveragedByClosure(Training):
    """The average's weight follows what a function remembers that torch's object holds."""

    def __init__(self, context):
        super().__init__(context)
        rate = counting()
        self.average = AveragedModel(self.model, avg_fn=lambda old, new, count: torch.lerp(old, new, rate(0)))

    def loss(self, output, target):
        self.average.update_parameters(self.model)
        return super().loss(output, target) * (1 + 0.1 * float(next(self.average.parameters()).detach().sum()))
