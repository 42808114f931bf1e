"""Reasons why a trial that was to repeat another one had a different result, as far as the record knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tenuto.services.gateway.experiments.policies.likely_effect import ConfigDifference

DIFFERENCES_SHOWN_MAX = 3


class ExactnessFacts(Protocol):
    """Known facts about a trial's exactness."""

    id: str
    breaks: list[str]
    allocations: int


def likely_causes(
    differences: Sequence[ConfigDifference],
    original: ExactnessFacts | None,
    repeated: ExactnessFacts | None,
    config: Mapping[str, Any],
) -> tuple[str, ...]:
    """Sentences without a full stop, the likeliest cause first. `differences`: in the order of their likely effect. `config`: of
    the repetition."""
    likely = [item for item in differences if item.effect == "likely"]
    possible = [item for item in differences if item.effect == "possible"]
    causes = [f"{item.kind} {item.name} is another one" for item in likely[:DIFFERENCES_SHOWN_MAX]]
    trials = [trial for trial in (original, repeated) if trial is not None]
    causes += [f"trial {trial.id} is not exact: {sentence}" for trial in trials for sentence in trial.breaks]
    if not (config.get("reproducibility") or {}).get("exact", True):
        causes.append("reproducibility.exact is false, so kernels may add numbers in another order each time")
    causes += [f"{item.kind} {item.name} is another one" for item in possible[:DIFFERENCES_SHOWN_MAX]]
    if causes:
        return tuple(dict.fromkeys(causes))
    again = [trial.id for trial in trials if trial.allocations > 1]
    resumed = f"; trial {' and '.join(again)} was resumed, so look for state that a checkpoint does not hold" if again else ""
    return (
        "nothing on record differs and nothing inexact was noticed: look for data that is not declared by tenuto.data(path), and "
        f"for what depends on time, the network or randomness of the system's{resumed}",
    )
