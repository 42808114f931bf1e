"""Helpers for the callbacks of other libraries' trainers on several ranks, which the library has connected."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from tenuto.workers.core_api import Run
from tenuto.workers.errors import UserError


def expect(run: Run, processes: int, what_to_set: str) -> None:
    """Raises UserError if the trainer's processes are not the trial's ranks: each would train a model of its own."""
    if processes != run.slots:
        raise UserError(f"the trial has {run.slots} slots, but its trainer works with {processes} processes; set {what_to_set}.")


def of_all(run: Run, value: Any) -> list[Any]:
    """Value of each rank, in rank order. Every rank must call it, so it is a barrier, too. Values must be picklable."""
    if run.slots == 1:
        return [value]
    found: list[Any] = [None] * run.slots
    dist.all_gather_object(found, value)
    return found
