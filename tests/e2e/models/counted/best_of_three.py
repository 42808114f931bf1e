"""Three short trials; the best one is trained to the end."""

from collections.abc import Sequence

from tenuto.search import Complete, Create, CustomSearcher, Extend, Operation, Stop, Trial


class BestOfThree(CustomSearcher):
    def on_start(self) -> Sequence[Operation]:
        return [Create(length=1) for _ in range(3)]

    def on_validation(self, trial: Trial) -> Sequence[Operation]:
        trials = list(self.search.trials.values())
        if len(trials) < 3 or not all(one.at_target for one in trials) or any(one.target > 1 for one in trials):
            return []
        best, *others = sorted(trials, key=lambda one: (self.search.score(one.metrics), one.number))
        return [*(Stop(trial=one.number) for one in others), Extend(trial=best.number, length=self.search.max_length)]

    def on_trial_finished(self, trial: Trial) -> Sequence[Operation]:
        return [Complete()] if all(one.state == "finished" for one in self.search.trials.values()) else []
