"""Successive halving in step: a rung is compared once all its trials are there.

sha: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016,
https://arxiv.org/abs/1502.07943. n is `max_trials`, eta is `divisor`, R is `max_length`.
hyperband: Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 18, 2018,
https://arxiv.org/abs/1603.06560, Algorithm 1. R is `max_length`, eta is `divisor` (3, the paper's), s_max + 1 is the number of
rungs that `max_rungs` allows. Its brackets do not depend on each other: they start in the paper's order, and the next one fills
the places that the last trials of a rung leave free.

After a rung of n_i trials is complete, the best floor(n_i / eta) go on, at least one. Because a rung is compared only when it
is complete, the order in which trials report changes nothing: one seed is one search. So that this holds where the model code
refuses hyperparameters, another trial takes the very place of the refused one (`state.PlanPoint`).

Departures: a trial that failed, or whose metric is missing or not finite, counts as worst. A waiting trial that cannot be among
the best any more is stopped at once instead of at the end of its rung. A trial whose own code ends its training counts at its
rung by its last validation, trains no further, and leaves its place among those that go on to the next best.
"""

from __future__ import annotations

from functools import cached_property

from tenuto.schemas.config import HyperbandSearcher, ShaSearcher
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.config.searcher_base import TRIALS_MAX
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.rungs import PromotedOfAll, StoppedOfAll, WaitsForAll
from tenuto.services.searcher.methods.base import Proposal, Rules, unsatisfiable
from tenuto.services.searcher.methods.reasons import HalvedNumbers, at_rung, completed, metric_value, scored
from tenuto.services.searcher.methods.versions import PASSES_RUNGS
from tenuto.services.searcher.state import Experiment, Trial
from tenuto.services.searcher.state.ranking import Key


