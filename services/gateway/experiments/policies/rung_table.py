"""The rungs of a search, from the reasons of its decisions: who was compared where, with which value, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.services.gateway.experiments.policies.search_decisions import Decision, finite

Fate = Literal["waits", "goes on", "stopped", "completed"]
_FATES: Mapping[str, Fate] = {TrialPaused.TYPE: "waits", TrialExtended.TYPE: "goes on", TrialStopped.TYPE: "stopped"}


@dataclass(frozen=True)
class Standing:
    """A trial at a rung."""

    trial_id: str
    key: str
    """Rung at which it stands."""
    metric: float | None
    """None: it failed, or reported no number; it counts as worst."""
    fate: Fate
    sentence: str
    """Reason of the newest decision on it there."""
    position: int


@dataclass
class RungStandings:
    key: str
    """Differs from that of any other rung of the search."""
    rung: int
    bracket: int | None
    """None: the search has one bracket, or a method of its own without brackets."""
    length: int
    unit: str
    cut_off: float | None = None
    """Value of the last trial that may go on, by the newest comparison. None: there are too few."""
    standings: dict[str, Standing] = field(default_factory=dict)
    """Standing of each trial, in the order of their first decision here."""


def rung_table(decisions: Iterable[Decision]) -> list[RungStandings]:
    """Rungs by bracket and length; none for a search that decided nothing yet."""
    rungs: dict[str, RungStandings] = {}
    newest: dict[str, Standing] = {}
    for decision in decisions:
        fate = _FATES.get(decision.type)
        if fate is None:
            continue
        known = newest.get(decision.trial_id)
        standing = Standing(
            trial_id=decision.trial_id,
            key="" if known is None else known.key,
            metric=None if known is None else known.metric,
            fate="completed" if decision.outcome == "completed" else fate,
            sentence=decision.sentence,
            position=decision.position,
        )
        if _compares(decision.rule, decision.numbers):
            found = _rung_of(rungs, decision.numbers)
            cut_off = finite(decision.numbers.get("cut_off"))
            if fate != "stopped" and cut_off is not None:
                found.cut_off = cut_off
            standing = replace(standing, key=found.key, metric=finite(decision.numbers.get("metric")))
        elif known is None or known.fate != "waits":
            continue  # it trained: nothing was decided at a rung
        newest[decision.trial_id] = standing
        if standing.key in rungs:
            rungs[standing.key].standings[decision.trial_id] = standing
    return sorted(rungs.values(), key=lambda rung: (rung.bracket or 0, rung.length, rung.rung))


def _compares(rule: str, numbers: Mapping[str, Any]) -> bool:
    """True if a trial stands at a rung: with what it reported there, or last because it has nothing to be compared by."""
    if "length" not in numbers:
        return False
    if "metric" in numbers:
        return numbers["metric"] is None or finite(numbers["metric"]) is not None
    return rule == "failed" and "rung" in numbers and numbers.get("waited") is not True


def _rung_of(rungs: dict[str, RungStandings], numbers: Mapping[str, Any]) -> RungStandings:
    """A search that a method of the user's own decides has no rungs: its trials stand at the lengths that they were to reach."""
    length = int(numbers["length"])
    rung, bracket = numbers.get("rung"), numbers.get("bracket")
    place = rung if isinstance(rung, int) else length
    key = f"{bracket if isinstance(bracket, int) else ''}/{place}"
    if key not in rungs:
        unit = str(numbers.get("unit", "batches"))
        rungs[key] = RungStandings(key, place, bracket if isinstance(bracket, int) else None, length, unit)
    return rungs[key]
