"""Rows of trials as users see them; a part of those of unmanaged runs is in tables of its own."""

from __future__ import annotations

import json
import math
from typing import Any

from tenuto.services.gateway.trials.views import TrialView

_OF = "r.experiment_id = trials.experiment_id AND r.trial_number = trials.trial_number"
HYPERPARAMETERS = f"""CASE WHEN unmanaged THEN (SELECT coalesce(json_object_agg(name, text ORDER BY name), '{{}}')::text
    FROM unmanaged_parameters r WHERE {_OF}) ELSE hyperparameters END AS hyperparameters"""
BATCHES = f"""CASE WHEN unmanaged THEN (SELECT greatest(coalesce(max(step), 0), 0) FROM unmanaged_latest r WHERE {_OF})
    ELSE batches END AS batches"""
"""Columns of `trials` that unmanaged runs have in tables of their own."""


def trial_view(row: dict[str, Any]) -> TrialView:
    """A trial as users see it; an unmanaged run has a sentence of ours in place of a search's decision."""
    row |= {"hyperparameters": json.loads(row["hyperparameters"]), "stragglers": json.loads(row["stragglers"])}
    if row["unmanaged"]:
        row["hyperparameters"] = {name: value_of(text) for name, text in row["hyperparameters"].items()}
        row["reason"] = "Its program started it: Tenuto tracks it and decides nothing about it."
    return TrialView(**row)


def value_of(text: str) -> Any:
    """Value of a hyperparameter that a program wrote as text: a finite number, true or false if it reads as one (as JSON or
    Python writes it), else the text."""
    if text in ("True", "False"):
        return text == "True"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and not math.isfinite(value):
        return text
    return value if isinstance(value, (bool, int, float)) and abs(value) < 2**63 else text
