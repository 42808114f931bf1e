"""Asynchronous successive halving: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
https://arxiv.org/abs/1810.05934, Algorithm 2.

Symbols of the paper: eta is `divisor`, R is `max_length`, n is `max_trials`, r is the shortest rung, s (minimum early-stopping
rate) is the number of rungs that `max_rungs` leaves out. Rungs are counted from 0. Defaults: eta 4 is the paper's; 5 rungs span
a factor of 256 in length, beyond which the shortest trials say little about the longest.

mode promotion (Algorithm 2): a trial waits at its rung. A free place goes to the best waiting trial that is in the top
1/eta of its rung, rungs from the top down; only if there is none, a new trial starts.
mode stopping (the variant that common libraries run): a trial goes on at once unless it is outside the top 1/eta of those
that reached its rung so far, of which at least the best one is in it. In these libraries the first at a rung goes on, compared
with nobody: the first trial of all trains to R, whatever it is. Here the first one waits until a second one is there, and the
better of the two goes on. That is nearly always cheaper, as trainings to R are what a search pays most for
(docs/benchmarks/search-peers.md).

Departures from the paper:
- Rung lengths are R / eta**k rounded down, because lengths are whole; equal ones are one rung.
- When nothing runs, no new trial is left, and no trial has been trained to R, the best waiting trial of the highest rung goes
  on (rule `asha.finalist`): the paper assumes n >= eta**k, but whoever asks for 10 trials still wants one that is fully trained.
- A waiting trial with so many better ones that it cannot be promoted even if all trials arrive is stopped at once
  (`asha.no_chance`): it frees its checkpoint. Its score stays, as ranks are to be true when max_trials is raised.
- With several brackets (adaptive ASHA) each has rungs of its own. A free place goes to the longest rung that has somebody to
  promote, whatever its bracket; a new trial goes to the bracket that is furthest behind its share.
- A trial whose metric is missing or not finite counts as worst of its rung and is never promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from tenuto.schemas.config import AdaptiveAshaSearcher, AshaSearcher, BohbSearcher
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.services.searcher.ladder import Bracket, rung_lengths
from tenuto.services.searcher.methods.base import Proposal, Rules, Waits, length, metric_value, place, reason, show
from tenuto.services.searcher.methods.reasons import completed
from tenuto.services.searcher.ranking import Key, Rung
from tenuto.services.searcher.state import Experiment, Trial

WAITING_SPARE = 4
"""Trials kept waiting beyond those that can be promoted: the next best, should those fail later on."""


class Asha(Rules[AshaSearcher | AdaptiveAshaSearcher | BohbSearcher]):
    @cached_property
    def brackets(self) -> tuple[Bracket, ...]:
        lengths = rung_lengths(self.settings.max_length.value, self.settings.divisor, self.settings.max_rungs)
        return (Bracket(self.settings.max_trials, lengths),)

    @property
    def stops(self) -> bool:
        """The stopping form instead of promotion."""
        return self.settings.mode == "stopping"

    @property
    def first_waits(self) -> bool:
        """Whether the first trial at a rung waits for a second one, in the stopping form."""
        return self.stops and self.rule_version >= 4

    def best_max(self, trials: int) -> int:
        # All of them: max_trials may be raised, and then ranks below the old top count. Rules before version 3 forgot these.
        return trials if self.rule_version >= 3 else trials // self.settings.divisor + WAITING_SPARE

    def next_trial(self, experiment: Experiment) -> Proposal | None:
        number = experiment.requested + 1
        hyperparameters = self.hyperparameters(experiment.seed, number)
        return None if hyperparameters is None else Proposal(hyperparameters, self.next_rung(experiment))

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

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped | Waits:
        if experiment.is_top(trial.rung):
            return completed(experiment, trial)
        if trial.key is None:
            return self.worst(experiment, trial)
        if self.stops and not (self.first_waits and experiment.rungs[trial.rung].size == 1):
            return self._stop_or_go_on(experiment, trial, trial.key)
        # Algorithm 2: it joins those that wait, then its place goes to whom it is due, which may be itself.
        key = trial.key
        return Waits(experiment.trial_id(trial.number), lambda: self._wait(experiment, trial, key))

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return self._promotion(experiment)

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return self._finalist(experiment)

    def hopeless(self, experiment: Experiment, rung: int) -> TrialStopped | None:
        waiting = experiment.rungs[rung].waiting
        if waiting and self.stops:
            beaten = experiment.rungs[rung].best.rank(waiting[-1]) >= max(1, self._top(experiment.rungs[rung]))
            return self._stop(experiment, rung, waiting[-1]) if beaten else None
        if waiting and self._has_no_chance(experiment, rung, waiting[-1]):
            return self._no_chance(experiment, rung, waiting[-1])
        return None

    def _top(self, rung: Rung) -> int:
        """How many of those that reached the rung may go on."""
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
            if self.stops and top and rung.best.rank(key) < top:
                return self._go_on(experiment, index, key)
            if top and (rank := rung.best.rank(key)) < top:
                return self._extended(
                    experiment,
                    index,
                    key,
                    rank,
                    "asha.promotion",
                    f"Rank {rank + 1} of {rung.size} at {place(experiment, index)}, {show(experiment, key[0])}:"
                    f" in the top 1/{self.settings.divisor} (the best {top}), so it trains on to"
                    f" {length(experiment, index + 1)}.",
                )
        return None

    def _finalist(self, experiment: Experiment) -> TrialExtended | None:
        if any(experiment.rungs[top].best for top in experiment.lasts):
            return None
        for index, key in self._waiting(experiment):
            rank = experiment.rungs[index].best.rank(key)
            return self._extended(
                experiment,
                index,
                key,
                rank,
                "asha.finalist",
                f"All trials are compared and none is trained to the full length: the best that waits at the highest rung"
                f" (rank {rank + 1} at {place(experiment, index)}, {show(experiment, key[0])}) trains on to"
                f" {length(experiment, index + 1)}.",
            )
        return None

    def _extended(self, experiment: Experiment, rung: int, key: Key, rank: int, rule: str, text: str) -> TrialExtended:
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            target_length=experiment.lengths[rung + 1],
            reason=reason(rule, text, **self._numbers(experiment, rung, key, rank)),
        )

    def _wait(self, experiment: Experiment, trial: Trial, key: Key) -> TrialPaused:
        rung = experiment.rungs[trial.rung]
        rank, top = rung.best.rank(key), self._top(rung)
        first = "the first one there, so it waits without slots for another one to be compared with"
        why = (
            first
            if self.stops
            else (
                "its place goes to a trial that is before it, and it goes on at the next free place"
                if rank < top
                else f"not in the top 1/{self.settings.divisor} ({f'the best {top}' if top else 'too few to compare'}) yet,"
                " so it waits without slots"
            )
        )
        return TrialPaused(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            reason=reason(
                "asha.wait",
                f"Rank {rank + 1} of {rung.size} at {place(experiment, trial.rung)}, {show(experiment, key[0])}: {why}.",
                **self._numbers(experiment, trial.rung, key, rank),
            ),
        )

    # -- stopping

    def _stop_or_go_on(self, experiment: Experiment, trial: Trial, key: Key) -> TrialExtended | TrialStopped:
        rung = experiment.rungs[trial.rung]
        if rung.best.rank(key) < self._top(rung):
            return self._go_on(experiment, trial.rung, key)
        return self._stop(experiment, trial.rung, key)

    def _go_on(self, experiment: Experiment, index: int, key: Key) -> TrialExtended:
        rung = experiment.rungs[index]
        rank = rung.best.rank(key)
        return self._extended(
            experiment,
            index,
            key,
            rank,
            "asha.go_on",
            f"Rank {rank + 1} of {rung.size} at {place(experiment, index)}, {show(experiment, key[0])}: in the top"
            f" 1/{self.settings.divisor} of those so far (the best {self._top(rung)}), so it trains on to"
            f" {length(experiment, index + 1)}.",
        )

    def _stop(self, experiment: Experiment, index: int, key: Key) -> TrialStopped:
        top = self._top(experiment.rungs[index])
        where = f"at {place(experiment, index)}, {show(experiment, key[0])}"
        return self._stopped(
            experiment, index, key, "asha.stop", f"{where}: outside the top 1/{self.settings.divisor} (the best {top})"
        )

    # -- stops in both modes

    def _has_no_chance(self, experiment: Experiment, rung: int, key: Key) -> bool:
        """A rank only gets worse, and the top 1/eta never holds more than max_trials / eta."""
        limit = self._promotable(experiment, rung) + WAITING_SPARE
        best = experiment.rungs[rung].best
        return best.size >= limit and best[limit - 1] < key

    def _promotable(self, experiment: Experiment, rung: int) -> int:
        return experiment.brackets[experiment.bracket_of(rung)].trials // self.settings.divisor

    def _no_chance(self, experiment: Experiment, rung: int, key: Key) -> TrialStopped:
        promotable, limit = self._promotable(experiment, rung), None
        kept = ""
        if self.rule_version >= 3:
            limit = promotable + WAITING_SPARE
            kept = f", and {limit} better ones are known"
        trials = experiment.brackets[experiment.bracket_of(rung)].trials
        return self._stopped(
            experiment,
            rung,
            key,
            "asha.no_chance",
            f"at {place(experiment, rung)}, {show(experiment, key[0])}: of"
            f" {trials:,} trials at most the best {promotable} can go on{kept}",
            limit,
        )

    def _stopped(
        self, experiment: Experiment, index: int, key: Key, rule: str, text: str, compared: int | None = None
    ) -> TrialStopped:
        rung = experiment.rungs[index]
        before = rung.best.rank(key)
        rank = before + 1
        place = f"Rank {rank} of {rung.size}" if rank <= rung.best_max else f"Not among the best {rung.best_max} of {rung.size}"
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            outcome="early_stopped",
            reason=reason(rule, f"{place} {text}, so it is stopped.", **self._numbers(experiment, index, key, before, compared)),
        )

    def _numbers(self, experiment: Experiment, index: int, key: Key, rank: int, compared: int | None = None) -> dict[str, Any]:
        """The comparison as numbers: ranks count from 1; `cut_off` is the metric of the last one in the top 1/eta, or of the one
        with rank `compared`."""
        rung = experiment.rungs[index]
        top = self._top(rung)
        expected = {}
        if compared is not None:
            top, expected = compared, {"expected": experiment.brackets[experiment.bracket_of(index)].trials}
        rank += 1
        cut_off = rung.best[top - 1][0] if 1 <= top <= len(rung.best) else None
        bracket = experiment.bracket_of(index)
        return ({} if len(experiment.brackets) == 1 else {"bracket": bracket}) | {
            "rung": index - experiment.first(bracket),
            "length": experiment.lengths[index],
            "rank" if rank <= rung.best_max else "rank_at_least": rank,
            "of": rung.size,
            "top": top,
            "cut_off": metric_value(experiment, cut_off),
            "metric": metric_value(experiment, key[0]),
            "divisor": self.settings.divisor,
            **expected,
        }
