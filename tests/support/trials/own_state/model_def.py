"""A sampler with generators and a count of its own, or a stream, and a trial that keeps generators, tensors and lists of the
model's parameters as attributes, by which it clips and averages, and numbers in its module, its class and a default: in one
process, or divided among ranks. `kind` says which data."""

import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Sampler

from tenuto import pytorch

RECORDS, BATCH = 40, 8
OWN, CALLS = np.random.default_rng(11), 0


def remembered(last=[0.0]):  # noqa: B006
    """Number that a global and a default remember."""
    global CALLS
    CALLS += 1
    last[0] = 0.9 * last[0] + CALLS
    return last[0] / 100


class Records(Dataset):
    def __init__(self):
        self.noise = np.random.default_rng(8)

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        return torch.tensor([index / RECORDS, 1 + 0.1 * self.noise.random()], dtype=torch.float32)


class Everything(Sampler):
    """A generator of each kind, under any name, and a count of passes."""

    def __init__(self):
        self.python, self.numbers = random.Random(5), np.random.default_rng(6)
        self.anything = torch.Generator().manual_seed(7)
        self.passes = 0

    def __len__(self):
        return RECORDS

    def __iter__(self):
        self.passes += 1
        order = torch.randperm(RECORDS, generator=self.anything).tolist()
        self.python.shuffle(order)
        order = [order[place] for place in self.numbers.permutation(RECORDS)]
        return iter(order[self.passes :] + order[: self.passes])


class Batches(Sampler):
    """A sampler inside."""

    def __init__(self):
        self.inner = Everything()

    def __len__(self):
        return RECORDS // BATCH

    def __iter__(self):
        order = list(self.inner)
        return iter([order[place : place + BATCH] for place in range(0, RECORDS, BATCH)])


class Stream(IterableDataset):
    def __init__(self):
        self.rng, self.passes = random.Random(9), 0

    def __len__(self):
        return RECORDS

    def __iter__(self):
        self.passes += 1
        for _ in range(RECORDS):
            yield torch.tensor([self.rng.random() + self.passes, 1.0])


class OwnTrial(pytorch.PyTorchTrial):
    steps = 0

    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(2, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.python, self.numbers = random.Random(1 + context.rank), np.random.default_rng(2)
        self.params = [value for value in self.model.parameters() if value.requires_grad]
        self.averages = [value.detach().clone() for value in self.params]
        self.groups = self.optimizer.param_groups
        self.kept = {"generator": torch.Generator().manual_seed(3), "sum": torch.zeros(2), "count": 0}

    def build_training_data_loader(self):
        kind = self.context.get_hparam("kind")
        if kind == "stream":
            return pytorch.DataLoader(Stream(), batch_size=BATCH)
        if kind == "batches":
            return pytorch.DataLoader(Records(), batch_sampler=Batches(), num_workers=2)
        return pytorch.DataLoader(Records(), batch_size=BATCH, sampler=Everything())

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Records(), batch_size=BATCH)

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.kept["count"] += 1
        self.kept["sum"] += torch.rand(2, generator=self.kept["generator"]) * self.python.random()
        shift = self.kept["sum"].sum() + self.kept["count"] * self.numbers.random()
        self.groups[0]["lr"] = 0.01 / (1 + 0.1 * batch_idx)
        shift = shift + sum(value.sum() for value in self.averages) + remembered() * OWN.random() + OwnTrial.steps
        OwnTrial.steps += 0.01
        loss = (self.model(batch) - 0.01 * shift).square().mean()
        self.context.backward(loss)
        nn.utils.clip_grad_norm_(self.params, 0.01)
        self.context.step_optimizer(self.optimizer)
        for average, value in zip(self.averages, self.params, strict=True):
            average.mul_(0.9).add_(value.detach(), alpha=0.1)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).square().mean()}
