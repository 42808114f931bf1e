"""Data of a Keras trial that draws from generators of its own gives the same batches from any position on. Run as a program."""

from __future__ import annotations

import os
import random
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader

from tenuto.workers.keras import data
from tests.support.exact_trials import BATCH, EPOCH_BATCHES, Records
from tests.unit.test_exact_samplers import OwnNumpy, PassCounter, Wrapping

SEED, END = 7, 2 * EPOCH_BATCHES + 3


class Augmented(keras.utils.PyDataset):  # type: ignore[misc]
    """Draws noise from generators of its own, and an order at the end of each epoch."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rng, self.shuffler = np.random.default_rng(1), random.Random(2)
        self.order = list(range(EPOCH_BATCHES))

    def __len__(self) -> int:
        return EPOCH_BATCHES

    def __getitem__(self, index: int) -> Any:
        return np.full(2, self.order[index]) + self.rng.random(2)

    def on_epoch_end(self) -> None:
        self.shuffler.shuffle(self.order)


def build() -> None: ...


KINDS: dict[str, Any] = {
    "PyDataset": Augmented,
    "own generator": lambda: DataLoader(Records(), batch_size=BATCH, sampler=OwnNumpy()),
    "count of passes": lambda: DataLoader(Records(), batch_size=BATCH, sampler=Wrapping(PassCounter())),
}


def opened(kind: str, notes: list[str]) -> Any:
    found = data.training_batches(
        KINDS[kind](), build, seed=SEED, batch_size=BATCH, shuffle=True, epoch_batches=None, note=notes.append
    )
    found.seek(0, None)
    return found


def goes_on_from_any_position(kind: str) -> None:
    notes: list[str] = []
    whole, places, expected = opened(kind, notes), [], []
    for _ in range(END):
        places.append(whole.place())
        expected.append(torch.as_tensor(whole.next_batch()))
    for position in (1, 4, EPOCH_BATCHES, EPOCH_BATCHES + 2, END - 1):
        resumed = opened(kind, notes)
        resumed.seek(position, places[position])
        rest = [torch.as_tensor(resumed.next_batch()) for _ in range(END - position)]
        assert all(torch.equal(one, other) for one, other in zip(rest, expected[position:], strict=True)), (kind, position)
    assert notes == [], notes


def says_that_threads_share_a_generator() -> None:
    notes: list[str] = []
    data.training_batches(
        Augmented(workers=2), build, seed=SEED, batch_size=BATCH, shuffle=True, epoch_batches=None, note=notes.append
    ).close()
    assert len(notes) == 1
    assert "Augmented draws from a generator of its own in 2 threads at once" in notes[0]


for name in sorted(KINDS):
    goes_on_from_any_position(name)
says_that_threads_share_a_generator()
print("all as it was")
