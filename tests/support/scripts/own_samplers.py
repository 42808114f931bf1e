"""Data whose order the user's own code decides, for scripts that other libraries' trainers train. KIND says which."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler

RECORDS, BATCH = 48, 8


class Shuffled(Sampler[int]):
    """A generator of Python's, and a count of passes."""

    def __init__(self) -> None:
        self.random, self.passes = random.Random(5), 0

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = list(range(RECORDS))
        self.random.shuffle(order)
        return iter(order[self.passes % 7 :] + order[: self.passes % 7])


class ShuffledBatches(Sampler[list[int]]):
    """A generator of NumPy's, and one of torch's."""

    batch_size, drop_last = BATCH, False

    def __init__(self) -> None:
        self.numbers, self.anothers = np.random.default_rng(3), torch.Generator()

    def __len__(self) -> int:
        return RECORDS // BATCH

    def __iter__(self) -> Iterator[list[int]]:
        order = self.numbers.permutation(RECORDS)
        for row in torch.randperm(len(self), generator=self.anothers).tolist():
            yield order[row * BATCH : (row + 1) * BATCH].tolist()


def record(index: int) -> dict[str, torch.Tensor]:
    values = torch.tensor([index % 7 / 7, index % 5 / 5, index % 3 / 3])
    return {"features": values, "labels": values.sum() ** 2}


class Records(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return record(index)


class Stream(IterableDataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self.random, self.passes = random.Random(11), 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.passes += 1
        for _ in range(RECORDS):
            yield record(self.random.randrange(1000) + self.passes)


class Counted(Stream):
    def __len__(self) -> int:
        return RECORDS


class Noisy(Records):
    """Draws from torch's global generator: the training process's, or a loader worker's."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        made = record(index)
        return made | {"features": made["features"] + torch.rand(3)}


def loader(make: Any) -> Any:
    kind = os.environ["KIND"]
    if kind in ("shuffled", "workers", "noisy"):
        return make(Noisy(), batch_size=BATCH, shuffle=True, num_workers=2 if kind == "workers" else 0)
    if kind == "stream":
        return make(Stream(), batch_size=BATCH)
    if kind == "counted stream":
        return make(Counted(), batch_size=BATCH)
    if kind == "batch sampler":
        return make(Records(), batch_sampler=ShuffledBatches())
    if kind == "endless":
        return make(Records(), batch_size=BATCH, sampler=Endless())
    return make(Records(), batch_size=BATCH, sampler=Shuffled())


class Endless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        draw = random.Random(1)
        while True:
            yield draw.randrange(RECORDS)
