"""Plan of a search from its configuration alone: brackets, rungs, numbers of trials and their training lengths, and the cost of
all. And searches that this Python cannot decide again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tenuto.schemas.config import ExperimentConfig, PluginSearcher
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentFailed, ExperimentStarted, TrialStopped
from tenuto.schemas.ids import experiment_of
from tenuto.schemas.sentences.ends import RulesLost
from tenuto.services.searcher.methods import UnknownRules, method_for


@dataclass(frozen=True)
class RungPlan:
    bracket: int
    rung: int
    length: int
    """Total length of a trial that reaches the rung."""
    trials: int
    """Trials that train up to it, if none fails."""
    cost: int
    """Length trained between the rung before and this one, by all of them."""


@dataclass(frozen=True)
class Preview:
    method: str
    unit: str
    trials: int
    """All trials; of population-based training also the copies."""
    concurrent_trials: int
    rungs: tuple[RungPlan, ...]
    cost: int
    """Length trained in all, in `unit`."""
    full_cost: int
    """Cost of the same trials if each were trained to the full length from its beginning."""
    exact: bool
    """False: the counts are those of comparing all trials at once; asynchronous rules decide with those present, so that a few
    more go on."""
    problem: str | None
    """Reason why the search cannot be started; None if it can."""


def preview(config: ExperimentConfig) -> Preview:
    settings = config.searcher
    method = method_for(settings, config.hyperparameters)
    plans: list[RungPlan] = []
    for index, bracket in enumerate(method.brackets):
        trials, before = bracket.trials, 0
        for rung, length in enumerate(bracket.lengths):
            plans.append(RungPlan(index, rung, length, trials, trials * (length - before)))
            before = length
            trials = max(1, trials // getattr(settings, "divisor", 1))
    trials = sum(bracket.trials for bracket in method.brackets)
    trials += method.replaced * (len(method.brackets[0].lengths) - 1)
    return Preview(
        method=settings.name,
        unit=settings.max_length.unit,
        trials=trials,
        concurrent_trials=method.concurrent_trials_max,
        rungs=tuple(plans),
        cost=sum(plan.cost for plan in plans),
        full_cost=trials * settings.max_length.value,
        exact=method.exact or not any(len(bracket.lengths) > 1 for bracket in method.brackets),
        problem=method.problem,
    )


def undecidable(events: Iterable[Event]) -> dict[int, str]:
    """Searches by methods of other packages that this Python cannot decide again, by experiment, with the reason as a sentence:
    it has not the package or these rules, or the searcher had not."""
    found: dict[int, str] = {}
    searches: dict[int, ExperimentConfig] = {}
    for event in events:
        match event.data:
            case ExperimentSubmitted(experiment_id=number, config=config) if isinstance(config.searcher, PluginSearcher):
                searches[number] = config
                found[number] = f"The search of experiment {number} was not started."
            case ExperimentStarted(experiment_id=number, rule_version=version, plugin=plugin) if number in searches:
                config = searches[number]
                try:
                    method_for(config.searcher, config.hyperparameters, version, plugin)
                    del found[number]
                except UnknownRules as error:
                    found[number] = str(error)
            case ExperimentFailed(experiment_id=number, error=error) if number in found and number in searches:
                found[number] = f"The search of experiment {number} was not started. {error}"
            case TrialStopped(trial_id=trial_id, reason=reason) if reason.rule in RulesLost.RULES:
                found[experiment_of(trial_id)] = f"The rules of its search were lost: {reason.numbers['error']}"
    return found
