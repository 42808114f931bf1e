"""Learning-rate schedulers that the harness steps."""

from __future__ import annotations

import enum
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from tenuto.workers.errors import UserError


class LRScheduler:
    """A torch scheduler, and when to step it: what `context.wrap_lr_scheduler` makes of its arguments."""

    class StepMode(enum.Enum):
        """Unit in which a scheduler is stepped."""

        STEP_EVERY_EPOCH = "epoch"
        """The scheduler steps at the end of epochs."""
        STEP_EVERY_BATCH = "batch"
        """The scheduler steps after batches."""
        STEP_EVERY_OPTIMIZER_STEP = "optimizer step"
        """The scheduler steps after the batches in which its optimizer stepped: the right count if gradients are accumulated."""
        MANUAL_STEP = "manual"
        """Your code calls `scheduler.step()`; the harness only saves and restores its state."""

    def __init__(self, scheduler: Any, step_mode: StepMode = StepMode.STEP_EVERY_EPOCH, frequency: int = 1) -> None:
        """`scheduler`: of torch. `step_mode`: unit of the steps. `frequency`: number of epochs, batches or optimizer steps
        between two steps, from 1. Raises UserError for another object, mode or number, and for a ReduceLROnPlateau that is not
        stepped by hand."""
        if not callable(getattr(scheduler, "step", None)) or not callable(getattr(scheduler, "state_dict", None)):
            raise UserError(f"wrap_lr_scheduler was given {type(scheduler).__name__}; it needs a torch learning-rate scheduler.")
        if not isinstance(step_mode, LRScheduler.StepMode):
            modes = ", ".join(mode.name for mode in LRScheduler.StepMode)
            raise UserError(
                f"wrap_lr_scheduler was given step_mode {step_mode!r}; it needs a pytorch.LRScheduler.StepMode: {modes}."
            )
        if isinstance(scheduler, ReduceLROnPlateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise UserError(
                "ReduceLROnPlateau needs a metric for each step: wrap it with LRScheduler.StepMode.MANUAL_STEP, and call its "
                "step(metric) in a callback's on_validation_end."
            )
        if not isinstance(frequency, int) or frequency < 1:
            raise UserError(f"wrap_lr_scheduler was given frequency {frequency!r}; it must be a whole number from 1.")
        self.scheduler = scheduler
        """The scheduler of torch."""
        self.step_mode = step_mode
        """Unit of the steps."""
        self.frequency = frequency
        """Number of epochs, batches or optimizer steps between two steps."""
        self.optimizer_steps = 0
        """Number of steps of its optimizer so far."""

    def after_batch(self, batches: int, epoch_batches: int | None, stepped: bool = True, trained: int = 1) -> None:
        """Called by the harness after batches. `batches`: position; in the last ones its optimizer `stepped` or not.
        `epoch_batches`: batches of an epoch; None: not known. `trained`: number of the last ones; a scheduler that steps every
        batch steps for each."""
        self.optimizer_steps += stepped
        if self.step_mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            for _ in range(batches // self.frequency - (batches - trained) // self.frequency):
                self.scheduler.step()
            return
        if self.step_mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            due = stepped and self.optimizer_steps % self.frequency == 0
        elif self.step_mode is LRScheduler.StepMode.STEP_EVERY_EPOCH and epoch_batches is not None:
            due = batches % (epoch_batches * self.frequency) == 0
        else:
            due = False
        if due:
            self.scheduler.step()
