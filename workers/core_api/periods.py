"""Lengths and periods of the configuration, as a script asks for them."""

from __future__ import annotations

from tenuto.workers.core_api.checkpoints import Checkpoints
from tenuto.workers.core_api.lengths import ScriptLengths
from tenuto.workers.core_api.session import Session
from tenuto.workers.harness.schedule import Schedule


class Periods:
    """Part of `Run` that follows the configuration."""

    _session: Session
    _lengths: ScriptLengths
    _begun_at: int
    """Position at which this process began. It may be beyond the target, if it is that of a trial of an earlier experiment."""
    checkpoint: Checkpoints
    """Checkpoints of this trial: `save`, `restore`, `latest`."""

    @property
    def epoch_batches(self) -> int | None:
        """Batches in one epoch, as the script has set it; None: not set. Needed if the configuration counts epochs. Setting it
        raises UserError for a number below 1."""
        return self._lengths.epoch_batches

    @epoch_batches.setter
    def epoch_batches(self, value: int) -> None:
        self._lengths.epoch_batches = value

    @property
    def _schedule(self) -> Schedule:
        return self._lengths.schedule

    def target_steps(self) -> int:
        """Steps that the search wants this trial to reach now: never fewer than the checkpoint has that it began from. Raises
        UserError if the configuration counts epochs and `epoch_batches` is not set."""
        return max(self._begun_at, self._schedule.target_batches(self._session.box.current.target_length))

    @property
    def max_steps(self) -> int:
        """`searcher.max_length` in steps, as needed by a learning-rate schedule of the full length. Raises UserError if it is in
        epochs and `epoch_batches` is not set."""
        return self._schedule.target_batches(self._session.assignment.config.searcher.max_length.value)

    def should_report(self, steps: int) -> bool:
        """True if `log_period` has passed at `steps`, the position in the trial. Raises UserError if the configuration counts
        epochs and `epoch_batches` is not set."""
        return steps > 0 and self._schedule.logs_at(steps)

    def should_validate(self, steps: int) -> bool:
        """True if `min_validation_period` has passed at `steps`, the position in the trial. At the end of an operation a
        validation is always due. Raises UserError if the configuration counts epochs and `epoch_batches` is not set."""
        return self._schedule.validates_at(steps)

    def should_save(self, steps: int) -> bool:
        """True if `min_checkpoint_period` has passed at `steps`, the position in the trial, or `checkpoint_period_minutes`. With
        several ranks only the former, on which they agree; for the latter see `checkpoint_due`. Raises UserError if the
        configuration counts epochs and `epoch_batches` is not set."""
        return self._schedule.saves_at(steps) or (self._session.gang is None and self.checkpoint_due())

    def checkpoint_due(self) -> bool:
        """True if `checkpoint_period_minutes` have passed since the last checkpoint was begun, or this process. It is this
        process's clock: with several ranks ask on one, and tell the others."""
        minutes = self._session.assignment.config.checkpoint_period_minutes
        return minutes is not None and self._session.clock.monotonic() - self.checkpoint.begun_clock >= 60 * minutes