class Halving(Rules[ShaSearcher | HyperbandSearcher]):
    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        return self.settings.brackets

    def best_max(self, trials: int) -> int:
        return trials  # All of them: a trial that failed while it waited lets a worse one go on.

    @property
    def keeps_places(self) -> bool:
        return True

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        if experiment.vacant:
            return self.again(experiment, experiment.vacant[0])
        key = experiment.next_place
        hyperparameters = self.hyperparameters(experiment.seed, key)
        rung = 0
        for bracket in experiment.brackets:
            if experiment.rungs[rung].started < bracket.trials:
                return Proposal(hyperparameters, rung, key=key)
            rung += len(bracket.lengths)
        return None

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped:
        if experiment.is_top(trial.rung):
            return completed(experiment, trial)
        if trial.key is None:
            return self.worst(experiment, trial)
        rung = experiment.rungs[trial.rung]
        expected, _ = self._expected(experiment, trial.rung)
        why = WaitsForAll(**scored(experiment, trial.score), **at_rung(experiment, trial.rung), arrived=rung.size, of=expected)
        return TrialPaused(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            reason=why.reason(f"{self.settings.name}.wait"),
        )

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        for index in experiment.order:
            waiting = experiment.rungs[index].waiting
            if waiting and self._is_complete(experiment, index) and self._places(experiment, index) > 0:
                return self._extended(experiment, index, waiting[0])
        return None

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        waiting = experiment.rungs[rung].waiting
        if not waiting:
            return None
        if self._is_complete(experiment, rung):
            return self._stopped(experiment, rung, waiting[-1]) if self._places(experiment, rung) < len(waiting) else None
        _, goes_on = self._expected(experiment, rung)
        beaten = experiment.rungs[rung].ahead(waiting[-1]) >= goes_on
        return self._stopped(experiment, rung, waiting[-1]) if beaten else None

    # -- rungs

    def _expected(self, experiment: Experiment, rung: int) -> tuple[int, int]:
        """Number of trials that a rung gets if none fails before it, and number of those that go on."""
        bracket = experiment.brackets[experiment.bracket_of(rung)]
        expected = bracket.trials
        for _ in range(rung - (experiment.lasts[rung] + 1 - len(bracket.lengths))):
            expected = max(1, expected // self.settings.divisor)
        return expected, max(1, expected // self.settings.divisor)

    def _is_complete(self, experiment: Experiment, rung: int) -> bool:
        """True if every trial that can come to the rung has come, or failed on its way."""
        first = experiment.first(experiment.bracket_of(rung))
        # Trials that are still to be drawn may reach the rung, too.
        if experiment.rungs[first].started < experiment.brackets[experiment.bracket_of(rung)].trials and experiment.wants_trials:
            return False
        for index in range(first, rung + 1):
            # A trial is still on the way; `size` includes those that failed on it.
            if experiment.rungs[index].size < experiment.rungs[index].entered:
                return False
            # A trial that waits below is still to be promoted towards this rung.
            if index < rung and experiment.rungs[index].waiting and self._places(experiment, index) > 0:
                return False
        return True

    def _places(self, experiment: Experiment, rung: int) -> int:
        """Number of further trials of a complete rung that go on."""
        return self._goes_on(experiment, rung) - experiment.rungs[rung + 1].entered

    def _goes_on(self, experiment: Experiment, rung: int) -> int:
        """Number of trials of a complete rung that go on. Trials that were further already may be more than were planned for it:
        they cost nothing here, but would at the next rung."""
        size = experiment.rungs[rung].size
        if self.rule_version >= PASSES_RUNGS:
            size = min(size, self._expected(experiment, rung)[0])
        return max(1, size // self.settings.divisor)

    def _last_rank(self, experiment: Experiment, rung: int) -> int:
        """Rank (from 1) of the last trial that goes on from a complete rung."""
        here = experiment.rungs[rung]
        places = min(self._places(experiment, rung), len(here.waiting))
        return here.best.rank(here.waiting[places - 1]) + 1 if places > 0 else here.last_of(self._goes_on(experiment, rung))

    def _extended(self, experiment: Experiment, rung: int, key: Key) -> TrialExtended:
        why = PromotedOfAll(**self._numbers(experiment, rung, key, self._last_rank(experiment, rung)))
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            target_length=experiment.lengths[rung + 1],
            reason=why.reason(f"{self.settings.name}.promotion"),
        )

    def _stopped(self, experiment: Experiment, rung: int, key: Key) -> TrialStopped:
        expected, goes_on = self._expected(experiment, rung)
        compared = experiment.rungs[rung].last_of(goes_on)
        if self._is_complete(experiment, rung):
            expected, compared = experiment.rungs[rung].size, self._last_rank(experiment, rung)
        why = StoppedOfAll(**self._numbers(experiment, rung, key, compared), expected=expected)
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            outcome="early_stopped",
            reason=why.reason(f"{self.settings.name}.stop"),
        )

    def _numbers(self, experiment: Experiment, rung: int, key: Key, compared: int) -> HalvedNumbers:
        """`compared`: the last rank that goes on, whose value is the cut-off."""
        here = experiment.rungs[rung]
        rank = here.best.rank(key) + 1
        known = rank <= here.best_max
        return {
            **scored(experiment, key[0]),
            **at_rung(experiment, rung),
            "rank": rank if known else None,
            "rank_at_least": None if known else rank,
            "of": here.size,
            "top": compared,
            "cut_off": metric_value(experiment, here.best[compared - 1][0]) if compared <= len(here.best) else None,
            "divisor": self.settings.divisor,
            "ended": 0,
        }


class Hyperband(Halving):
    @property
    def trials_max(self) -> int:
        return sum(bracket.trials for bracket in self.brackets)

    @property
    def problem(self) -> str | None:
        if self.trials_max > TRIALS_MAX:
            return (
                f"These brackets have {self.trials_max:,} trials, but an experiment may have at most {TRIALS_MAX:,};"
                " lower searcher.iterations or searcher.max_rungs."
            )
        return unsatisfiable(self.settings, self.space)
