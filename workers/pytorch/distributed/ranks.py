"""Ranks of a trial in torch: one process group over all, and the few ways in which they exchange values."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tenuto.workers.launch.gang import Gang

GROUP_SECONDS_MAX = 24 * 3600.0
"""The library's own deadline. Ours (distributed.progress_seconds_max) names the rank that hangs, so it must end first."""
NUMBERS_MAX = 32
"""Most metrics that are summed in one message; more are gathered by name."""
BROADCAST_BYTES = 64 * 1024 * 1024


class Ranks:
    """All ranks call every method, in the same order."""

    def __init__(self, gang: Gang, device: torch.device) -> None:
        """Joins the other ranks at the address that the supervisors agreed on."""
        self.gang, self.device = gang, device
        self.rank, self.size = gang.rank, gang.world_size
        gang.progress.waits_are_seen = device.type == "cpu"
        self._open()

    def _open(self) -> None:
        cuda = self.device.type == "cuda"
        if not dist.is_initialized():  # a trial's class may have done it when it was imported
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                timeout=timedelta(seconds=GROUP_SECONDS_MAX),
                device_id=self.device if cuda else None,
            )

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Context of an exchange within a step. On a GPU this process only requests it and goes on."""
        return self.gang.progress.waiting() if self.device.type == "cpu" else contextlib.nullcontext()

    def start_sum(self, tensor: torch.Tensor) -> Callable[[], Any]:
        """Starts a sum in place; the returned function waits for it (on a GPU: makes the current stream wait)."""
        work: Any = dist.all_reduce(tensor, async_op=True)
        wait: Callable[[], Any] = work.wait
        return wait

    def sum_now(self, tensor: torch.Tensor) -> None:
        """Sums in place."""
        dist.all_reduce(tensor)

    def objects(self, value: Any) -> list[Any]:
        """Value of each rank, in rank order; values must be picklable."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copies rank 0's values into the tensors of the others. Tensors that are divided among the ranks are left alone."""
        tensors = [tensor for tensor in tensors if not hasattr(tensor, "to_local")]
        if tensors:
            group: Any = dist.group.WORLD
            dist._broadcast_coalesced(group, list(tensors), BROADCAST_BYTES, 0)  # type: ignore[attr-defined]

    def sum_numbers(self, numbers: dict[str, float]) -> dict[str, float]:
        """Sums by name, exact to the last bits of a double. A name that only some ranks have counts as 0 on the others."""
        names = sorted(numbers)
        mark = zlib.crc32("\0".join(names).encode()) if len(names) <= NUMBERS_MAX else -1
        vector = torch.zeros(NUMBERS_MAX + 2, dtype=torch.float64)
        vector[0], vector[1] = mark, float(mark) ** 2  # both sums fit only where all ranks have the same names
        if mark >= 0:
            vector[2 : 2 + len(names)] = torch.tensor([numbers[name] for name in names], dtype=torch.float64)
        self.sum_now(vector)
        if mark >= 0 and vector[0] == self.size * mark and vector[1] == self.size * float(mark) ** 2:
            return dict(zip(names, vector[2 : 2 + len(names)].tolist(), strict=True))
        every = self.objects(numbers)
        return {name: sum(item.get(name, 0.0) for item in every) for name in sorted({name for item in every for name in item})}
