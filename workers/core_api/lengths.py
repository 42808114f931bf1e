"""Lengths of the configuration, converted to steps of the script."""

from __future__ import annotations

import operator

from tenuto.schemas.config import ExperimentConfig, Length, Unit
from tenuto.workers.errors import UserError
from tenuto.workers.harness.schedule import Schedule, Shorten


class ScriptLengths:
    """Schedule of one configuration, once the script has set the number of batches of an epoch."""

    def __init__(self, config: ExperimentConfig, shorten: Shorten | None = None) -> None:
        self._config, self._shorten = config, shorten
        self._epoch_batches: int | None = None
        self._schedule: Schedule | None = None

    @property
    def unit(self) -> Unit:
        """Unit of `searcher.max_length`."""
        return self._config.searcher.max_length.unit

    @property
    def epoch_batches(self) -> int | None:
        return self._epoch_batches

    @epoch_batches.setter
    def epoch_batches(self, value: int) -> None:
        """Raises UserError for a value below 1."""
        if operator.index(value) < 1:
            raise UserError(f"run.epoch_batches is {value}; an epoch has at least one batch.")
        self._epoch_batches, self._schedule = operator.index(value), None

    @property
    def schedule(self) -> Schedule:
        """The schedule. Raises UserError if the configuration counts epochs, and the script has not set their length."""
        if self._schedule is None:
            if self._epoch_batches is None and (field := self._field_in_epochs()):
                raise UserError(
                    f"{field} counts epochs: right after tenuto.init(), set run.epoch_batches to the batches of one epoch."
                )
            schedule = Schedule.of(self._config, self._epoch_batches or 1)
            self._schedule = schedule if self._shorten is None else self._shorten(schedule)
        return self._schedule

    def _field_in_epochs(self) -> str | None:
        lengths: dict[str, Length | None] = {
            "searcher.max_length": self._config.searcher.max_length,
            "min_validation_period": self._config.min_validation_period,
            "min_checkpoint_period": self._config.min_checkpoint_period,
            "log_period": self._config.log_period,
        }
        return next((name for name, length in lengths.items() if length is not None and length.unit == "epochs"), None)
