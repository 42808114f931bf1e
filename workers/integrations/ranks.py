"""What the callbacks of other libraries' trainers need where a trial has several ranks: the library has connected them."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from tenuto.workers.core_api import Run
from tenuto.workers.harness.errors import UserError


def expect(run: Run, processes: int, what_to_set: str) -> None:
    """Raises UserError where the trainer's processes are not the trial's ranks: each would train a model of its own."""
    if processes != run.slots:
        raise UserError(f"the trial has {run.slots} slots, but its trainer works with {processes} processes; set {what_to_set}.")


def of_all(run: Run, value: Any) -> list[Any]:
    """What each rank gave, by rank. Every rank must call it: it is a meeting, too. Anything that can be pickled."""
    if run.slots == 1:
        return [value]
    found: list[Any] = [None] * run.slots
    dist.all_gather_object(found, value)
    return found
