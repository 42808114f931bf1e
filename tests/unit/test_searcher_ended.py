"""Trials whose own code ends their training: they count by their last validation, end as completed, and leave their places to
others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tenuto.kernel.replay import verify_decisions
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import SearchOperationsRequested
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrainingEnded, TrialFinished, ValidationReported
from tenuto.schemas.operations import Complete, Create, Extend, Operation
from tenuto.search import CustomSearcher, Known, Told, Trial
from tenuto.services.searcher.core import SearcherCore
from tests.support.said import said
from tests.support.search_driver import NAN, Search, asha
from tests.support.search_judge import ACTOR, broken
from tests.support.search_world import Faults, World, submitted


def stopped(search: Search) -> TrialStopped:
    [data] = [item for item in search.decided if isinstance(item, TrialStopped)]
    return data


def test_the_one_trial_of_a_search_is_completed_where_it_ended() -> None:
    search = Search(name="single", max_length={"epochs": 16})
    search.validate(1, 5, 0.4)
    search.validate(1, 6, 0.5)
    assert search.end(1, 7) == "1xcompleted"
    data = stopped(search)
    assert data.reason.rule == "ended_by_itself"
    assert data.reason.numbers | {"trained": 7, "length": 16, "metric": 0.5} == data.reason.numbers
    assert said(data) == (
        "Its own code ended its training at 7 epochs (batch 7), before the 16 epochs asked for (early stopping): it counts by "
        "its last validation, loss 0.5."
    )
    assert search.finish(1) == "ExperimentCompleted"
    [over] = search.decided
    assert isinstance(over, ExperimentCompleted)
    assert (over.best_trial_id, over.best_metric) == ("1-1", 0.4), "the best is the best, wherever it was"


def test_a_trial_counts_at_its_rung_and_leaves_its_place_to_the_next() -> None:
    search = asha(4, 4, max_rungs=2)
    search.validate(1, 2, 0.1)
    assert search.end(1, 3) == "1xcompleted"
    assert "at rung 0 (4 epochs) by its last validation, loss 0.1" in said(stopped(search))
    search.validate(2, 4, 0.2)
    search.validate(3, 4, 0.3)
    assert search.validate(4, 4, 0.4) == "4| 2>16", "the best of the four cannot go on, so the second one does"
    [extended] = [data for data in search.decided if isinstance(data, TrialExtended)]
    assert extended.reason.numbers | {"rank": 2, "of": 4, "top": 2, "ended": 1} == extended.reason.numbers
    assert "(the best 2, 1 of which ended by itself)" in said(extended)
    [rung, _] = search.recorder.state.experiments[1].rungs
    assert list(rung.best) == [(0.1, 1), (0.2, 2), (0.3, 3), (0.4, 4)]


def test_one_that_goes_on_and_ends_beyond_its_rung_counts_at_the_next_by_the_validation_that_it_has() -> None:
    search = asha(1, 1, max_rungs=2)
    assert search.validate(1, 4, 0.3) == "1>16"
    assert search.end(1, 4) == "1xcompleted"
    assert stopped(search).reason.numbers | {"rung": 1, "metric": 0.3, "trained": 4} == stopped(search).reason.numbers


def test_one_that_waits_already_is_closed_where_it_waits() -> None:
    search = asha(4, 4, max_rungs=2)
    assert search.validate(1, 4, 0.1) == "1|"
    assert search.end(1, 4) == "1xcompleted"
    search.validate(2, 4, 0.2)
    search.validate(3, 4, 0.3)
    assert search.validate(4, 4, 0.4) == "4| 2>16"


@pytest.mark.parametrize("loss", [NAN, None])
def test_without_a_number_it_counts_as_worst(loss: float | None) -> None:
    search = asha(4, 4, max_rungs=2)
    search.validate(1, 2, loss)
    assert search.end(1, 3) == "1xcompleted"
    assert stopped(search).reason.numbers["metric"] is None
    for number in (2, 3):
        search.validate(number, 4, number / 10)
    assert search.validate(4, 4, 0.4) == "4| 2>16"


def test_without_a_validation_it_says_so() -> None:
    search = Search(name="random", max_trials=2, max_concurrent_trials=2)
    assert search.end(1, 3, "") == "1xcompleted"
    assert said(stopped(search)).endswith("before the 16 epochs asked for, without a validation: it counts as worst.")


def test_the_mean_of_its_last_validations_counts_where_validations_are_averaged() -> None:
    search = asha(4, 4, max_rungs=2, average_validations=2)
    search.validate(1, 1, 0.4)
    search.validate(1, 2, 0.2)
    search.end(1, 3)
    assert stopped(search).reason.numbers["metric"] == pytest.approx(0.3)


def test_a_repeated_or_late_word_decides_nothing() -> None:
    search = asha(4, 4, max_rungs=2)
    search.validate(1, 2, 0.1)
    assert search.end(1, 3) == "1xcompleted"
    assert search.end(1, 3) == ""
    assert search.validate(1, 4, 0.05) == "", "it is stopped: what comes late is not compared"
    assert search.finish(1) == ""
    assert search.end(1, 3) == ""


def test_a_canceled_one_is_canceled() -> None:
    search = asha(4, 4, max_rungs=2)
    search.cancel()
    assert search.end(1, 3) == ""


def test_a_population_stays_as_large() -> None:
    search = Search(name="pbt", population_size=4, generations=2, truncate_fraction=0.25, max_concurrent_trials=4)
    for number in (1, 2, 3):
        search.save(number, 8)
        search.validate(number, 8, number / 10)
    search.validate(4, 4, 0.05)
    words = search.end(4, 5)
    assert words == "4xcompleted 3xearly_stopped +5 +6 1>16 2>16", "the best ended; two copies keep the population at four"
    copies = [data for data in search.decided if isinstance(data, TrialRequested)]
    assert {data.parent_trial_id for data in copies} == {"1-1"}, "of the best that can still train"


SHA: dict[str, Any] = {"name": "sha", "max_trials": 9, "divisor": 3, "max_rungs": 2, "max_length": {"epochs": 9}}


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_arrival_changes_who_goes_on(seed: int) -> None:
    """Trials 1 and 5 end by themselves; of nine three go on, and these are the three best of the others."""
    order = list(range(1, 10))
    random.Random(seed).shuffle(order)
    search = Search(**SHA, max_concurrent_trials=9)
    extended = set()
    for number in order:
        if number in (1, 5):
            search.validate(number, 1, number / 10)
            search.end(number, 2)
        else:
            search.validate(number, 3, number / 10)
        extended |= {data.trial_id for data in search.decided if isinstance(data, TrialExtended)}
    assert extended == {"1-2", "1-3", "1-4"}


SEARCHES: list[dict[str, Any]] = [
    {"name": "asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12, "mode": "stopping"},
    {"name": "adaptive_asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "bohb", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "sha", "max_trials": 12, "divisor": 2, "max_rungs": 3},
    {"name": "hyperband", "divisor": 3, "max_rungs": 3},
    {"name": "pbt", "population_size": 6, "generations": 4},
    {"name": "random", "max_trials": 6},
    {"name": "grid", "max_concurrent_trials": 3},
    {"name": "single"},
]
GRID = {"lr": {"type": "log", "minval": -4, "maxval": -1, "count": 3}, "dropout": 0.1, "batch_size": 1, "model": 2}


@pytest.mark.parametrize("settings", SEARCHES, ids=lambda settings: settings["name"] + settings.get("mode", ""))
@pytest.mark.parametrize("end", [0.3, 1.0])
def test_every_search_ends_whose_trials_end_anywhere(settings: dict[str, Any], end: float) -> None:
    for seed in range(5):
        request = submitted(settings, space=GRID if settings["name"] == "grid" else None)
        world = World(request, seed=seed, slots=3, faults=Faults(end=end, repeat=0.3, late=0.3), lag_max=seed * 3)
        log = world.run()
        assert broken(world, log) == []
        own = [event for event in log if event.actor == ACTOR]
        validated = any(isinstance(event.data, ValidationReported) for event in log)
        assert own[-1].type == ("ExperimentCompleted" if validated else "ExperimentFailed")
        asked = {event.data.trial_id for event in own if isinstance(event.data, TrialRequested)}
        assert asked == {event.data.trial_id for event in log if isinstance(event.data, TrialFinished)}, "all slots are free"
        by_itself = {data.trial_id for event in log if isinstance(data := event.data, TrainingEnded)}
        ends = {data.trial_id: data.outcome for event in own if isinstance(data := event.data, TrialStopped)}
        assert by_itself or end < 1
        assert all(ends[trial] == "completed" for trial in by_itself if ends[trial] != "early_stopped")
        assert verify_decisions(SearcherCore(), log).ok


class TopHalf(CustomSearcher):
    """Trains two trials to 4, and the better one on; it knows nothing of trials that end by themselves."""

    def on_start(self) -> list[Operation]:
        return [Create(length=4), Create(length=4)]

    def on_validation(self, trial: Trial) -> list[Operation]:
        if not all(item.at_target for item in self.search.trials.values()) or len(self.search.trials) < 2:
            return []
        if trial.target == self.search.max_length:
            return [Complete()]
        best = min(self.search.trials.values(), key=lambda item: self.search.score(item.metrics))
        return [Extend(trial=best.number, length=self.search.max_length)]


def test_a_search_of_ones_own_is_told_and_does_not_wait_for_it() -> None:
    searcher: dict[str, Any] = {"name": "custom", "max_trials": 2, "max_concurrent_trials": 2, "max_length": {"epochs": 16}}
    known: list[Known] = []

    class Noted(TopHalf):
        def __init__(self, search: Known) -> None:
            super().__init__(search)
            known.append(search)

    hears = Told(Noted, submitted(searcher))
    why = Reason(rule="test")
    for number in (1, 2):
        requested = TrialRequested(
            experiment_id=1, trial_id=f"1-{number}", trial_number=number, hyperparameters={}, seed=1, target_length=4, reason=why
        )
        assert hears.hear(requested) == []

    def validated(number: int, length: int, loss: float) -> list[Operation]:
        return hears.hear(
            ValidationReported(trial_id=f"1-{number}", allocation_id="a", batches=length, length=length, metrics={"loss": loss})
        )

    assert validated(2, 4, 0.5) == []
    assert hears.hear(TrialPaused(experiment_id=1, trial_id="1-2", reason=why)) == []
    assert validated(1, 2, 0.1) == []
    ended = TrainingEnded(trial_id="1-1", allocation_id="a", batches=3, length=3, said="enough")
    assert hears.hear(ended) == [Complete()], "it is as far as it can be: that is told at once, and again for what it is sent to"
    trial = known[0].trials[1]
    assert (trial.ended, trial.at_target, trial.busy, trial.length) == ("enough", True, False, 2)


def test_the_rules_of_a_search_of_ones_own_complete_it() -> None:
    search = Search(name="custom", max_trials=2, max_concurrent_trials=2)
    wanted = (Create(length=4), Create(length=4))
    asked = SearchOperationsRequested(experiment_id=1, searcher="my.py:M", cause_id="1", cause_position=1, operations=wanted)
    assert search.say(asked) == "+1 +2"
    search.validate(1, 2, 0.1)
    assert search.end(1, 3).startswith("1xcompleted")
