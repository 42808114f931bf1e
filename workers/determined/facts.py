"""Facts of the trial that this process trains, in Determined's words."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.determined_fields import CARRIED_VARIABLE
from tenuto.workers.harness.trainer import TrialInfo

TRIALS_MAX = 1_000_000
"""Most trials of an experiment. Determined's trials have a number of their own in the whole cluster: experiment 3's first one is
3,000,001 here."""


@dataclass(frozen=True)
class Facts:
    trial: TrialInfo
    allocation_id: str
    latest_checkpoint: str | None
    """Checkpoint that the trial goes on from, or begins with; None at its first start."""
    steps_completed: int
    """Batches trained by that checkpoint."""

    @property
    def trial_number(self) -> int:
        return self.trial.experiment_id * TRIALS_MAX + self.trial.trial_number


_current: Facts | None = None


def current() -> Facts | None:
    """The trial of this process; None without a cluster."""
    return _current


def set_current(facts: Facts | None) -> None:
    global _current
    _current = facts


def of(assignment: Assignment, trial: TrialInfo) -> Facts:
    source = assignment.checkpoint
    own = source is not None and not source.weights_only
    return Facts(
        trial=trial,
        allocation_id=assignment.allocation_id,
        latest_checkpoint=None if source is None else source.checkpoint_id,
        steps_completed=source.batches if source is not None and own else 0,
    )


def carried(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the converted configuration that Tenuto does not have."""
    variables = (config.get("environment") or {}).get("variables") or {}
    text = variables.get(CARRIED_VARIABLE) or os.environ.get(CARRIED_VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def script_decides(config: Mapping[str, Any]) -> bool:
    """True if the code says how long it trains: `max_length: {epochs: 1}` is then all of it."""
    return carried(config).get("length") == "script"


def experiment_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with Determined's fields. Those that are not in it have Determined's defaults."""
    extra = carried(config)
    resources = dict(config.get("resources") or {})
    resources["resource_pool"] = resources.pop("pool", "default")
    environment = config.get("environment") or {}
    variables = {name: text for name, text in (environment.get("variables") or {}).items() if name != CARRIED_VARIABLE}
    searcher = {name: value for name, value in (config.get("searcher") or {}).items() if name not in _OWN_OF_SEARCHERS}
    if extra.get("length") == "script":
        searcher.pop("max_length", None)
    return {
        **config,
        "searcher": searcher,
        "resources": resources,
        "environment": {"environment_variables": [f"{name}={text}" for name, text in variables.items()]},
        "data": extra.get("data", {}),
        "records_per_epoch": extra.get("records_per_epoch", 0),
        "scheduling_unit": (config.get("log_period") or {}).get("batches") or 100,
    }


_OWN_OF_SEARCHERS = ("constraints", "starting_points", "source_checkpoint", "trial_seed", "average_validations")
"""Fields of Tenuto's searchers that Determined does not have."""
