"""Asynchronous successive halving: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
https://arxiv.org/abs/1810.05934, Algorithm 2.

Symbols of the paper: eta is `divisor`, R is `max_length`, n is `max_trials`, r is the shortest rung. Rungs are counted from 0.

mode promotion (Algorithm 2): a trial waits at its rung. A free place goes to the best waiting trial that is in the top
1/eta of its rung, rungs from the top down; only if there is none, a new trial starts.
mode stopping (the variant that common libraries run): a trial goes on at once unless it is outside the top 1/eta of those
that reached its rung so far. The first at a rung always goes on.

Departures from the paper:
- Rung lengths are R / eta**k rounded down, because lengths are whole; equal ones are one rung.
- When nothing runs, no new trial is left, and no trial has been trained to R, the best waiting trial of the highest rung goes
  on (rule `asha.finalist`): the paper assumes n >= eta**k, but whoever asks for 10 trials still wants one that is fully trained.
- A waiting trial with so many better ones that it cannot be promoted even if all trials arrive is stopped at once
  (`asha.no_chance`): it frees its checkpoint, and memory grows with n / eta, not with n.
- A trial whose metric is missing or not finite counts as worst of its rung and is never promoted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tenuto.schemas.config import AshaSearcher, Hyperparameters
from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialStopped
from tenuto.services.searcher.methods.reasons import completed, length, metric_value, reason, show
from tenuto.services.searcher.ranking import Key
from tenuto.services.searcher.sampling import sample
from tenuto.services.searcher.state import Experiment, Trial

WAITING_SPARE = 4
"""Trials kept waiting beyond those that can be promoted: the next best, should those fail later on."""


def rung_lengths(max_length: int, divisor: int, max_rungs: int) -> tuple[int, ...]:
    """Rising lengths, the last one max_length; at most max_rungs, none below 1."""
    lengths = [max_length]
    while len(lengths) < max_rungs and (shorter := max_length // divisor ** len(lengths)) >= 1:
        lengths.append(shorter)
    return tuple(reversed(lengths))


@dataclass(frozen=True)
class Asha:
    settings: AshaSearcher
    space: Hyperparameters

    @property
    def lengths(self) -> tuple[int, ...]:
        return rung_lengths(self.settings.max_length.value, self.settings.divisor, self.settings.max_rungs)

    @property
    def trials_max(self) -> int:
        return self.settings.max_trials

    @property
    def concurrent_trials_max(self) -> int:
        return self.settings.max_concurrent_trials

    @property
    def rung_best_max(self) -> int:
        return self.settings.max_trials // self.settings.divisor + WAITING_SPARE

    @property
    def problem(self) -> str | None:
        return None

    def hyperparameters(self, seed: int, trial_number: int) -> dict[str, Any]:
        return sample(self.space, seed, trial_number)

    def reached(self, experiment: Experiment, trial: Trial) -> TrialExtended | TrialPaused | TrialStopped:
        if trial.rung == experiment.top:
            return completed(experiment, trial)
        if trial.key is None:
            return self._worst(experiment, trial)
        if self.settings.mode == "stopping":
            return self._stop_or_go_on(experiment, trial, trial.key)
        # Algorithm 2: it joins those that wait, then its place goes to whom it is due, which may be itself.
        return self._wait(experiment, trial, trial.key)

    def go_on(self, experiment: Experiment) -> TrialExtended | None:
        return self._promotion(experiment)

    def last(self, experiment: Experiment) -> TrialExtended | None:
        return self._finalist(experiment)

    def hopeless(self, experiment: Experiment) -> TrialStopped | None:
        for index, rung in enumerate(experiment.rungs):
            if rung.waiting and self._has_no_chance(experiment, index, rung.waiting[-1]):
                return self._no_chance(experiment, index, rung.waiting[-1])
        return None

    # -- promotion

    def _waiting(self, experiment: Experiment) -> Iterator[tuple[int, Key]]:
        """The best waiting trial of each rung that has one, rungs from the top down."""
        for index in range(experiment.top - 1, -1, -1):
            if waiting := experiment.rungs[index].waiting:
                yield index, waiting[0]

    def _promotion(self, experiment: Experiment) -> TrialExtended | None:
        # If the best one that waits is not in the top 1/eta, none that waits is.
        for index, key in self._waiting(experiment):
            rung = experiment.rungs[index]
            rank, top = rung.best.rank(key), rung.size // self.settings.divisor
            if rank < top:
                return self._extended(
                    experiment,
                    index,
                    key,
                    "asha.promotion",
                    f"Rank {rank + 1} of {rung.size} at rung {index} ({length(experiment, index)}), {show(experiment, key[0])}:"
                    f" in the top 1/{self.settings.divisor} (the best {top}), so it trains on to"
                    f" {length(experiment, index + 1)}.",
                )
        return None

    def _finalist(self, experiment: Experiment) -> TrialExtended | None:
        if experiment.rungs[experiment.top].best:
            return None
        for index, key in self._waiting(experiment):
            rank = experiment.rungs[index].best.rank(key) + 1
            return self._extended(
                experiment,
                index,
                key,
                "asha.finalist",
                f"All trials are compared and none is trained to the full length: the best that waits at the highest rung"
                f" (rank {rank} at rung {index}, {show(experiment, key[0])}) trains on to {length(experiment, index + 1)}.",
            )
        return None

    def _extended(self, experiment: Experiment, rung: int, key: Key, rule: str, text: str) -> TrialExtended:
        return TrialExtended(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            target_length=experiment.lengths[rung + 1],
            reason=reason(rule, text, **self._numbers(experiment, rung, key)),
        )

    def _wait(self, experiment: Experiment, trial: Trial, key: Key) -> TrialPaused:
        rung = experiment.rungs[trial.rung]
        rank, top = rung.best.rank(key), rung.size // self.settings.divisor
        why = (
            "its place goes to a trial that is before it, and it goes on at the next free place"
            if rank < top
            else f"not in the top 1/{self.settings.divisor} ({f'the best {top}' if top else 'too few to compare'}) yet,"
            " so it waits without slots"
        )
        return TrialPaused(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            reason=reason(
                "asha.wait",
                f"Rank {rank + 1} of {rung.size} at rung {trial.rung} ({length(experiment, trial.rung)}),"
                f" {show(experiment, key[0])}: {why}.",
                **self._numbers(experiment, trial.rung, key),
            ),
        )

    # -- stopping

    def _stop_or_go_on(self, experiment: Experiment, trial: Trial, key: Key) -> TrialExtended | TrialStopped:
        rung = experiment.rungs[trial.rung]
        rank, top = rung.best.rank(key), max(1, rung.size // self.settings.divisor)
        where = f"at rung {trial.rung} ({length(experiment, trial.rung)}), {show(experiment, key[0])}"
        if rank < top:
            return self._extended(
                experiment,
                trial.rung,
                key,
                "asha.go_on",
                f"Rank {rank + 1} of {rung.size} {where}: in the top 1/{self.settings.divisor} of those so far (the best {top}),"
                f" so it trains on to {length(experiment, trial.rung + 1)}.",
            )
        return self._stopped(
            experiment, trial.rung, key, "asha.stop", f"{where}: outside the top 1/{self.settings.divisor} (the best {top})"
        )

    # -- stops in both modes

    def _has_no_chance(self, experiment: Experiment, rung: int, key: Key) -> bool:
        """A rank only gets worse, and the top 1/eta never holds more than max_trials / eta."""
        return experiment.rungs[rung].best.rank(key) >= self.rung_best_max

    def _no_chance(self, experiment: Experiment, rung: int, key: Key) -> TrialStopped:
        promotable = self.settings.max_trials // self.settings.divisor
        return self._stopped(
            experiment,
            rung,
            key,
            "asha.no_chance",
            f"at rung {rung} ({length(experiment, rung)}), {show(experiment, key[0])}: of"
            f" {self.settings.max_trials:,} trials at most the best {promotable} can go on",
        )

    def _stopped(self, experiment: Experiment, index: int, key: Key, rule: str, text: str) -> TrialStopped:
        rung = experiment.rungs[index]
        rank = rung.best.rank(key) + 1
        place = f"Rank {rank} of {rung.size}" if rank <= rung.best_max else f"Not among the best {rung.best_max} of {rung.size}"
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(key[1]),
            outcome="early_stopped",
            reason=reason(rule, f"{place} {text}, so it is stopped.", **self._numbers(experiment, index, key)),
        )

    def _worst(self, experiment: Experiment, trial: Trial) -> TrialStopped:
        rung = experiment.rungs[trial.rung]
        return TrialStopped(
            experiment_id=experiment.id,
            trial_id=experiment.trial_id(trial.number),
            outcome="early_stopped",
            reason=reason(
                "asha.worst",
                f"{show(experiment, None)} at rung {trial.rung} ({length(experiment, trial.rung)}): it counts as worst of"
                f" {rung.size} and is stopped.",
                rung=trial.rung,
                length=experiment.lengths[trial.rung],
                rank=rung.size,
                of=rung.size,
                metric=None,
            ),
        )

    def _numbers(self, experiment: Experiment, index: int, key: Key) -> dict[str, Any]:
        """The comparison as numbers: ranks count from 1; `cut_off` is the metric of the last one in the top 1/eta."""
        rung = experiment.rungs[index]
        top = rung.size // self.settings.divisor
        if self.settings.mode == "stopping":
            top = max(1, top)
        rank = rung.best.rank(key) + 1
        cut_off = rung.best[top - 1][0] if 1 <= top <= len(rung.best) else None
        return {
            "rung": index,
            "length": experiment.lengths[index],
            "rank" if rank <= rung.best_max else "rank_at_least": rank,
            "of": rung.size,
            "top": top,
            "cut_off": metric_value(experiment, cut_off),
            "metric": metric_value(experiment, key[0]),
            "divisor": self.settings.divisor,
        }
