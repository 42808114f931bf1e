"""The ranks of a trial as Horovod connects them (`distributed: {strategy: horovod}`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tenuto.workers.horovod import rendezvous
from tenuto.workers.pytorch.distributed.ranks import Ranks


class HorovodRanks(Ranks):
    """Horovod's operations have names, equal on all ranks and in every step: what it has agreed on once goes faster again."""

    def _open(self) -> None:
        rendezvous.prepare(self.gang)
        # Gradients come in buckets already; and which of them meet in Horovod's own depends on time, and with it the sums' order.
        os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", "0")
        import horovod.torch as hvd  # type: ignore[import-not-found]

        self._hvd: Any = hvd
        self._names: dict[int, tuple[torch.Tensor, str]] = {}
        """Of tensors that are summed again and again, by identity, in the order of their first sum."""
        hvd.init()

    def start_sum(self, tensor: torch.Tensor) -> Callable[[], Any]:
        _, name = self._names.setdefault(id(tensor), (tensor, f"tenuto.sum.{len(self._names)}"))
        handle = self._hvd.allreduce_async_(tensor, name=name, op=self._hvd.Sum)
        return lambda: self._hvd.synchronize(handle)

    def sum_now(self, tensor: torch.Tensor) -> None:
        self._hvd.allreduce_(tensor, name="tenuto.numbers", op=self._hvd.Sum)

    def objects(self, value: Any) -> list[Any]:
        found: list[Any] = self._hvd.allgather_object(value, name="tenuto.objects")
        return found

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        handles = [
            self._hvd.broadcast_async_(tensor, 0, name=f"tenuto.broadcast.{index}") for index, tensor in enumerate(tensors)
        ]
        for handle in handles:
            self._hvd.synchronize(handle)
