"""Decisions on an event: trials start, go on, wait and stop, and the experiment ends.

Decisions are driven by the state alone, not by how it came about: a repeated or meaningless input leaves the state as it was,
and so decides nothing.
"""

from __future__ import annotations

from tenuto.schemas.base import JsonScalar
from tenuto.schemas.config.searchers import PluginSearcher
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.events.search import (
    ExperimentFailed,
    ExperimentStarted,
    TrialExtended,
    TrialPaused,
    TrialRequested,
    TrialStopped,
)
from tenuto.schemas.events.trial import TrainingEnded, TrialFailed, ValidationReported
from tenuto.schemas.sentences.search import Proposed
from tenuto.services.searcher.commands import GiveUp, ProposeTrial
from tenuto.services.searcher.evolve import experiment_of, fold
from tenuto.services.searcher.evolve.trials import number_of, paused
from tenuto.services.searcher.methods import Method, UnknownRules, method_for
from tenuto.services.searcher.methods.base import PauseAtRung, Proposal, Rules
from tenuto.services.searcher.methods.custom import asked_for, carried_out, never_started
from tenuto.services.searcher.methods.endings import canceled, ended_by_itself, ending, given_up, invalid, outlived, rules_lost
from tenuto.services.searcher.methods.sampling import Undrawable, trial_seed
from tenuto.services.searcher.state import Experiment, SearcherState, Trial

DECISIONS_MAX = 2_000
"""Events from one cause, so that they fit one append of the log. What is left over follows from the next event of the experiment,
and there is always one: each trial that was asked for or stopped is heard of again."""


def decide(state: SearcherState, cause: EventData, rule_version: int) -> list[EventData]:
    """Decisions on `cause`, which `state` has folded already. `rule_version` is for an experiment that starts now."""
    experiment_id = experiment_of(cause)
    experiment = None if experiment_id is None else state.experiments.get(experiment_id)
    return [] if experiment is None else _decided(experiment, cause, rule_version).events


def settle(state: SearcherState, cause: EventData, rule_version: int) -> tuple[list[EventData], SearcherState]:
    """The events that `decide` returns, and the state with them folded in."""
    experiment_id = experiment_of(cause)
    experiment = None if experiment_id is None else state.experiments.get(experiment_id)
    if experiment is None:
        return [], state
    decision = _decided(experiment, cause, rule_version)
    if decision.over:
        return decision.events, SearcherState(state.experiments.delete(experiment.id))
    if decision.now is experiment:
        return decision.events, state
    # A pause that was taken back is folded here and not there; what follows it undoes all of it.
    return decision.events, SearcherState(state.experiments.set(experiment.id, decision.now))


def propose(state: SearcherState, command: ProposeTrial) -> list[EventData]:
    """The trial that a sampler proposes, if it is still the next one wanted; else nothing."""
    experiment = state.experiments.get(command.experiment_id)
    if (
        experiment is None
        or not experiment.rule_version
        # The proposal was made outside, perhaps from an older state: it counts only for the place that is open now.
        or command.trial_number != experiment.requested + 1
        or not experiment.wants_trials
        or experiment.active >= experiment.concurrent_trials_max
    ):
        return []
    numbers: dict[str, JsonScalar] = {"sampler": command.sampler, "results": command.results}
    if command.sampler == "random":
        numbers |= {"method": experiment.settings.name, "startup_trials": getattr(experiment.settings, "startup_trials", 0)}
    return [requested(experiment, Proposal(command.hyperparameters, rule=Proposed, numbers=numbers))]


def give_up(state: SearcherState, command: GiveUp) -> list[EventData]:
    """The end of a search that waits for nothing but a proposal; else nothing."""
    experiment = state.experiments.get(command.experiment_id)
    if experiment is None or not experiment.rule_version or experiment.trials or not experiment.wants_trials:
        return []
    return [ExperimentFailed(experiment_id=experiment.id, error=command.error, trials=experiment.requested)]


