"""Several of the loader's batches as one step: the records of each rank."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch import data
from tenuto.workers.pytorch.distributed.shards import Shard, Sharded

SEED = 11


class Noisy(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, float(torch.rand(()))], dtype=torch.float64)


def of_steps(count: int, size: int, step: int, start: int = 0, limit: int = 0) -> list[list[Any]]:
    """By step: the records, as all ranks have them."""

    def steps(position: int) -> int:
        found = min(step, 6 - position % 6)
        return min(found, limit - position) if limit > position else found

    loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
    ranks = [islice(data.training_batches(loader, SEED, start, None, Shard(rank, size), steps), count) for rank in range(size)]
    return [
        [tuple(row) for share in shares for row in share.batch.tolist()[: share.records]] for shares in zip(*ranks, strict=True)
    ]


def test_steps_of_several_batches_hold_the_records_of_single_ones() -> None:
    single = [record for step in of_steps(12, 1, 1) for record in step]
    assert [len(step) for step in of_steps(3, 4, 4)] == [16, 7, 16], "fewer at the end of an epoch"
    assert [record for step in of_steps(4, 4, 4) for record in step] == single, "made alike, augmentation too"
    assert [record for step in of_steps(4, 3, 3) for record in step] == single
    assert [len(step) for step in of_steps(3, 4, 4, start=4, limit=9)] == [7, 12, 11], "and at a target"
    assert [record for step in of_steps(3, 4, 4, start=4, limit=9) for record in step] == single[16:46]


def test_batches_that_the_dataset_makes_cannot_be_put_together() -> None:
    loader = DataLoader(Noisy(), batch_size=None)
    with pytest.raises(UserError, match="give the DataLoader a batch_size"):
        data.training_batches(loader, SEED, 0, None, Shard(0, 2), lambda _: 2)


def test_ranks_take_a_stream_batch_each() -> None:
    batches = [torch.tensor([1, 2]), torch.tensor([3])]
    assert data.share_of_stream(batches, [2, 1], Shard(1, 2)) == Sharded(batches[1], 1, 3)
    assert data.share_of_stream(batches, [2, 1], Shard(2, 3)) == Sharded(batches[1], 0, 3), "no batch for it: no weight"
