"""Why: the texts and numbers of decisions that several methods take."""

from __future__ import annotations

from tenuto.schemas.base import JsonScalar
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import TrialStopped
from tenuto.services.searcher.state import Experiment, Trial


def reason(rule: str, text: str, **numbers: JsonScalar) -> Reason:
    return Reason(rule=rule, text=text, numbers=numbers)


def show(experiment: Experiment, score: float | None, *, whole: bool = False) -> str:
    """The metric with its value, for people. `whole`: at the full length, where nothing is averaged."""
    if score is None:
        return f"{experiment.metric} is missing or not finite"
    mean = f" (mean of at most {experiment.averaged} validations)" if experiment.averaged > 1 and not whole else ""
    return f"{experiment.metric} {experiment.value_of(score):.6g}{mean}"


def length(experiment: Experiment, rung: int) -> str:
    return amount(experiment, experiment.lengths[rung])


def amount(experiment: Experiment, value: int) -> str:
    """A length with its unit."""
    return f"{value} {experiment.unit if value != 1 else experiment.unit.replace('epochs', 'epoch').replace('batches', 'batch')}"


def metric_value(experiment: Experiment, score: float | None) -> float | None:
    return None if score is None else experiment.value_of(score)


def completed(experiment: Experiment, trial: Trial) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="completed",
        reason=reason(
            "full_length",
            f"Trained to the full length of {length(experiment, trial.rung)}: {show(experiment, trial.score, whole=True)}.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            metric=metric_value(experiment, trial.score),
        ),
    )
