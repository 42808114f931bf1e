"""Learning-rate schedulers, stepped when Determined steps them: right after an optimizer step, also with aggregation."""

from __future__ import annotations

from typing import Any

from tenuto.workers.pytorch.lr_scheduler import LRScheduler


class SteppedAsThere(LRScheduler):
    def __init__(self, scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int, aggregation: int) -> None:
        """`aggregation`: batches whose gradients make one step of the optimizer."""
        super().__init__(scheduler, step_mode, frequency)
        self._aggregation = aggregation

    def after_batch(self, batches: int, epoch_batches: int | None, stepped: bool = True, trained: int = 1) -> None:
        last, often = batches - 1, self._aggregation
        if self.step_mode is LRScheduler.StepMode.MANUAL_STEP or batches % often:
            return
        if self.step_mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            due = sum((index + 1) % self.frequency == 0 for index in range(last - often + 1, last + 1))
        elif self.step_mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            due = int(batches % self.frequency == 0)  # as there, it counts batches
        else:
            assert epoch_batches is not None
            epochs = range(last // epoch_batches, (last + often) // epoch_batches)
            due = sum((epoch + 1) % self.frequency == 0 for epoch in epochs)
        for _ in range(due):
            self.scheduler.step()

    def step(self, *arguments: Any, **named: Any) -> None:
        self.scheduler.step(*arguments, **named)

    def get_last_lr(self) -> list[Any]:
        found: list[Any] = self.scheduler.get_last_lr()
        return found

    def state_dict(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self.scheduler.state_dict()
        return found

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        self.scheduler.load_state_dict(state_dict)
