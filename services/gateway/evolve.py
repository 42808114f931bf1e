"""Folds events into the gateway's state: the tables of its subjects, joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.kernel.folding import Envelope, Fold, Folds, WithEnvelope, unchanged
from tenuto.schemas.events import EVENT_MODELS, EventData
from tenuto.services.gateway.cluster import evolve as cluster
from tenuto.services.gateway.experiments import evolve as experiments
from tenuto.services.gateway.notices import evolve as notices
from tenuto.services.gateway.notices.policies.triggers import CAUSES_ELSEWHERE
from tenuto.services.gateway.people import evolve as people
from tenuto.services.gateway.state import State
from tenuto.services.gateway.templates import evolve as templates

Table = Mapping[type[EventData], Fold[Any]]
TABLES: Sequence[Table] = (
    people.FOLDS,
    templates.FOLDS,
    cluster.FOLDS,
    experiments.FOLDS,
    experiments.RULE_FOLDS,
    notices.FOLDS,
)
"""Tables of folds, in the order in which an event that several of them name is folded."""


def joined(tables: Sequence[Table]) -> Table:
    """One fold for each type of event: those of the tables, one after the other."""
    kinds = dict.fromkeys(kind for table in tables for kind in table)
    return {kind: _one_after_another([table[kind] for table in tables if kind in table]) for kind in kinds}


def _one_after_another(folds: Sequence[Fold[Any]]) -> Fold[Any]:
    if len(folds) == 1:
        return folds[0]

    def folded(state: Any, data: EventData, envelope: Envelope) -> Any:
        for fold in folds:
            state = fold.fold(state, data, envelope) if isinstance(fold, WithEnvelope) else fold(state, data)
        return state

    return WithEnvelope(folded)


_FOLDED = joined(TABLES)
ONLY_DECIDED_ON = CAUSES_ELSEWHERE - {kind.TYPE for kind in _FOLDED}
"""Types of events that a notice may be about, and that change nothing themselves."""
FOLDS: Folds[State] = Folds("gateway", {**{EVENT_MODELS[name]: unchanged for name in sorted(ONLY_DECIDED_ON)}, **_FOLDED})
evolve = FOLDS.evolve
