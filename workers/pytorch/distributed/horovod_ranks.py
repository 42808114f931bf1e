"""Ranks of a trial that Horovod connects (`distributed: {strategy: horovod}`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tenuto.workers.horovod import rendezvous
from tenuto.workers.pytorch.distributed.ranks import Ranks

TOGETHER_BYTES = 1 << 20
"""Size above which a copy costs more than a separate message."""


class HorovodRanks(Ranks):
    """Horovod's operations have names, equal on all ranks and in every step: an operation that it has agreed on once is faster
    the next time."""

    def _open(self) -> None:
        rendezvous.prepare(self.gang)
        # Gradients come in buckets already; and which of them meet in Horovod's own depends on time, and with it the sums' order.
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", "0")
        import horovod.torch as hvd  # type: ignore[import-not-found]

        self._hvd: Any = hvd
        self._names: dict[int, tuple[torch.Tensor, str]] = {}
        """Names of tensors that are summed again and again, by identity, in the order of their first sum."""
        hvd.init()

    def start_sum(self, tensor: torch.Tensor) -> Callable[[], Any]:
        _, name = self._names.setdefault(id(tensor), (tensor, f"tenuto.sum.{len(self._names)}"))
        handle = self._hvd.allreduce_async_(tensor, name=name, op=self._hvd.Sum)
        return lambda: self._hvd.synchronize(handle)

    def sum_now(self, tensor: torch.Tensor) -> None:
        # A name stands for one shape: for another one the ranks would have to agree anew.
        shape = ".".join(map(str, tensor.shape))
        self._hvd.allreduce_(tensor, name=f"tenuto.numbers.{tensor.dtype}.{shape}", op=self._hvd.Sum)

    def objects(self, value: Any) -> list[Any]:
        found: list[Any] = self._hvd.allgather_object(value, name="tenuto.objects")
        return found

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Small tensors are sent together: each message waits for a cycle of Horovod's."""
        sent = []
        for index, group in enumerate(_groups(tensors)):
            flat = group[0] if len(group) == 1 else torch.cat([tensor.reshape(-1) for tensor in group])
            name = f"tenuto.broadcast.{index}.{flat.dtype}.{flat.numel()}"
            sent.append((group, flat, self._hvd.broadcast_async_(flat, 0, name=name)))
        for group, flat, handle in sent:
            self._hvd.synchronize(handle)
            if len(group) > 1 and not self.leads:
                pieces = torch.split(flat, [tensor.numel() for tensor in group])
                for tensor, piece in zip(group, pieces, strict=True):
                    tensor.copy_(piece.view(tensor.shape))


def _groups(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Groups of tensors of one type on one device, up to a size; the same on all ranks."""
    groups: list[list[torch.Tensor]] = []
    open_groups: dict[tuple[torch.dtype, torch.device], tuple[list[torch.Tensor], int]] = {}
    for tensor in tensors:
        kind, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        group, filled = open_groups.get(kind, ([], 0))
        if not group or filled + size > TOGETHER_BYTES:
            group, filled = [], 0
            groups.append(group)
        group.append(tensor)
        open_groups[kind] = group, filled + size
    return groups
