"""`context.distributed`: the ranks of a trial, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

from tenuto.workers.errors import UserError

Gathers = Callable[[Any], list[Any]]
"""Gives every rank's value to every rank, in the order of the ranks."""


def _alone(value: Any) -> list[Any]:
    return [value]


def _by_torch(value: Any) -> list[Any]:
    import torch.distributed

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    found: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, value)
    return found


class DistributedContext:
    """Ranks and sizes: over all (`rank`, `size`), on this node (`local_rank`, `local_size`), and of the nodes (`cross_rank`,
    `cross_size`)."""

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int = 0,
        cross_size: int = 1,
        gathers: Gathers | None = None,
        **given: Any,
    ) -> None:
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size
        self._gathers = gathers or (_alone if size == 1 else _by_torch)

    @classmethod
    def of_environment(cls, gathers: Gathers | None = None) -> Self:
        """The ranks that Tenuto started, by the variables that torchrun sets, too."""

        def number(name: str, default: int) -> int:
            return int(os.environ.get(name) or default)

        size, local = number("WORLD_SIZE", 1), number("LOCAL_WORLD_SIZE", 1)
        return cls(
            rank=number("RANK", 0),
            size=size,
            local_rank=number("LOCAL_RANK", 0),
            local_size=local,
            cross_rank=number("GROUP_RANK", 0),
            cross_size=max(1, size // local),
            gathers=gathers,
        )

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:
        return cls.of_environment()

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> Self:
        raise UserError("DistributedContext.from_horovod is not stood in for: give det.core.init() no distributed argument.")

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> Self:
        raise UserError("DistributedContext.from_deepspeed is not stood in for: Tenuto has no launcher for DeepSpeed.")

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        return self.cross_size

    def allgather(self, stuff: Any) -> list[Any]:
        return self._gathers(stuff)

    def gather(self, stuff: Any) -> list[Any] | None:
        """All values on rank 0, and None on the others."""
        found = self._gathers(stuff)
        return found if self.rank == 0 else None

    def broadcast(self, stuff: Any) -> Any:
        """Rank 0's value."""
        return self._gathers(stuff if self.rank == 0 else None)[0]

    def _local(self, stuff: Any) -> list[Any]:
        found = self._gathers((self.cross_rank, self.local_rank, stuff))
        return [value for node, _, value in sorted(found, key=lambda item: item[:2]) if node == self.cross_rank]

    def allgather_local(self, stuff: Any) -> list[Any]:
        return self._local(stuff)

    def gather_local(self, stuff: Any) -> list[Any] | None:
        found = self._local(stuff)
        return found if self.local_rank == 0 else None

    def broadcast_local(self, stuff: Any = None) -> Any:
        return self._local(stuff if self.local_rank == 0 else None)[0]

    def close(self) -> None:
        """Nothing to close: the ranks' connections belong to the trial."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
