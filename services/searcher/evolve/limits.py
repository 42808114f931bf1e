"""Changed limits of trials in a running experiment."""

from __future__ import annotations

from tenuto.schemas.events.request import ExperimentTrialLimitsChanged
from tenuto.services.searcher.methods import RULE_VERSION, method_for
from tenuto.services.searcher.state import Experiment
from tenuto.services.searcher.state.ladder import resized


def limits_changed(experiment: Experiment, data: ExperimentTrialLimitsChanged) -> Experiment:
    at_once = data.max_concurrent_trials or experiment.concurrent_trials_max
    if not experiment.settings.ONE_TRIAL:
        experiment = experiment.changed(
            concurrent_trials_max=at_once, concurrent_ceiling=max(at_once, experiment.concurrent_ceiling)
        )
    if data.max_trials is None or not experiment.settings.MAX_TRIALS_CHANGES:
        return experiment
    method = method_for(experiment.settings, experiment.space, experiment.rule_version or RULE_VERSION)
    started = [experiment.rungs[experiment.first(index)].started for index in range(len(experiment.brackets))]
    brackets = resized(experiment.brackets, started, data.max_trials, getattr(experiment.settings, "divisor", None))
    rungs = list(experiment.rungs)
    for index, bracket in enumerate(brackets):
        for rung in range(experiment.first(index), experiment.first(index) + len(bracket.lengths)):
            rungs[rung] = rungs[rung].changed(best_max=max(rungs[rung].best_max, method.best_max(bracket.trials)))
    return experiment.changed(
        trials_max=data.max_trials,
        trials_ceiling=max(data.max_trials, experiment.trials_ceiling),
        brackets=brackets,
        rungs=tuple(rungs),
    )
