"""Numbers that the reasons of several methods have."""

from __future__ import annotations

from typing import TypedDict

from tenuto.schemas.config.length import Unit
from tenuto.schemas.events.search import TrialStopped
from tenuto.schemas.sentences.ends import FullLength
from tenuto.services.searcher.state import Experiment, Trial


class ScoredNumbers(TypedDict):
    """Fields of `schemas.sentences.search.Scored`."""

    metric: float | None
    metric_name: str
    averaged: int


class AtRungNumbers(TypedDict):
    """Fields of `schemas.sentences.search.AtRung`."""

    rung: int
    length: int
    unit: Unit
    bracket: int | None


class ComparedNumbers(ScoredNumbers, AtRungNumbers):
    """Fields of `schemas.sentences.rungs.Compared`."""

    rank: int | None
    of: int
    top: int
    cut_off: float | None


class HalvedNumbers(ComparedNumbers):
    """Fields of `schemas.sentences.rungs.Halved`."""

    rank_at_least: int | None
    divisor: int
    ended: int


def metric_value(experiment: Experiment, score: float | None) -> float | None:
    return None if score is None else experiment.value_of(score)


def scored(experiment: Experiment, score: float | None, *, whole: bool = False) -> ScoredNumbers:
    """`whole`: at the full length, where nothing is averaged."""
    averaged = 1 if whole or score is None else experiment.averaged
    return {"metric": metric_value(experiment, score), "metric_name": experiment.metric, "averaged": averaged}


def at_rung(experiment: Experiment, rung: int) -> AtRungNumbers:
    """`rung`: among those of all brackets."""
    bracket = experiment.bracket_of(rung)
    return {
        "rung": rung - experiment.first(bracket),
        "length": experiment.lengths[rung],
        "unit": experiment.unit,
        "bracket": bracket if len(experiment.brackets) > 1 else None,
    }


def completed(experiment: Experiment, trial: Trial) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="completed",
        reason=FullLength(**scored(experiment, trial.score, whole=True), **at_rung(experiment, trial.rung)).reason(),
    )
