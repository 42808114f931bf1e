"""Learning-rate schedulers that the harness steps."""

from __future__ import annotations

import enum
from typing import Any


class LRScheduler:
    """A torch scheduler and when to step it."""

    class StepMode(enum.Enum):
        STEP_EVERY_EPOCH = "epoch"
        STEP_EVERY_BATCH = "batch"
        MANUAL_STEP = "manual"
        """Your code calls `scheduler.step()`; the harness saves and restores its state only."""

    def __init__(self, scheduler: Any, step_mode: StepMode = StepMode.STEP_EVERY_EPOCH, frequency: int = 1) -> None:
        """`frequency`: step after every so many epochs or batches."""
        if frequency < 1:
            raise ValueError(f"frequency is {frequency}, but must be at least 1")
        self.scheduler, self.step_mode, self.frequency = scheduler, step_mode, frequency

    def after_batch(self, batches: int, epoch_batches: int) -> None:
        """`batches` counts the one just trained."""
        if self.step_mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            due = batches % self.frequency == 0
        elif self.step_mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            due = batches % (epoch_batches * self.frequency) == 0
        else:
            due = False
        if due:
            self.scheduler.step()
