"""Lengths: Determined counts in records, batches, epochs, or steps of a script; Tenuto in batches and epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.cli.from_determined.notes import Notes

STEP_BATCHES = 100
"""Determined's default of scheduling_unit, before it batches_per_step: batches between two reports of training metrics, and in
the oldest configurations the unit of every length."""
UNITS = ("batches", "epochs", "records")


@dataclass
class DeterminedLengths:
    notes: Notes
    is_script: bool
    batch_size: int | None
    """Records of a batch; None if it is not one number."""
    step_batches: int = STEP_BATCHES
    log_batches: int | None = None
    script_decides: bool = False
    """True: the configuration has no length, as with Determined 0.38, where the script says how long it trains."""

    @classmethod
    def of(cls, document: dict[str, Any], is_script: bool, notes: Notes) -> DeterminedLengths:
        """Takes the fields that speak of lengths of all kinds out of the document."""
        size = _constant((document.get("hyperparameters") or {}), "global_batch_size")
        lengths = cls(notes, is_script, size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None)
        unit_field = "batches_per_step" if "batches_per_step" in document else "scheduling_unit"
        unit = document.pop(unit_field, None)
        if unit is not None:
            if isinstance(unit, int) and not isinstance(unit, bool) and unit > 0:
                lengths.step_batches = lengths.log_batches = unit
                notes.changed(unit_field, f"is log_period: {{batches: {unit}}}")
            else:
                notes.refused(unit_field, "must be a whole number of batches, at least 1", unit)
        elif not is_script:
            lengths.log_batches = STEP_BATCHES
            notes.changed(unit_field, f"is {STEP_BATCHES} where it is not given, so log_period: {{batches: {STEP_BATCHES}}}")
        return lengths

    def period(self, path: str, value: Any) -> dict[str, int] | None:
        """A period; None if there is none, which 0 says too."""
        if value is None:
            return None
        length = self.length(path, value)
        return None if length is None or 0 in length.values() else length

    def length(self, path: str, value: Any) -> dict[str, int] | None:
        """The length in batches or epochs; None if it is refused."""
        if isinstance(value, int) and not isinstance(value, bool):
            if self.is_script:
                self.notes.changed(path, f"counts the steps that the script reports, so {{batches: {value}}}")
                return {"batches": value}
            batches = value * self.step_batches
            self.notes.changed(path, f"counts steps of {self.step_batches} batches, so {{batches: {batches}}}")
            return {"batches": batches}
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in UNITS:
            self.notes.refused(path, "must be {batches: N}, {epochs: N} or {records: N}", value)
            return None
        [(unit, count)] = value.items()
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            self.notes.refused(path, "must be a whole number", value)
            return None
        if unit != "records" or count == 0:
            return {"batches" if unit == "records" else unit: count}
        if self.batch_size is None:
            self.notes.refused(
                path,
                "records are counted in batches here, and hyperparameters.global_batch_size is not one number; write batches, "
                "or epochs",
                value,
            )
            return None
        batches = max(count // self.batch_size, 1)
        self.notes.changed(path, f"{count} records are {batches} batches of {self.batch_size}, rounded as Determined rounds them")
        return {"batches": batches}


def _constant(space: Mapping[str, Any], name: str) -> Any:
    value = space.get(name) if isinstance(space, dict) else None
    return value.get("val") if isinstance(value, dict) and value.get("type") == "const" else value
