"""A trial for several ranks: it notes which records each rank was given, and does at a batch what the environment says, or the
hyperparameter `variables`: with variables of its own a run would need another warm process."""

import copy
import gc
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from tenuto import pytorch
from tenuto.workers.connection.directives import DirectiveBox

RECORDS = 53
BATCH = 9
"""Neither divides: the last batch of an epoch has 8 records."""


class Records(Dataset):
    def __init__(self, first, noise=0.0):
        self.inputs = torch.randn(RECORDS, 12, generator=torch.Generator().manual_seed(first))
        self.labels = (self.inputs.sum(dim=1) > 0).long()
        self.noise = noise

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        be_slow("data")
        return self.inputs[index] + self.noise * torch.randn(12), self.labels[index], index


class Stream(IterableDataset):
    """The same records, in order."""

    def __iter__(self):
        return (records[index] for records in [Records(1)] for index in range(RECORDS))


def checksum(values):
    """Of the records trained since the last report, in any order."""
    return sum((index + 1) ** 2 for indices in values for index in indices)


class RankedTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        os.environ.update(context.get_hparams().get("variables", {}))
        # Before batch norm a bias has no gradient but rounding, which Adam would make steps of.
        layers = [nn.Linear(12, 16, bias=not context.get_hparams().get("norm")), nn.ReLU(), nn.Linear(16, 2)]
        if context.get_hparam("random"):
            layers.insert(2, nn.Dropout(0.3))
            layers.insert(1, nn.BatchNorm1d(16))
        if context.get_hparams().get("norm"):
            layers.insert(1, nn.BatchNorm1d(16))
        model, copies = nn.Sequential(*layers), context.get_hparams().get("copies")
        if copies == "before":
            self.average = context.wrap_model(copy.deepcopy(model))
        self.model = context.wrap_model(model)
        if copies == "after":
            self.average = copy.deepcopy(self.model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=context.get_hparams().get("lr", 0.01))
        )
        self.batch = context.get_hparam("batch")
        if context.get_hparams().get("per_slot"):
            self.batch = context.get_per_slot_batch_size()
        self.checksum = context.wrap_reducer(checksum, name="checksum", for_validation=False)
        self.seen = 0
        print(f"this is rank {context.rank}")

    def build_training_data_loader(self):
        workers = self.context.get_hparam("loader_workers")
        noise = self.context.get_hparam("noise")
        if self.context.get_hparams().get("stream"):
            return pytorch.DataLoader(Stream(), batch_size=self.batch)
        return pytorch.DataLoader(Records(1, noise), batch_size=self.batch, shuffle=True, num_workers=workers)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Records(2), batch_size=10)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, labels, indices = batch
        self._act(batch_idx)
        be_slow("step")
        records = self.context._share[0] if self.context.slots > 1 else len(indices)
        note(f"train {epoch_idx} {batch_idx} {self.context.rank} {','.join(map(str, indices.tolist()[:records]))}")
        self.checksum.update(indices[:records].tolist())
        if self.context.get_hparams().get("holds_back"):
            self.model.set_requires_gradient_sync(self.context.steps_optimizers())
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if self.context.get_hparams().get("copies"):
            with torch.no_grad():
                for average, parameter in zip(self.average.parameters(), self.model.parameters(), strict=True):
                    average.lerp_(parameter, 0.1)
        self.seen += records
        return {"loss": loss}

    def evaluate_batch(self, batch):
        inputs, labels, indices = batch
        note(f"validate {self.context.rank} {','.join(map(str, indices.tolist()))}")
        output = self.model(inputs)
        return {
            "loss": nn.functional.cross_entropy(output, labels),
            "accuracy": (output.argmax(dim=1) == labels).float().mean(),
        }

    def _act(self, batch_idx):
        """TEST_ACT: `what rank batch`, once."""
        what, rank, batch = os.environ.get("TEST_ACT", "nothing 0 -1").split()
        if (int(rank), int(batch)) != (self.context.rank, batch_idx):
            return
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise ValueError("no data for this rank")
        if what == "sleep":
            time.sleep(600)
        if what == "hold":
            Path(os.environ["TEST_HELD"]).touch()
            while not Path(os.environ["TEST_GO"]).exists():
                time.sleep(0.01)
        if what == "told":  # in the batch until the harness was told to leave, so that this batch is the last
            [box] = [item for item in gc.get_objects() if isinstance(item, DirectiveBox)]
            Path(os.environ["TEST_HELD"]).touch()
            while not box.current.leave:
                time.sleep(0.01)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def be_slow(where):
    """TEST_SLOW: `where rank seconds`, each time."""
    what, rank, seconds = os.environ.get("TEST_SLOW", "nowhere 0 0").split()
    if (what, rank) == (where, os.environ.get("RANK")):
        time.sleep(float(seconds))


def note(text):
    if path := os.environ.get("TEST_NOTES"):
        with open(path, "a") as file:
            file.write(f"{text}\n")
