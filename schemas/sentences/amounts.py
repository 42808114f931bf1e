"""Phrases for amounts, shared by many sentences."""

from __future__ import annotations

from tenuto.schemas.config.length import Unit

SINGULAR: dict[Unit, str] = {"batches": "batch", "epochs": "epoch"}


def amount(length: int, unit: Unit) -> str:
    """A length with its unit, such as `16 epochs`."""
    return f"{length} {SINGULAR[unit] if length == 1 else unit}"


def slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def are(count: int) -> str:
    return "1 is" if count == 1 else f"{count} are"


def duration(seconds: float) -> str:
    """Such as `45 s`, `12 min` or `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"


def times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def stored(size_bytes: int) -> str:
    """Such as `12 B` or `3.4 GB`."""
    amount_ = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount_ < 1000:
            return f"{amount_:.0f} {unit}" if unit == "B" else f"{amount_:.1f} {unit}"
        amount_ /= 1000
    return f"{amount_:.1f} TB"
