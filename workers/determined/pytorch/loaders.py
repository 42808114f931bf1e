"""`pytorch.DataLoader`: its batch is that of one slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset

from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness.batch_sizes import PerSlotBatchSize
from tenuto.workers.pytorch.devices import to_device as move

TorchData = dict[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor


class DataLoader(TorchDataLoader[Any]):
    """torch's DataLoader, with Determined's promises: a training step of a trial on several slots trains a batch on each."""

    def __init__(self, dataset: Any, batch_size: int | None = 1, *arguments: Any, **named: Any) -> None:
        if isinstance(dataset, IterableDataset):
            raise WillRepeat(
                "an IterableDataset cannot be given to determined's DataLoader, there as here; return a "
                "torch.utils.data.DataLoader of it."
            )
        super().__init__(dataset, batch_size if batch_size is None else PerSlotBatchSize(batch_size), *arguments, **named)

    def get_data_loader(self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0) -> TorchDataLoader[Any]:
        if repeat or skip or num_replicas > 1:
            raise WillRepeat(
                "DataLoader.get_data_loader: Tenuto repeats, skips and divides the data itself; leave out the arguments."
            )
        return self


def data_length(data: Any) -> int:
    """Records in a batch: of its first array or tensor."""
    if isinstance(data, Mapping):
        return len(next(iter(data.values())))
    return len(data[0]) if isinstance(data, (list, tuple)) else len(data)


def to_device(data: Any, device: Any, warned_types: Any = None) -> Any:
    return move(data, torch.device(device))
