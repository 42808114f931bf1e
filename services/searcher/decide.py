"""What follows from an event: trials start, go on, wait and stop, and the experiment ends.

Decisions are driven by the state alone, not by how it came about: a repeated or meaningless input leaves the state as it was,
and so decides nothing.
"""

from __future__ import annotations

from tenuto.schemas.base import JsonScalar
from tenuto.schemas.config.searchers import SingleSearcher
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.events.search import (
    ExperimentCanceled,
    ExperimentCompleted,
    ExperimentFailed,
    ExperimentStarted,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrialFailed, ValidationReported
from tenuto.services.searcher.commands import ProposeTrial
from tenuto.services.searcher.evolve import ENDINGS, experiment_of, fold, number_of, paused
from tenuto.services.searcher.methods import Method, method_for
from tenuto.services.searcher.methods.base import Proposal, Waits, place
from tenuto.services.searcher.methods.custom import asked_for, carried_out, ended, never_started
from tenuto.services.searcher.methods.reasons import amount, metric_value, reason, show
from tenuto.services.searcher.sampling import trial_seed
from tenuto.services.searcher.state import Experiment, SearcherState, Trial

DECISIONS_MAX = 2_000
"""Events from one cause, so that they fit one append of the log. What is left over follows from the next event of the experiment,
and there is always one: each trial that was asked for or stopped is heard of again."""
ERROR_LINE_CHARACTERS_MAX = 300
"""Of an error, in a reason."""


def decide(state: SearcherState, cause: EventData, rule_version: int) -> list[EventData]:
    """What follows from `cause`, which `state` has folded already. `rule_version` is for an experiment that starts now."""
    experiment_id = experiment_of(cause)
    experiment = None if experiment_id is None else state.experiments.get(experiment_id)
    return [] if experiment is None else _Decision(experiment, rule_version).of(cause)


def settle(state: SearcherState, cause: EventData, rule_version: int) -> tuple[list[EventData], SearcherState]:
    """What `decide` returns, and the state with it folded in."""
    experiment_id = experiment_of(cause)
    experiment = None if experiment_id is None else state.experiments.get(experiment_id)
    if experiment is None:
        return [], state
    decision = _Decision(experiment, rule_version)
    decided = decision.of(cause)
    if decided and type(decided[-1]) in ENDINGS:
        return decided, SearcherState(state.experiments.delete(experiment.id))
    if decision.now is experiment:
        return decided, state
    # A pause that was taken back is folded here and not there; what follows it undoes all of it.
    return decided, SearcherState(state.experiments.set(experiment.id, decision.now))


def propose(state: SearcherState, command: ProposeTrial) -> list[EventData]:
    """The trial that a sampler proposes, if it is still the next one wanted; else nothing."""
    experiment = state.experiments.get(command.experiment_id)
    if (
        experiment is None
        or not experiment.rule_version
        or command.trial_number != experiment.requested + 1
        or not experiment.wants_trials
        or experiment.active >= experiment.concurrent_trials_max
    ):
        return []
    why = f"Its hyperparameters were proposed by {command.sampler} from {command.results} results"
    if command.sampler == "random":
        startup = getattr(experiment.settings, "startup_trials", 0)
        why = (
            f"Its hyperparameters are a random draw: {experiment.settings.name} begins when it has {startup} results, and there"
            f" are {command.results}"
        )
    numbers: dict[str, JsonScalar] = {"sampler": command.sampler, "results": command.results}
    return [requested(experiment, Proposal(command.hyperparameters, rule="proposed", why=why, numbers=numbers))]


class _Decision:
    """The events decided so far for one cause, and the experiment with all of them folded in."""

    def __init__(self, experiment: Experiment, rule_version: int) -> None:
        self.now = experiment
        self.rule_version = experiment.rule_version or rule_version
        self.method: Method = method_for(experiment.settings, experiment.space, self.rule_version)
        self.decided: list[EventData | Waits] = []

    def emit(self, data: EventData) -> None:
        self.decided.append(data)
        self.now = fold(self.now, data)

    def wait(self, waits: Waits, trial: Trial) -> None:
        self.decided.append(waits)
        self.now = paused(self.now, trial)

    @property
    def full(self) -> bool:
        return len(self.decided) >= DECISIONS_MAX

    def of(self, cause: EventData) -> list[EventData]:
        if self.now.rule_version == 0:
            self.emit(ExperimentStarted(experiment_id=self.now.id, method=self.now.settings.name, rule_version=self.rule_version))
            if self.method.problem is not None:
                self.emit(ExperimentFailed(experiment_id=self.now.id, error=self.method.problem, trials=0))
                return _without_passing_pauses(self.decided)
        self.settle(cause)
        self.fill()
        self.stop_rest()
        self.end()
        return _without_passing_pauses(self.decided)

    @property
    def awaited(self) -> bool:
        """Whether a new trial is to come from outside these rules."""
        return self.method.awaits(self.now)

    def settle(self, cause: EventData) -> None:
        """Decide about the trial that the cause is about, and about those that it beat for good; carry out what a user's own
        searcher asked for."""
        if type(cause) is SearchOperationsRequested:
            for index, operation in enumerate(cause.operations):
                made = carried_out(self.now, asked_for(cause, index, operation), operation)
                if made is not None and not self.now.canceling:
                    self.emit(made)
            return
        if type(cause) is not ValidationReported and type(cause) is not TrialFailed:
            return
        trial = self.now.trials.get(number_of(cause.trial_id))
        if trial is None:
            return
        if trial.status == "failing" and isinstance(cause, TrialFailed):
            self.emit(_given_up(self.now, trial, cause))
        elif trial.status == "invalid":
            self.emit(_invalid(self.now, trial, cause))
        elif trial.status == "reported" and not self.now.canceling:
            reached = self.method.reached(self.now, trial)
            if isinstance(reached, Waits):
                self.wait(reached, trial)
            else:
                self.emit(reached)
        while not self.full and (stop := self.method.hopeless(self.now, trial.rung)) is not None:
            self.emit(stop)

    def fill(self) -> None:
        """Give each free place to a trial that waits, else to a new one."""
        while not self.now.canceling and self.now.active < self.now.concurrent_trials_max and not self.full:
            extended = self.method.go_on(self.now)
            if extended is not None:
                self.emit(extended)
            elif self.now.wants_trials and (proposal := self.method.next_trial(self.now)) is not None:
                self.emit(requested(self.now, proposal))
                if proposal.stopped:
                    self.emit(never_started(self.now, self.now.requested))
            else:
                break
        if self.now.active == 0 and not self.now.canceling and not self.full:
            last = self.method.last(self.now)
            if last is not None:
                self.emit(last)

    def stop_rest(self) -> None:
        """Stop what the search does not need any more: everything when canceling, what waits when nothing else runs."""
        canceling, open_trials = self.now.canceling, self.now.active + self.now.paused
        over = canceling or self.now.ending is not None
        if open_trials == 0 or ((self.now.active > 0 or self.awaited) and not over):
            return
        for _, trial in sorted(self.now.trials.items()):
            if self.full:
                return
            if trial.active or trial.status == "paused":
                self.emit(_canceled(self.now, trial) if canceling else _outlived(self.now, trial))

    def end(self) -> None:
        if not self.now.trials and not self.awaited:
            self.decided.append(_ending(self.now))


def _seed_of(experiment: Experiment, number: int) -> int:
    settings = experiment.settings
    pinned = settings.trial_seed if isinstance(settings, SingleSearcher) else None
    return trial_seed(experiment.seed, number) if pinned is None else pinned


def requested(experiment: Experiment, proposal: Proposal) -> TrialRequested:
    number = experiment.requested + 1
    rung = proposal.rung
    target = experiment.lengths[rung] if proposal.length is None else proposal.length
    return TrialRequested(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(number),
        trial_number=number,
        hyperparameters=proposal.hyperparameters,
        seed=_seed_of(experiment, number),
        target_length=target,
        source_checkpoint_id=proposal.source_checkpoint_id,
        parent_trial_id=None if proposal.parent is None else experiment.trial_id(proposal.parent),
        bracket=experiment.bracket_of(rung),
        reason=reason(
            f"{experiment.settings.name}.{proposal.rule}",
            f"Trial {number} of at most {experiment.trials_max + experiment.invalid:,}, as {experiment.active} of at most"
            f" {experiment.concurrent_trials_max} are active and none that waits is due; it trains to"
            f" {amount(experiment, target)}." + (f" {proposal.why}." if proposal.why else ""),
            rung=rung,
            trial=number,
            trials_max=experiment.trials_max,
            active=experiment.active,
            concurrent_trials_max=experiment.concurrent_trials_max,
            **proposal.numbers,
        ),
    )


def _without_passing_pauses(decided: list[EventData | Waits]) -> list[EventData]:
    """A trial that pauses and goes on (or is stopped) in the same step never pauses: it keeps its slots, or leaves at once."""
    later: set[str] = set()
    kept: list[EventData] = []
    for data in reversed(decided):
        if isinstance(data, (Waits, TrialPaused)):
            if data.trial_id not in later:
                kept.append(data.paused() if isinstance(data, Waits) else data)
            continue
        if isinstance(data, (TrialExtended, TrialStopped)):
            later.add(data.trial_id)
        kept.append(data)
    kept.reverse()
    return kept


def _given_up(experiment: Experiment, trial: Trial, cause: TrialFailed) -> TrialStopped:
    rung = experiment.rungs[trial.rung]
    times = f"{cause.failures} failure{'s' * (cause.failures != 1)}"
    if trial.own_target is not None:
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=cause.trial_id,
            outcome="failed",
            reason=reason("failed", f"Given up after {times}.", length=trial.own_target, failures=cause.failures),
        )
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=cause.trial_id,
        outcome="failed",
        reason=reason(
            "failed",
            f"Given up after {times}; at {place(experiment, trial.rung)} it counts as worst of {rung.size}."
            if trial.key is None
            else f"Given up after {times} while it waited at {place(experiment, trial.rung)}.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            of=rung.size,
            failures=cause.failures,
        ),
    )


