"""Trials on which the others stand."""

from torch import nn

from tenuto import pytorch
from tests.support.exact_trials import Training


class Changed(Training):
    """Its loss depends on `change()`, a number that is another in each batch."""

    def change(self):
        raise NotImplementedError

    def loss(self, output, target):
        return super().loss(output, target) * (1 + 0.1 * float(self.change()))


def of(change):
    """Trial with this function as `change`."""
    return type(change.__name__.title(), (Changed,), {"change": lambda self: change(), "__module__": change.__module__})


class Deep(Training):
    """Two layers and a head; `during(batches)` is called before each batch."""

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.during(len(self.seen))
        return super().train_batch(batch, epoch_idx, batch_idx)

    def during(self, batches):
        """Nothing."""

    def frozen(self, layers, frozen=True):
        for layer in layers:
            self.model[layer].requires_grad_(not frozen)


def context_mode(name):
    return getattr(pytorch.LRScheduler.StepMode, name)
