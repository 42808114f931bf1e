"""Differences between two runs of which Tenuto trained at most one: of the other, only its program's logs are on record."""

from __future__ import annotations

from tenuto.services.gateway.experiments.policies.differences import Side
from tenuto.services.gateway.experiments.policies.likely_effect import ConfigDifference, by_likely_effect
from tenuto.services.gateway.reader.changes import flat


def unmanaged_differences(a: Side, b: Side) -> list[ConfigDifference]:
    """Hyperparameters."""
    left, right = _values(a), _values(b)
    found = [
        ConfigDifference("hyperparameter", f"hyperparameters.{name}", left.get(name), right.get(name))
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    ]
    return by_likely_effect(found)


def unmanaged_gaps(a: Side, b: Side) -> list[str]:
    labels = " and ".join(side.label for side in (a, b) if side.unmanaged)
    sentence = f"{labels}: of an unmanaged run, code, data, seed and environment are not on record; hyperparameters are compared"
    return [f"{sentence}, and metrics at the same steps."]


def _values(side: Side) -> dict[str, object]:
    given = side.hyperparameters if side.hyperparameters is not None else side.config.get("hyperparameters") or {}
    return dict(flat(given))