def _invalid(experiment: Experiment, trial: Trial, cause: ValidationReported | TrialFailed) -> TrialStopped:
    said = cause.error.split("\n", 1)[0][:ERROR_LINE_CHARACTERS_MAX] if isinstance(cause, TrialFailed) else ""
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="failed",
        reason=reason(
            "invalid_hyperparameters",
            f"The model code refused its hyperparameters ({said}): it counts for nothing"
            + (", and another trial takes its place." if trial.own_target is None else "."),
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            invalid=experiment.invalid,
        ),
    )


def _canceled(experiment: Experiment, trial: Trial) -> TrialStopped:
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="canceled",
        reason=reason("cancel", "The experiment is canceled.", rung=trial.rung, length=experiment.lengths[trial.rung]),
    )


def _outlived(experiment: Experiment, trial: Trial) -> TrialStopped:
    if trial.own_target is not None:
        return ended(experiment, trial)
    rung = experiment.rungs[trial.rung]
    assert trial.key is not None, "a trial without a metric never waits"
    rank = rung.best.rank(trial.key) + 1
    return TrialStopped(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(trial.number),
        outcome="early_stopped",
        reason=reason(
            "search_over",
            f"The search is over: no trial runs and no new one is wanted. Rank {rank} of {rung.size} at"
            f" {place(experiment, trial.rung)}, {show(experiment, trial.score)}, so it was not trained on.",
            rung=trial.rung,
            length=experiment.lengths[trial.rung],
            rank=rank,
            of=rung.size,
            metric=metric_value(experiment, trial.score),
        ),
    )