def _decided(experiment: Experiment, cause: EventData, rule_version: int) -> _Decision:
    """The search of a method of another package fails alone, where the package is not installed or its rules raise an error.
    Raises UnknownRules where Tenuto itself has not the rules."""
    version = experiment.rule_version or rule_version
    if not isinstance(experiment.settings, PluginSearcher):
        decision = _Decision(experiment, method_for(experiment.settings, experiment.space, version))
        decision.of(cause)
        return decision
    lost = experiment.ending
    try:
        if lost is None:
            decision = _Decision(experiment, method_for(experiment.settings, experiment.space, version, experiment.plugin))
            decision.of(cause)
            return decision
    except UnknownRules as error:
        lost = str(error)
    except Exception as error:
        by = f" of {experiment.plugin.named}" if experiment.plugin is not None else ""
        lost = f"The search method {experiment.settings.name}{by} failed with {type(error).__name__}: {error}."
    decision = _Decision(experiment, Rules(experiment.settings, experiment.space, version))
    decision.give_up(lost or "")
    return decision


class _Decision:
    """The events decided so far for one cause, and the experiment with all of them folded in."""

    def __init__(self, experiment: Experiment, method: Method) -> None:
        self.now = experiment
        self.method = method
        self.over = False
        """True once the experiment has ended."""
        self.decided: list[EventData | PauseAtRung] = []
        self.undrawable = ""
        """Reason why no further trial can be drawn, for the user; empty: none so far. Running and waiting trials are searched to
        their end, then the search fails."""

    def emit(self, data: EventData) -> None:
        self.decided.append(data)
        changed = fold(self.now, data)
        if changed is None:
            self.over = True
        else:
            self.now = changed

    def wait(self, waits: PauseAtRung, trial: Trial) -> None:
        self.decided.append(waits)
        self.now = paused(self.now, trial)

    @property
    def full(self) -> bool:
        return len(self.decided) >= DECISIONS_MAX

    @property
    def events(self) -> list[EventData]:
        return _without_passing_pauses(self.decided)

    def of(self, cause: EventData) -> None:
        if self.now.rule_version == 0:
            self.emit(
                ExperimentStarted(
                    experiment_id=self.now.id,
                    method=self.now.settings.name,
                    rule_version=self.method.rule_version,
                    plugin=self.method.plugin,
                )
            )
            if self.method.problem is not None:
                self.emit(ExperimentFailed(experiment_id=self.now.id, error=self.method.problem, trials=0))
                return
        # The order matters: a place that the cause frees is given away before the search may count as idle, and end.
        self.settle(cause)
        self.fill()
        self.stop_rest()
        self.end()

    def give_up(self, error: str) -> None:
        """Stop every trial; when all have left, the search fails."""
        for _, trial in sorted(self.now.trials.items()):
            if not self.full and (trial.active or trial.status == "paused"):
                self.emit(rules_lost(self.now, trial, error))
        if self.now.trials:
            return
        failed = ExperimentFailed(experiment_id=self.now.id, error=error, trials=self.now.requested)
        self.emit(ending(self.now) if self.now.canceling else failed)

    @property
    def awaited(self) -> bool:
        """True if a new trial is to come from outside these rules."""
        return not self.undrawable and self.method.awaits(self.now)

    def settle(self, cause: EventData) -> None:
        """Decide about the trial that the cause is about, and about those that it beat for good; carry out what a user's own
        searcher asked for."""
        if type(cause) is SearchOperationsRequested:
            for index, operation in enumerate(cause.operations):
                made = carried_out(self.now, asked_for(cause, index, operation), operation)
                if made is not None and not self.now.canceling:
                    self.emit(made)
            return
        if type(cause) not in (ValidationReported, TrialFailed, TrainingEnded):
            return
        assert isinstance(cause, (ValidationReported, TrialFailed, TrainingEnded))
        trial = self.now.trials.get(number_of(cause.trial_id))
        if trial is None:
            return
        if trial.status == "failing" and isinstance(cause, TrialFailed):
            self.emit(given_up(self.now, trial, cause))
        elif trial.status == "ended" and isinstance(cause, TrainingEnded):
            if not self.now.canceling:
                self.emit(ended_by_itself(self.now, trial, cause))
        elif trial.status == "invalid" and not isinstance(cause, TrainingEnded):
            self.emit(invalid(self.now, trial, cause))
        elif trial.status == "reported" and not self.now.canceling:
            reached = self.method.reached(self.now, trial)
            if isinstance(reached, PauseAtRung):
                self.wait(reached, trial)
            else:
                self.emit(reached)
        for rung in range(trial.rung - trial.passed, trial.rung + 1):
            while not self.full and (stop := self.method.hopeless(self.now, rung)) is not None:
                self.emit(stop)

    def fill(self) -> None:
        """Give each free place to a trial that waits, else to a new one."""
        while not self.now.canceling and self.now.active < self.now.concurrent_trials_max and not self.full:
            extended = self.method.go_on(self.now)
            if extended is not None:
                self.emit(extended)
            elif self.now.wants_trials and (proposal := self.next_trial()) is not None:
                self.emit(requested(self.now, proposal))
                if proposal.stopped:
                    self.emit(never_started(self.now, self.now.requested))
            else:
                break
        # Only when nothing runs: a result that is still to come could be the better one to go on with.
        if self.now.active == 0 and not self.now.canceling and not self.full:
            last = self.method.last(self.now)
            if last is not None:
                self.emit(last)

    def next_trial(self) -> Proposal | None:
        try:
            return self.method.next_trial(self.now)
        except Undrawable as error:
            self.undrawable = str(error)
            return None

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
                self.emit(canceled(self.now, trial) if canceling else outlived(self.now, trial))

    def end(self) -> None:
        if self.now.trials or self.awaited:
            return
        if self.undrawable and not self.now.canceling:
            count = self.now.requested
            error = f"{self.undrawable} The results of its {count:,} trials are kept." if count else self.undrawable
            self.emit(ExperimentFailed(experiment_id=self.now.id, error=error, trials=count))
        else:
            self.emit(ending(self.now))


