"""The lineage of population-based training: which trial goes on from which, and with which hyperparameters changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.services.gateway.experiments.policies.search_decisions import Decision, Outcome, finite

_ABSENT = object()


@dataclass(frozen=True)
class ChangedHyperparameter:
    """A hyperparameter that differs from the parent's; None: a trial without it."""

    name: str
    before: Any
    after: Any


@dataclass
class Copy:
    trial_id: str
    number: int
    parent_id: str | None
    """Trial that it goes on from; None: it is of the first generation."""
    generation: int
    """0 for the first generation. A copy of a copy has a larger one in any case."""
    parent_metric: float | None
    """Value of the parent when it was copied."""
    source_checkpoint_id: str | None
    hyperparameters: Mapping[str, Any]
    changed: tuple[ChangedHyperparameter, ...]
    position: int
    time_us: int
    values: Mapping[str, Any]
    """Hyperparameters by names with dots."""
    outcome: Outcome | None = None
    """None: the search has not stopped it."""
    sentences: list[str] = field(default_factory=list)
    """Reasons why it was made, and of its end."""


def lineage(decisions: Iterable[Decision]) -> list[Copy]:
    """Trials in the order in which they were requested."""
    found: dict[str, Copy] = {}
    for decision in decisions:
        if decision.type == TrialRequested.TYPE:
            found[decision.trial_id] = _copy(decision, found.get(decision.parent_id or ""))
        elif decision.type == TrialStopped.TYPE and decision.trial_id in found:
            known = found[decision.trial_id]
            known.outcome = decision.outcome
            known.sentences += filter(None, [decision.sentence])
    return list(found.values())


def _copy(decision: Decision, parent: Copy | None) -> Copy:
    recorded = decision.numbers.get("generation")
    values = dict(_flat(decision.hyperparameters or {}))
    generation = 0 if parent is None else recorded + 1 if isinstance(recorded, int) else parent.generation + 1
    return Copy(
        trial_id=decision.trial_id,
        number=decision.number,
        parent_id=decision.parent_id,
        generation=generation,
        parent_metric=finite(decision.numbers.get("parent_metric")),
        source_checkpoint_id=decision.source_checkpoint_id,
        hyperparameters=decision.hyperparameters or {},
        changed=() if parent is None else tuple(_changes(parent.values, values)),
        position=decision.position,
        time_us=decision.time_us,
        values=values,
        sentences=[decision.sentence] if decision.sentence else [],
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested hyperparameters by names with dots."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ChangedHyperparameter]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if old != new or isinstance(old, bool) != isinstance(new, bool):
            yield ChangedHyperparameter(name, None if old is _ABSENT else old, None if new is _ABSENT else new)