def _ending(experiment: Experiment) -> ExperimentCompleted | ExperimentFailed | ExperimentCanceled:
    """Every trial that was asked for is finished, and no more are wanted."""
    count = experiment.requested
    if experiment.canceling:
        return ExperimentCanceled(experiment_id=experiment.id, trials=count)
    if experiment.ending:
        return ExperimentFailed(experiment_id=experiment.id, error=experiment.ending, trials=count)
    if experiment.ending is not None and not count:
        return ExperimentFailed(experiment_id=experiment.id, error="The search was ended before its first trial.", trials=0)
    if count and experiment.failed == experiment.counted:
        which = "The trial" if count == 1 else f"All {count:,} trials"
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"{which} failed. The last error was: {experiment.last_error}",
            trials=count,
        )
    if not experiment.metric_seen:
        names = ", ".join(experiment.metric_names) or "no metric at all"
        return ExperimentFailed(
            experiment_id=experiment.id,
            error=f"No trial reported the metric {experiment.metric!r} that the searcher compares; reported were: {names}."
            " Set searcher.metric to one of these, or return that metric from the evaluation.",
            trials=count,
        )
    best = experiment.best_trial
    found = (
        f"trial {experiment.trial_id(best)} has the best: {show(experiment, experiment.best_score)}"
        if best is not None
        else f"{experiment.metric} was never finite, so none is best"
    )
    return ExperimentCompleted(
        experiment_id=experiment.id,
        best_trial_id=None if best is None else experiment.trial_id(best),
        best_metric=metric_value(experiment, experiment.best_score),
        trials=count,
        reason=reason(
            "search_over",
            f"The search is over: all {count:,} trials are finished ({experiment.failed:,} failed), and {found}.",
            trials=count,
            failed=experiment.failed,
            metric=metric_value(experiment, experiment.best_score),
        ),
    )
