"""Schedule of a trial: positions at which training pauses to report, save or validate. Pure arithmetic on positions in batches.

Boundaries are absolute multiples of their period, so that a resumed trial has the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenuto.schemas.config import ExperimentConfig, Length
from tenuto.workers.errors import UserError


@dataclass(frozen=True)
class Schedule:
    unit_batches: int
    """Batches in one unit of the experiment's lengths: 1, or the batches of an epoch."""
    log_batches: int
    checkpoint_batches: int | None
    validation_batches: int | None

    @classmethod
    def of(cls, config: ExperimentConfig, epoch_batches: int | None) -> Schedule:
        """Schedule of an experiment. Raises UserError if a length in epochs is given and `epoch_batches` is not known."""

        def unit_batches(length: Length, field: str) -> int:
            if length.unit == "batches":
                return 1
            if epoch_batches is None:
                raise UserError(
                    f"{field} is given in epochs, but the training data is a stream without a length; give {field} in batches, "
                    "or set batches_per_epoch in your trial."
                )
            return epoch_batches

        def batches(length: Length | None, field: str) -> int | None:
            return None if length is None else length.value * unit_batches(length, field)

        return cls(
            unit_batches=unit_batches(config.searcher.max_length, "searcher.max_length"),
            log_batches=config.log_period.value * unit_batches(config.log_period, "log_period"),
            checkpoint_batches=batches(config.min_checkpoint_period, "min_checkpoint_period"),
            validation_batches=batches(config.min_validation_period, "min_validation_period"),
        )

    def target_batches(self, target_length: int) -> int:
        return target_length * self.unit_batches

    def full_batches(self, full_length: int) -> int:
        """Batches of a trial's full length."""
        return self.target_batches(full_length)

    def length(self, batches: int) -> int:
        """Whole units trained."""
        return batches // self.unit_batches

    def next_stop(self, batches: int, target_batches: int, step_batches: int = 1, epoch_batches: int | None = None) -> int:
        """First position after `batches` at which something is due. `step_batches`: batches of one step, fewer only at the end
        of an epoch and at the target; then the result is the end of the first step that reaches such a position."""
        periods = (self.log_batches, self.checkpoint_batches, self.validation_batches)
        stop = min((batches // period + 1) * period for period in periods if period is not None)
        if step_batches > 1:
            stop = batches - (batches - stop) // step_batches * step_batches
            stop = stop if epoch_batches is None else min(stop, (batches // epoch_batches + 1) * epoch_batches)
        return min(target_batches, stop)

    def logs_at(self, batches: int, step_batches: int = 1) -> bool:
        """True if metrics are due. `step_batches`: batches of the last step, any of which may have reached the position."""
        return _passed(self.log_batches, batches, step_batches)

    def validates_at(self, batches: int, step_batches: int = 1) -> bool:
        return self.validation_batches is not None and batches > 0 and _passed(self.validation_batches, batches, step_batches)

    def saves_at(self, batches: int, step_batches: int = 1) -> bool:
        return self.checkpoint_batches is not None and batches > 0 and _passed(self.checkpoint_batches, batches, step_batches)


@dataclass(frozen=True)
class ShortSchedule(Schedule):
    """A schedule for a rehearsal: everything happens within a few batches, and the last of them counts as the full length."""

    full: Schedule
    full_length: int
    end_batches: int

    @classmethod
    def of_full(cls, full: Schedule, full_length: int, period_batches: int, periods: int) -> ShortSchedule:
        """Saves after each of `periods` periods, or after fewer batches where the full length has fewer."""
        end = min(periods * period_batches, full.target_batches(full_length))
        period = max(1, end // periods)
        return cls(1, max(1, period // 2), period, None, full, full_length, end)

    def target_batches(self, target_length: int) -> int:
        return min(self.end_batches, self.full.target_batches(target_length))

    def full_batches(self, full_length: int) -> int:
        return self.full.target_batches(full_length)

    def length(self, batches: int) -> int:
        return self.full_length if batches >= self.end_batches else self.full.length(batches)


Shorten = Callable[[Schedule], Schedule]
"""Function that makes a rehearsal's schedule of the configuration's."""


def _passed(period: int, batches: int, step_batches: int) -> bool:
    return batches // period > (batches - step_batches) // period
