"""Zooms in: rounds of short trials around the best learning rate so far, and the best trial of each round is trained to the end.

Run it with: tenuto exp create config.yaml . --searcher my_search.py:Zoom
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenuto.search import Complete, Create, CustomSearcher, Extend, Known, Operation, Stop, Trial

SHORT_EPOCHS = 2


class Zoom(CustomSearcher):
    def __init__(self, search: Known) -> None:
        super().__init__(search)
        self.middle, self.width = -1.5, 1.5
        """Of the range of log10(learning_rate) that the next round draws from."""
        self.round = 0
        self.open: set[int] = set()
        """Trials of this round that have not reported yet."""
        self.asked = 0

    def on_start(self) -> Sequence[Operation]:
        return self.next_round()

    def next_round(self) -> Sequence[Operation]:
        self.round += 1
        count = self.search.settings["round_trials"]
        self.open = set(range(self.asked + 1, self.asked + count + 1))
        self.asked += count
        return [Create(hyperparameters={"learning_rate": self.drawn()}, length=SHORT_EPOCHS) for _ in range(count)]

    def drawn(self) -> float:
        exponent = self.middle + self.width * self.search.random.uniform(-1, 1)
        return 10 ** min(0.0, max(-3.0, exponent))

    def on_validation(self, trial: Trial) -> Sequence[Operation]:
        return self.heard_of(trial) if trial.at_target else []

    def on_trial_failed(self, trial: Trial, error: str, *, invalid_hyperparameters: bool) -> Sequence[Operation]:
        return self.heard_of(trial)

    def heard_of(self, trial: Trial) -> Sequence[Operation]:
        if trial.number not in self.open:
            return []  # one of an earlier round, which was trained to the end
        self.open.remove(trial.number)
        return [] if self.open else self.compare()

    def compare(self) -> Sequence[Operation]:
        """The round is complete."""
        count = self.search.settings["round_trials"]
        trials = [self.search.trials[number] for number in range(self.asked - count + 1, self.asked + 1)]
        best, *others = sorted(trials, key=lambda one: (self.search.score(one.metrics), one.number))
        self.middle, self.width = math.log10(best.hyperparameters["learning_rate"]), self.width / 3
        decided: list[Operation] = [Stop(trial=one.number) for one in others]
        decided.append(Extend(trial=best.number, length=self.search.max_length))
        if self.round < self.search.settings["rounds"]:
            decided += self.next_round()
        return decided

    def on_trial_finished(self, trial: Trial) -> Sequence[Operation]:
        started = len(self.search.trials) == self.asked and self.round == self.search.settings["rounds"]
        over = started and all(one.state == "finished" for one in self.search.trials.values())
        return [Complete()] if over else []
