"""The search's decisions on trials, as pictures of a search need them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.sentences import sentence_of

TYPES = (TrialRequested.TYPE, TrialExtended.TYPE, TrialPaused.TYPE, TrialStopped.TYPE)

Outcome = Literal["completed", "early_stopped", "failed", "canceled"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One event of TYPES. What an event of another type has is empty."""

    position: int
    type: str
    time_us: int
    trial_id: str
    rule: str
    numbers: Mapping[str, Any]
    """Numbers of its reason."""
    sentence: str
    outcome: Outcome | None = None
    """Outcome of a trial that was stopped."""
    number: int = 0
    """Number of the requested trial."""
    parent_id: str | None = None
    source_checkpoint_id: str | None = None
    hyperparameters: Mapping[str, Any] | None = None


def decision_of(event: Event) -> Decision:
    data = event.data
    assert isinstance(data, (TrialRequested, TrialExtended, TrialPaused, TrialStopped))
    common = (event.position, event.type, event.time_us, data.trial_id, data.reason.rule, data.reason.numbers, sentence_of(event))
    if isinstance(data, TrialRequested):
        return Decision(
            *common,
            number=data.trial_number,
            parent_id=data.parent_trial_id,
            source_checkpoint_id=data.source_checkpoint_id,
            hyperparameters=data.hyperparameters,
        )
    return Decision(*common, outcome=data.outcome if isinstance(data, TrialStopped) else None)


def finite(value: object) -> float | None:
    """The number that a picture can show; None for any other value. Records have NaN and infinities as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