def _seed_of(experiment: Experiment, number: int) -> int:
    pinned = getattr(experiment.settings, "trial_seed", None)
    return trial_seed(experiment.seed, number) if pinned is None else pinned


def requested(experiment: Experiment, proposal: Proposal) -> TrialRequested:
    number = experiment.requested + 1
    rung = proposal.rung
    target = experiment.lengths[rung] if proposal.length is None else proposal.length
    bracket = experiment.bracket_of(rung)
    why = proposal.rule(
        trials_max=experiment.trials_max,
        refused=experiment.invalid,
        active=experiment.active,
        concurrent_trials_max=experiment.concurrent_trials_max,
        unit=experiment.unit,
        rung=rung - experiment.first(bracket),
        **proposal.numbers,
    )
    return TrialRequested(
        experiment_id=experiment.id,
        trial_id=experiment.trial_id(number),
        trial_number=number,
        hyperparameters=proposal.hyperparameters,
        seed=_seed_of(experiment, number if proposal.key is None else proposal.key),
        target_length=target,
        source_checkpoint_id=proposal.source_checkpoint_id,
        parent_trial_id=None if proposal.parent is None else experiment.trial_id(proposal.parent),
        bracket=bracket,
        reason=why.reason(f"{experiment.rules}.{why.WORD}"),
    )


def _without_passing_pauses(decided: list[EventData | PauseAtRung]) -> list[EventData]:
    """A trial that pauses and goes on (or is stopped) in the same step never pauses: it keeps its slots, or leaves at once."""
    later: set[str] = set()
    kept: list[EventData] = []
    # From the end, so that a pause knows whether its trial goes on or stops later in the step.
    for data in reversed(decided):
        if isinstance(data, (PauseAtRung, TrialPaused)):
            if data.trial_id not in later:
                kept.append(data.paused() if isinstance(data, PauseAtRung) else data)
            continue
        if isinstance(data, (TrialExtended, TrialStopped)):
            later.add(data.trial_id)
        kept.append(data)
    kept.reverse()
    return kept
