"""Folds of events about one trial: what its validations, its checkpoints and its end mean for its rung."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved, TrainingEnded, TrialFailed, TrialFinished, ValidationReported
from tenuto.schemas.sentences.ends import RulesLost
from tenuto.services.searcher.evolve.places import vacated
from tenuto.services.searcher.methods.versions import PASSES_RUNGS
from tenuto.services.searcher.state import (
    ERROR_CHARACTERS_MAX,
    INVALID_MAX,
    METRIC_NAMES_MAX,
    Experiment,
    Trial,
    Validated,
)
from tenuto.services.searcher.state.custom_operations import WaitingOperation
from tenuto.services.searcher.state.ranking import Rung

IDS_CACHED_MAX = 4_096
"""Ids taken apart that are kept: each event about a trial asks for its parts several times."""


@lru_cache(maxsize=IDS_CACHED_MAX)
def number_of(trial_id: str) -> int:
    return int(trial_id.rsplit("-", 1)[1])


def of_trial(fold: Callable[[Experiment, Trial, Any], Experiment]) -> Callable[[Experiment, Any], Experiment]:
    """Fold of an event about a trial. An event that comes late, for a trial no longer in the state, changes nothing."""

    def folded(experiment: Experiment, data: Any) -> Experiment:
        trial = experiment.trials.get(number_of(data.trial_id))
        return experiment if trial is None else fold(experiment, trial, data)

    return folded


def _without(extensions: tuple[tuple[int, WaitingOperation], ...], number: int) -> tuple[tuple[int, WaitingOperation], ...]:
    return tuple(item for item in extensions if item[0] != number) if extensions else extensions


def saved(experiment: Experiment, trial: Trial, data: CheckpointSaved) -> Experiment:
    if experiment.remembers != "living":
        return experiment  # only methods that copy trials need it
    return experiment.with_trial(trial, trial.changed(checkpoint_id=data.checkpoint_id))


def finished(experiment: Experiment, trial: Trial, data: TrialFinished) -> Experiment:
    if trial.status != "stopped":
        return experiment
    memory = experiment.memory
    if experiment.remembers == "living" and trial.number in memory:
        memory = memory.delete(trial.number)
    return experiment.changed(trials=experiment.trials.delete(trial.number), memory=memory)


def paused(experiment: Experiment, trial: Trial, _: TrialPaused | None = None) -> Experiment:
    """Experiment with the trial waiting where it is. No event (None): that is still being decided."""
    rungs = experiment.rungs
    if trial.key is not None and trial.own_target is None:
        rungs = experiment.with_rung(trial.rung, rungs[trial.rung].wait(trial.key))
    return experiment.with_trial(trial, trial.changed(status="paused"), rungs=rungs)


def stopped(experiment: Experiment, trial: Trial, data: TrialStopped) -> Experiment:
    return experiment.with_trial(
        trial,
        trial.changed(status="stopped"),
        rungs=_left(experiment, trial),
        extensions=_without(experiment.extensions, trial.number),
        failed=experiment.failed + (data.outcome == "failed" and trial.status != "invalid"),
        ending=data.reason.numbers["error"] if data.reason.rule in RulesLost.RULES else experiment.ending,
    )


def extended(experiment: Experiment, trial: Trial, data: TrialExtended) -> Experiment:
    if trial.own_target is not None:
        extended = trial.changed(own_target=data.target_length, status="running", score=None)
        return experiment.with_trial(trial, extended, extensions=_without(experiment.extensions, trial.number))
    rungs = list(experiment.rungs)
    if trial.status == "paused" and trial.key is not None:
        rungs[trial.rung] = rungs[trial.rung].leave(trial.key)
    rung = trial.rung + 1
    rungs[rung] = rungs[rung].enter()
    changed = trial.changed(rung=rung, status="running", score=None, place=None, passed=0)
    return experiment.with_trial(trial, changed, rungs=tuple(rungs))


def _left(experiment: Experiment, trial: Trial) -> tuple[Rung, ...]:
    """The rungs when the trial waits no longer."""
    if trial.status != "paused" or trial.key is None:
        return experiment.rungs
    return experiment.with_rung(trial.rung, experiment.rungs[trial.rung].leave(trial.key))


def validated(experiment: Experiment, trial: Trial, data: ValidationReported) -> Experiment:
    score = experiment.score_of(data.metrics)
    experiment = _noted(experiment, trial, score, data)
    if trial.status != "running":
        return experiment
    scores = experiment.scores_of(data.metrics)
    recent = _recent(trial, data.batches, score, experiment.averaged) if experiment.averaged > 1 else ()
    last = trial.last
    if last is None or data.batches >= last.batches:
        last = Validated(data.batches, score, scores)
    if data.length < experiment.target(trial):
        return experiment.with_trial(trial, trial.changed(recent=recent, last=last))
    score = _averaged(experiment, trial, score, recent)
    reported = trial.changed(status="reported", score=score, recent=(), last=last)
    if trial.own_target is not None:
        return experiment.with_trial(trial, _further(experiment, reported, data.length))
    reported, rungs = arrived(experiment, reported, data.length)
    return experiment.with_trial(trial, reported, rungs=rungs, **_objectives(experiment, trial, scores))


def _averaged(experiment: Experiment, trial: Trial, score: float | None, recent: tuple[tuple[int, float], ...]) -> float | None:
    if score is None or not recent or experiment.is_top(trial.rung):
        return score
    return sum([one for _, one in recent]) / len(recent) + 0.0


def _objectives(experiment: Experiment, trial: Trial, scores: tuple[float, ...] | None) -> dict[str, Any]:
    """Change of the experiment by all scores of a trial, in a search with several metrics."""
    return {} if scores is None else {"objectives": experiment.objectives.set(trial.number, scores)}


def training_ended(experiment: Experiment, trial: Trial, data: TrainingEnded) -> Experiment:
    """The trial trains no further: its last validation counts at its rung, as if it had been reached."""
    if trial.status == "paused":  # it is compared there already
        rungs, index = _left(experiment, trial), trial.rung
        if trial.key is not None and trial.own_target is None:
            rungs = (*rungs[:index], rungs[index].end(trial.key), *rungs[index + 1 :])
        extensions = _without(experiment.extensions, trial.number)
        return experiment.with_trial(trial, trial.changed(status="ended"), rungs=rungs, extensions=extensions)
    if trial.status != "running":
        return experiment
    last = trial.last
    score = _averaged(experiment, trial, None if last is None else last.score, trial.recent)
    ended = trial.changed(status="ended", score=score, recent=())
    if trial.own_target is not None:
        return experiment.with_trial(trial, ended)
    ended, rungs = arrived(experiment, ended, experiment.target(trial))
    if ended.key is not None:
        rungs = (*rungs[: ended.rung], rungs[ended.rung].end(ended.key), *rungs[ended.rung + 1 :])
    scores = None if last is None else last.scores
    silent = last is None and not data.batches and experiment.settings.ONE_TRIAL
    return experiment.with_trial(trial, ended, rungs=rungs, silent=silent, **_objectives(experiment, trial, scores))


def _recent(trial: Trial, batches: int, score: float | None, most: int) -> tuple[tuple[int, float], ...]:
    """Its last validations including this one. A validation repeated after a restart replaces the earlier one; scores that are
    not numbers are left out."""
    before = tuple(item for item in trial.recent if item[0] < batches)
    return (before if score is None else (*before, (batches, score)))[-most:]


def _further(experiment: Experiment, trial: Trial, length: int) -> Trial:
    """A trial without rungs that is further than it was asked to be: it is not asked for less than it has."""
    assert trial.own_target is not None
    if experiment.rule_version < PASSES_RUNGS or length <= trial.own_target:
        return trial
    return trial.changed(own_target=max(trial.own_target, min(length, experiment.settings.max_length.value)))


def arrived(experiment: Experiment, trial: Trial, length: int) -> tuple[Trial, tuple[Rung, ...]]:
    """The trial added for comparison at its rung, and at each later one that it has passed already: it goes on from a checkpoint
    of an earlier experiment, or its code trains further than asked. Returns the trial at the last of these rungs, and all rungs.
    `length`: its place."""
    first = last = trial.rung
    if experiment.rule_version >= PASSES_RUNGS:
        while last < experiment.lasts[first] and experiment.lengths[last + 1] <= length:
            last += 1
    rungs, score = list(experiment.rungs), trial.score
    for index in range(first, last + 1):
        score = trial.score if experiment.is_top(index) else _score_at(experiment, trial, index)
        rung = rungs[index] if index == first else rungs[index].enter()
        rung = rung.arrive(None if score is None else (score, trial.number))
        rungs[index] = rung if score is not None else _told(experiment, trial, rung)
    if last > first:
        trial = trial.changed(rung=last, place=None)
    return trial.changed(score=score, passed=last - first), tuple(rungs)


def _score_at(experiment: Experiment, trial: Trial, rung: int) -> float | None:
    """Value by which the trial counts at a rung: what it reached there in the experiment that this one goes on with, if that is
    on record; else the validation that was reported now."""
    earlier = experiment.earlier.get(trial.number)
    if earlier is None or experiment.rule_version < PASSES_RUNGS:
        return trial.score
    reached = (item.metric for item in earlier.validations if item.length >= experiment.lengths[rung])
    return next((experiment.value_of(metric) for metric in reached), trial.score)


def _told(experiment: Experiment, trial: Trial, rung: Rung) -> Rung:
    """The rung of a trial without a score, which a model learns from nevertheless."""
    return rung.lose(trial.number) if experiment.remembers == "all" else rung


def _noted(experiment: Experiment, trial: Trial, score: float | None, data: ValidationReported) -> Experiment:
    """Updates made by every validation: the best metric so far, and the names of known metrics."""
    seen = experiment.metric in data.metrics
    names = experiment.metric_names
    if not experiment.metric_seen and not seen:
        names = tuple(sorted({*names, *data.metrics})[:METRIC_NAMES_MAX])
    best = (experiment.best_trial, experiment.best_score)
    if score is not None and (experiment.best_score is None or score < experiment.best_score):
        best = (trial.number, score)
    now = (True, experiment.metric_seen or seen, () if seen else names, *best)
    before = (
        experiment.validated,
        experiment.metric_seen,
        experiment.metric_names,
        experiment.best_trial,
        experiment.best_score,
    )
    if now == before:
        return experiment
    return experiment.changed(validated=True, metric_seen=now[1], metric_names=now[2], best_trial=best[0], best_score=best[1])


def failed(experiment: Experiment, trial: Trial, data: TrialFailed) -> Experiment:
    if not data.final or trial.status not in ("running", "paused"):
        return experiment
    index = trial.rung
    if data.invalid_hyperparameters and experiment.replaces and _may_be_replaced(experiment, trial):
        # It never counted: neither for a rung nor for the number of trials.
        rungs = experiment.with_rung(index, _told(experiment, trial, experiment.rungs[index].withdraw()))
        vacant = (*experiment.vacant, vacated(trial)) if experiment.keeps_places else ()
        return experiment.with_trial(
            trial, trial.changed(status="invalid"), rungs=rungs, invalid=experiment.invalid + 1, vacant=vacant
        )
    rungs = _left(experiment, trial)
    if trial.status == "running" and trial.own_target is None:
        # It counts as worst of the rung that it did not reach. One that waited is compared there already.
        rungs = experiment.with_rung(index, _told(experiment, trial, rungs[index].arrive(None)))
    # A point of a grid that the code refuses is done: nothing takes its place, and it tells nothing about the code.
    refused = data.invalid_hyperparameters and experiment.settings.POINTS_ARE_GIVEN
    return experiment.with_trial(
        trial,
        trial.changed(status="invalid" if refused else "failing"),
        rungs=rungs,
        last_error=data.error[:ERROR_CHARACTERS_MAX],
        extensions=_without(experiment.extensions, trial.number),
    )


def _may_be_replaced(experiment: Experiment, trial: Trial) -> bool:
    """True if another trial may take the place of this one, within the limit of replaced trials. It must not have been compared
    yet, or the comparison would have counted a trial that no longer counts."""
    copy = trial.place is not None and trial.place.parent is not None
    # What a copy begins from is kept for it only until it has saved a checkpoint of its own.
    started_here = trial.checkpoint_id is None if copy else trial.rung in _firsts(experiment)
    return trial.status == "running" and started_here and experiment.invalid < max(INVALID_MAX, experiment.trials_max)


def _firsts(experiment: Experiment) -> list[int]:
    return [experiment.first(bracket) for bracket in range(len(experiment.brackets))]
