"""Writes bulk data, training metrics and log lines, into tables. A batch is one transaction; what comes twice is stored once."""

from __future__ import annotations


def trial_number(trial_id: str) -> int:
    return int(trial_id.partition("-")[2])
