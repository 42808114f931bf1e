"""Asynchronous successive halving: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
https://arxiv.org/abs/1810.05934, Algorithm 2.

Symbols of the paper: eta is `divisor`, R is `max_length`, n is `max_trials`, r is the shortest rung, s (minimum early-stopping
rate) is the number of rungs that `max_rungs` leaves out. Rungs are counted from 0. Defaults: eta 4 is the paper's; 5 rungs span
a factor of 256 in length, beyond which the shortest trials say little about the longest.

mode promotion (Algorithm 2): a trial waits at its rung. A free place goes to the best waiting trial that is in the top
1/eta of its rung, rungs from the top down; only if there is none, a new trial starts.
mode stopping (the variant that common libraries run): a trial goes on at once unless it is outside the top 1/eta of those
that reached its rung so far, of which at least the best one is in it. In these libraries the first at a rung goes on, compared
with no other: the first trial of all trains to R, whatever it is. Here the first one waits until a second one is there, and the
better of the two goes on. That is nearly always cheaper, as trainings to R are what a search pays most for
(docs/benchmarks/search-peers.md).

Departures from the paper:
- Rung lengths are R / eta**k rounded down, because lengths are whole; equal ones are one rung.
- When nothing runs, no new trial is left, and no trial has been trained to R, the best waiting trial of the highest rung goes
  on (rule `asha.finalist`): the paper assumes n >= eta**k, but a user who asks for 10 trials still wants one that is fully
  trained.
- A waiting trial with so many better ones that it cannot be promoted even if all trials arrive is stopped at once
  (`asha.no_chance`): it frees its checkpoint. Its score stays, as ranks are to be true when max_trials is raised.
- With several brackets (adaptive ASHA) each has rungs of its own. A free place goes to the longest rung that has a trial to
  promote, whatever its bracket; a new trial goes to the bracket that is furthest behind its share.
- A trial whose metric is missing or not finite counts as worst of its rung and is never promoted.
- A trial whose own code ends its training counts at its rung by its last validation, and trains no further: it leaves its place
  among those that go on to the next best.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tenuto.schemas.config import AdaptiveAshaSearcher, AshaSearcher, BohbSearcher
from tenuto.schemas.config.brackets import Bracket
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.schemas.sentences.rungs import EndedAtRung, Finalist, GoesOn, Halved, NoChance, Promoted, Stopped
from tenuto.schemas.sentences.rungs import Waits as AshaWaits
from tenuto.services.searcher.methods.base import PauseAtRung, Proposal, Rules
from tenuto.services.searcher.methods.reasons import HalvedNumbers, at_rung, completed, metric_value, scored
from tenuto.services.searcher.state import Experiment, Trial
from tenuto.services.searcher.state.ranking import Key, Rung

WAITING_SPARE = 4
"""Trials kept waiting beyond those that can be promoted: the next best, should those fail later on."""


class Asha(Rules[AshaSearcher | AdaptiveAshaSearcher | BohbSearcher]):
    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        return self.settings.brackets

    @property
    def exact(self) -> bool:
        return False

    @property
    def stops(self) -> bool:
        """The stopping form instead of promotion."""
        return self.settings.mode == "stopping"

    @property
    def first_waits(self) -> bool:
        """True if the first trial at a rung waits for a second one, in the stopping form."""
        return self.stops

    def best_max(self, trials: int) -> int:
        return trials  # All of them: max_trials may be raised, and then ranks below the old top count.

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        number = experiment.requested + 1
        return Proposal(self.hyperparameters(experiment.seed, number), self.next_rung(experiment))

    def next_rung(self, experiment: Experiment) -> int:
        """The first rung of the bracket that has started the smallest part of its trials."""
        if len(experiment.brackets) == 1:
            return 0
        firsts = [experiment.first(index) for index in range(len(experiment.brackets))]
        started = [experiment.rungs[first].started for first in firsts]
        best = 0
        for index, bracket in enumerate(experiment.brackets):
            # As (started + 1) / trials, in whole numbers; of equal ones the first.
            if (started[index] + 1) * experiment.brackets[best].trials < (started[best] + 1) * bracket.trials:
                best = index
        return firsts[best]

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | PauseAtRung:
        if experiment.is_top(trial.rung):
            return completed(experiment, trial)
        if trial.key is None:
            return self.worst(experiment, trial)
        if self.stops and not (self.first_waits and experiment.rungs[trial.rung].size == 1):
            return self._stop_or_go_on(experiment, trial, trial.key)
        # Algorithm 2: it joins those that wait, then its place goes to whom it is due, which may be itself.
        key = trial.key
        return PauseAtRung(experiment.trial_id(trial.number), lambda: self._wait(experiment, trial, key))

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return self._promotion(experiment)

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return self._finalist(experiment)

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        waiting = experiment.rungs[rung].waiting
        if waiting and self.stops:
            # In this form only the first trial at a rung waits, and the arrival of the second one decides about it.
            beaten = experiment.rungs[rung].ahead(waiting[-1]) >= max(1, self._top(experiment.rungs[rung]))
            return self._stop(experiment, rung, waiting[-1]) if beaten else None
        if waiting and self._has_no_chance(experiment, rung, waiting[-1]):
            return self._no_chance(experiment, rung, waiting[-1])
        return None

    def _top(self, rung: Rung) -> int:
        """Number of trials, of those that reached the rung, that may go on."""
        if not self.stops:
            return rung.size // self.settings.divisor
        return 0 if self.first_waits and rung.size < 2 else max(1, rung.size // self.settings.divisor)

    # -- promotion

    def _waiting(self, experiment: Experiment) -> Iterator[tuple[int, Key]]:
        """The best waiting trial of each rung that has one, the longest rungs first."""
        for index in experiment.order:
            waiting = experiment.rungs[index].waiting
            if waiting.size:
                yield index, waiting[0]

    def _promotion(self, experiment: Experiment) -> TrialExtended | None:
        # If the best one that waits is not in the top 1/eta, none that waits is.
        for index, key in self._waiting(experiment):
            rung = experiment.rungs[index]
            top = self._top(rung)
            if not top or rung.ahead(key) >= top:
                continue
            if self.stops:
                return self._go_on(experiment, index, key)
            rank = rung.best.rank(key)
            return self._extended(experiment, index, key, Promoted(**self._numbers(experiment, index, key, rank)))
        return None

    def _finalist(self, experiment: Experiment) -> TrialExtended | None:
        # A trial with a score at the full length is there, so none is missing.
        if any(experiment.rungs[top].best for top in experiment.lasts):
            return None
        for index, key in self._waiting(experiment):
            rank = experiment.rungs[index].best.rank(key)
            return self._extended(experiment, index, key, Finalist(**self._numbers(experiment, index, key, rank)))
        return None

    def _extended(self, experiment: Experiment, rung: int, key: Key, why: Halved) -> TrialExtended:
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            target_length=experiment.lengths[rung + 1],
            reason=why.reason(),
        )

    def _wait(self, experiment: Experiment, trial: Trial, key: Key) -> TrialPaused:
        rank = experiment.rungs[trial.rung].best.rank(key)
        why = AshaWaits(**self._numbers(experiment, trial.rung, key, rank), first=self.stops)
        return TrialPaused(experiment_id=experiment.id, trial_id=experiment.trial_id(trial.number), reason=why.reason())

    # -- stopping

    def _stop_or_go_on(self, experiment: Experiment, trial: Trial, key: Key) -> TrialExtended | TrialStopped:
        rung = experiment.rungs[trial.rung]
        if rung.ahead(key) < self._top(rung):
            return self._go_on(experiment, trial.rung, key)
        return self._stop(experiment, trial.rung, key)

    def _go_on(self, experiment: Experiment, index: int, key: Key) -> TrialExtended:
        rank = experiment.rungs[index].best.rank(key)
        return self._extended(experiment, index, key, GoesOn(**self._numbers(experiment, index, key, rank)))

    def _stop(self, experiment: Experiment, index: int, key: Key) -> TrialStopped:
        rank = experiment.rungs[index].best.rank(key)
        return self._stopped(experiment, key, Stopped(**self._numbers(experiment, index, key, rank)))

    # -- stops in both modes

    def _has_no_chance(self, experiment: Experiment, rung: int, key: Key) -> bool:
        """A rank only gets worse, and the top 1/eta never holds more than max_trials / eta."""
        limit = self._promotable(experiment, rung) + WAITING_SPARE
        here = experiment.rungs[rung]
        limit = here.last_of(limit)
        return here.best.size >= limit and here.best[limit - 1] < key

    def _promotable(self, experiment: Experiment, rung: int) -> int:
        return experiment.brackets[experiment.bracket_of(rung)].trials // self.settings.divisor

    def _no_chance(self, experiment: Experiment, rung: int, key: Key) -> TrialStopped:
        rank, trials = experiment.rungs[rung].best.rank(key), experiment.brackets[experiment.bracket_of(rung)].trials
        numbers = self._numbers(experiment, rung, key, rank)
        known = experiment.rungs[rung].last_of(self._promotable(experiment, rung) + WAITING_SPARE)
        # For this rule `top` is the number of trials ahead for good, and not the rung's present top.
        ended = known - self._promotable(experiment, rung) - WAITING_SPARE
        numbers |= {"top": known, "ended": ended, "cut_off": self._metric_at(experiment, rung, known)}
        return self._stopped(experiment, key, NoChance(**numbers, expected=trials))

    def _stopped(self, experiment: Experiment, key: Key, why: EndedAtRung) -> TrialStopped:
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            outcome="early_stopped",
            reason=why.reason(),
        )

    def _numbers(self, experiment: Experiment, index: int, key: Key, before: int) -> HalvedNumbers:
        """The comparison, with the last one in the top 1/eta. `before`: how many are better."""
        rung = experiment.rungs[index]
        rank, top = before + 1, rung.last_of(self._top(rung))
        known = rank <= rung.best_max
        return {
            **scored(experiment, key[0]),
            **at_rung(experiment, index),
            "rank": rank if known else None,
            "rank_at_least": None if known else rank,
            "of": rung.size,
            "top": top,
            "cut_off": self._metric_at(experiment, index, top),
            "divisor": self.settings.divisor,
            "ended": top - self._top(rung),
        }

    @staticmethod
    def _metric_at(experiment: Experiment, index: int, rank: int) -> float | None:
        best = experiment.rungs[index].best
        return metric_value(experiment, best[rank - 1][0]) if 1 <= rank <= len(best) else None
