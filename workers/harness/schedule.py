"""Where training pauses to report, save or validate. Pure arithmetic on positions in batches.

Boundaries are absolute multiples of their period, so that a resumed trial meets the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.config import ExperimentConfig, Length


@dataclass(frozen=True)
class Schedule:
    unit_batches: int
    """Batches in one unit of the experiment's lengths: 1, or the batches of an epoch."""
    log_batches: int
    checkpoint_batches: int | None
    validation_batches: int | None

    @classmethod
    def of(cls, config: ExperimentConfig, epoch_batches: int) -> Schedule:
        def batches(length: Length | None) -> int | None:
            if length is None:
                return None
            return length.value * (epoch_batches if length.unit == "epochs" else 1)

        log_batches = batches(config.log_period)
        assert log_batches is not None
        return cls(
            unit_batches=epoch_batches if config.searcher.max_length.unit == "epochs" else 1,
            log_batches=log_batches,
            checkpoint_batches=batches(config.min_checkpoint_period),
            validation_batches=batches(config.min_validation_period),
        )

    def target_batches(self, target_length: int) -> int:
        return target_length * self.unit_batches

    def length(self, batches: int) -> int:
        """Whole units trained."""
        return batches // self.unit_batches

    def next_stop(self, batches: int, target_batches: int) -> int:
        """The first position after `batches` at which something is due."""
        periods = (self.log_batches, self.checkpoint_batches, self.validation_batches)
        return min(target_batches, *((batches // period + 1) * period for period in periods if period is not None))

    def logs_at(self, batches: int) -> bool:
        return batches % self.log_batches == 0

    def validates_at(self, batches: int) -> bool:
        return self.validation_batches is not None and batches > 0 and batches % self.validation_batches == 0

    def saves_at(self, batches: int) -> bool:
        return self.checkpoint_batches is not None and batches > 0 and batches % self.checkpoint_batches == 0
