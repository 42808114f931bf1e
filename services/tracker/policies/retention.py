"""Checkpoints of an experiment that may be deleted, while it runs and when a trial is over.

A trial's latest checkpoint stays while the trial may go on, and a checkpoint that another trial starts from stays until that
one has its own or is over (`sources`). What else stays is the policy's: the best n of the
experiment, the best n and the latest n of each trial.

A checkpoint that was found damaged is none of these n: it must not push out a good one. It stays while its trial may go on,
because the user may repair it in the store, and the damage may be that of one node.
"""

from __future__ import annotations

import math

from tenuto.schemas.metrics import usable
from tenuto.schemas.sentences.reports import NotAmongBest, NotLatest, SourceFreed, TrialOver
from tenuto.schemas.sentences.rules import Numbers
from tenuto.services.tracker.state import Checkpoint, Experiment, Ranked, Trial

Expendable = list[tuple[str, str, Numbers]]
"""(trial id, checkpoint id, by which rule), in the order in which they are deleted."""


def best(trial: Trial, smaller_is_better: bool) -> Checkpoint | None:
    """The checkpoint with the best searcher metric, measured at the same number of batches; of equals the first one saved.

    Checkpoints that were never validated, or with a metric that is not usable, cannot be the best.
    """
    ordered = _by_rank(trial, smaller_is_better)
    return ordered[0] if ordered else None


def expendable(experiment: Experiment, trial: Trial) -> Expendable:
    """Called with the trial as it is after a report; the experiment holds it as it was before."""
    policy = experiment.checkpoint_policy
    if policy == "all" or not (trial.checkpoints or experiment.save_experiment_best):
        return []
    if policy == "none":
        return _free(experiment, [(trial.trial_id, item.checkpoint_id, NotLatest()) for item in trial.checkpoints[:-1]])
    return _free(experiment, _beyond(experiment, trial, over=False))


def expendable_at_end(experiment: Experiment, trial: Trial) -> Expendable:
    """The same once the trial is over and will never be resumed."""
    return _free(experiment, _beyond_at_end(experiment, trial))


def held_at_end(experiment: Experiment, trial: Trial) -> list[tuple[str, str]]:
    """(trial id, checkpoint id) of what only stays because other trials start from it. Called when the trial's own deletions are
    folded."""
    if not experiment.sources:
        return []
    items = _beyond_at_end(experiment, trial)
    others = {key for key in sorted(experiment.trials) if key != trial.trial_id}
    # What is a live trial's is looked at again with that trial.
    return [(owner, key) for owner, key, _ in items if key in experiment.sources and owner not in others]


def _beyond_at_end(experiment: Experiment, trial: Trial) -> Expendable:
    policy = experiment.checkpoint_policy
    if policy == "all":
        return []
    if policy == "none":
        return [(trial.trial_id, item.checkpoint_id, TrialOver()) for item in trial.checkpoints]
    return _beyond(experiment, trial, over=True)


def freed_by(experiment: Experiment, trial: Trial) -> Expendable:
    """Called before it is folded that the trial needs the checkpoint that it started from no more."""
    source = trial.source
    if source is None or source not in experiment.held or experiment.sources[source] > 1:
        return []
    return [(experiment.held[source], source, SourceFreed(started_trial=trial.trial_id))]


def kept_of(experiment: Experiment, trial: Trial, over: bool) -> frozenset[str]:
    """Ids of the trial's checkpoints that its own rules keep."""
    latest = max(experiment.save_trial_latest, 0 if over else 1)
    sound = [item for item in trial.checkpoints if item.checkpoint_id not in trial.damaged]
    newest = sound[-latest:] if latest else []
    ranked = _by_rank(trial, experiment.smaller_is_better)[: experiment.save_trial_best]
    return frozenset([*(item.checkpoint_id for item in (*newest, *ranked)), *(() if over else trial.damaged)])


def ranking(experiment: Experiment, trial: Trial, over: bool) -> tuple[Ranked, ...]:
    """The experiment's best, at most `save_experiment_best`, among what finished trials left and this trial's."""
    kept = kept_of(experiment, trial, over)
    mine = [
        Ranked(trial.validations[item.batches], trial.trial_id, item.checkpoint_id, item.checkpoint_id in kept)
        for item in _by_rank(trial, experiment.smaller_is_better)
    ]
    return _top(experiment, [*experiment.ranked, *mine])


def _beyond(experiment: Experiment, trial: Trial, over: bool) -> Expendable:
    kept = kept_of(experiment, trial, over)
    why: Numbers = NotAmongBest(
        metric_name=experiment.metric,
        trial_latest=experiment.save_trial_latest,
        trial_best=experiment.save_trial_best,
        experiment_best=experiment.save_experiment_best,
    )
    if not experiment.save_experiment_best:
        own = [item.checkpoint_id for item in trial.checkpoints if item.checkpoint_id not in kept]
        return [(trial.trial_id, checkpoint_id, why) for checkpoint_id in own]
    trials = [experiment.trials[key] for key in sorted(experiment.trials) if key != trial.trial_id]
    candidates = [*experiment.ranked]
    rules = {item.trial_id: kept_of(experiment, item, over=False) for item in trials} | {trial.trial_id: kept}
    for item in (*trials, trial):
        candidates += [
            Ranked(
                item.validations[saved.batches], item.trial_id, saved.checkpoint_id, saved.checkpoint_id in rules[item.trial_id]
            )
            for saved in _by_rank(item, experiment.smaller_is_better)
        ]
    top = {item.checkpoint_id for item in _top(experiment, candidates)}
    gone = [
        (item.trial_id, saved.checkpoint_id, why)
        for item in (*trials, trial)
        for saved in item.checkpoints
        if saved.checkpoint_id not in rules[item.trial_id] and saved.checkpoint_id not in top
    ]
    gone += [
        (item.trial_id, item.checkpoint_id, why) for item in experiment.ranked if not item.own and item.checkpoint_id not in top
    ]
    return gone


def _free(experiment: Experiment, items: Expendable) -> Expendable:
    """Items without the checkpoints that other trials start from."""
    return [item for item in items if item[1] not in experiment.sources]


def _by_rank(trial: Trial, smaller_is_better: bool) -> list[Checkpoint]:
    """Checkpoints with a usable metric and no known damage, the best first; of equal ones, the first one saved first."""
    sound = [item for item in trial.checkpoints if item.checkpoint_id not in trial.damaged]
    values = [(trial.validations.get(item.batches, math.nan), item) for item in sound]
    measured = [(value, item) for value, item in values if usable(value)]
    return [item for _, item in sorted(measured, key=lambda pair: _key(pair[0], smaller_is_better))]


def _top(experiment: Experiment, candidates: list[Ranked]) -> tuple[Ranked, ...]:
    ordered = sorted(
        candidates, key=lambda item: (_key(item.metric, experiment.smaller_is_better), item.trial_id, item.checkpoint_id)
    )
    return tuple(ordered[: experiment.save_experiment_best])


def _key(value: float, smaller_is_better: bool) -> float:
    return value if smaller_is_better else -value
