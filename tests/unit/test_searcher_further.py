"""Trials that are further than the search asks them to be, because their experiment goes on with an earlier one: they count at
each rung up to their place, and nobody is asked for less than there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted, SearchOperationsRequested
from tenuto.schemas.events.search import TrialPaused, TrialRequested
from tenuto.schemas.events.trial import TrialFailed, ValidationReported
from tenuto.schemas.operations import Complete, Create, Extend
from tenuto.schemas.record import hyperparameters_hash
from tenuto.search import CustomSearcher, Known, Told, Trial
from tests.support.search_driver import Search
from tests.support.search_judge import broken
from tests.support.search_world import Faults, World, source, submitted


def continued(trials: int, *sources: Any, **more: Any) -> Search:
    """A search over 2, 10 and 40 epochs that goes on with one over 1, 4 and 16."""
    settings = {"max_length": {"epochs": 40}, "max_trials": trials, "max_concurrent_trials": trials, "divisor": 4, "max_rungs": 3}
    return Search(_sources=sources, name="asha", **settings | more)


def test_a_trial_counts_at_each_rung_up_to_its_place() -> None:
    search = continued(5, source(1, 16, (1, 0.9), (4, 0.5), (16, 0.1)), source(2, 4, (1, 0.8), (4, 0.6)), source(3, 16))
    assert search.words() == "ExperimentStarted +1 +2 +3 +4 +5"
    assert search.validate(1, 16, 0.1) == "1|"
    [paused] = search.decided
    assert isinstance(paused, TrialPaused)
    assert paused.reason.numbers | {"rung": 1, "length": 10, "rank": 1, "of": 1, "metric": 0.1} == paused.reason.numbers
    assert search.validate(2, 4, 0.6) == "2|", "it is at the first rung only"
    assert search.validate(3, 16, 0.2) == "3|", "without a record of its way it counts by what it has now"
    first, second, _ = search.recorder.state.experiments[1].rungs
    assert list(first.best) == [(0.2, 3), (0.5, 1), (0.6, 2)], "trial 1 by its validation at 4, the first one at 2 or beyond"
    assert list(second.best) == [(0.1, 1), (0.2, 3)]
    assert (first.entered, second.entered) == (5, 2)
    search.validate(4, 2, 0.7)
    assert search.validate(5, 2, 0.8) == "5| 1>40", "the best of those that were there already"


def test_the_best_of_the_parent_stays_the_best() -> None:
    search = continued(2, source(1, 16, (16, 0.1)), source(2, 4, (4, 0.5)))
    search.validate(1, 16, 0.1)
    assert search.validate(2, 4, 0.5) == "2| 1>40", "nothing runs, and the best goes on to the end"
    assert search.validate(1, 40, 0.3) == "1xcompleted 2xearly_stopped"
    assert search.finish(1, 2) == "ExperimentCompleted"
    [ended] = search.decided
    assert (ended.best_trial_id, ended.best_metric) == ("1-1", 0.1)  # type: ignore[attr-defined]


SEARCHES: list[dict[str, Any]] = [
    {"name": "asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12, "mode": "stopping"},
    {"name": "adaptive_asha", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "bohb", "max_trials": 12, "divisor": 4, "max_rungs": 3, "max_concurrent_trials": 12},
    {"name": "sha", "max_trials": 12, "divisor": 2, "max_rungs": 3},
    {"name": "hyperband", "divisor": 3, "max_rungs": 3},
    {"name": "pbt", "population_size": 6, "generations": 4},
    {"name": "random", "max_trials": 6},
    {"name": "single"},
]


@pytest.mark.parametrize("settings", SEARCHES, ids=lambda settings: settings["name"] + settings.get("mode", ""))
@pytest.mark.parametrize("seed", range(3))
def test_every_search_that_goes_on_with_an_earlier_one_ends(settings: dict[str, Any], seed: int) -> None:
    """As README's example: trials at the lengths of a search over 16 epochs, in one over 40."""
    lengths = [16, 4, 16, 4, 1, 1, 1, 4, 1, 1, 1, 3]
    sources = [source(number, length, (length, number / 20)) for number, length in enumerate(lengths, start=1)]
    world = World(submitted(settings | {"max_length": {"epochs": 40}}, sources=sources), seed=seed, slots=3)
    log = world.run()
    assert log[-1].type == "ExperimentCompleted"
    assert broken(world, log) == []
    if settings["name"] == "sha":
        assert sum(worker.length == 40 for worker in world.workers.values()) == 3, "no more than its plan has at the end"


class Rungs(CustomSearcher):
    """Halving by hand: two of four trials go on, by lengths that the class knows."""

    def on_start(self) -> list[Any]:
        return [Create(length=2) for _ in range(2)]

    def on_validation(self, trial: Trial) -> list[Any]:
        if not trial.at_target:
            return []
        if trial.target == 40:
            return [Complete()]
        return [Extend(trial=trial.number, length={2: 10, 10: 40}[trial.target])]


def test_a_search_of_ones_own_hears_that_a_trial_is_there_already() -> None:
    request = submitted({"name": "custom", "max_trials": 2, "max_length": {"epochs": 40}}, sources=[source(1, 16)])
    told = Told(Rungs, request)
    known: Known = told._search
    told.hear(TrialRequested(
        experiment_id=1, trial_id="1-1", trial_number=1, hyperparameters={}, seed=1, target_length=2, reason=Reason(rule="new"),
    ))  # fmt: skip
    assert known.trials[1].target == 2
    reached = ValidationReported(trial_id="1-1", allocation_id="a", batches=16, length=16, metrics={"loss": 0.5})
    assert told.hear(reached) == [Extend(trial=1, length=40)], "10 is behind it: it is not sent there"


def test_a_trial_of_such_a_search_is_not_asked_for_less_than_it_has() -> None:
    search = Search(_sources=[source(1, 16)], name="custom", max_trials=2, max_concurrent_trials=2, max_length={"epochs": 40})

    def ask(position: int, *operations: Any) -> str:
        return search.say(SearchOperationsRequested(
            experiment_id=1, searcher="my.py:Mine", cause_id=str(position), cause_position=position, operations=operations
        ))  # fmt: skip

    assert ask(1, Create(length=2)) == "+1"
    assert search.validate(1, 16, 0.5) == "1|"
    assert ask(2, Extend(trial=1, length=10)) == ""
    assert ask(3, Extend(trial=1, length=40)) == "1>40"


def test_a_trial_with_other_hyperparameters_has_nothing_of_its_number() -> None:
    """A search that learns from its results may draw another trial for a number: its checkpoint and its results are no start."""
    other = source(1, 16, (16, 0.1)).model_copy(update={"hyperparameters_hash": "of another one"})
    search = continued(2, other)
    request, asked = search.recorder.log[0].data, search.decided[1]
    assert isinstance(request, ExperimentSubmitted)
    assert isinstance(asked, TrialRequested)
    assert request.parent is not None
    assert request.parent.source_of(1, asked.seed, asked.hyperparameters) is None
    assert search.validate(1, 2, 0.5) == "1|"
    assert list(search.recorder.state.experiments[1].rungs[0].best) == [(0.5, 1)], "its own result"
    same = other.model_copy(update={"hyperparameters_hash": hyperparameters_hash(json.loads(json.dumps(asked.hyperparameters)))})
    assert same.is_of(1, asked.seed, asked.hyperparameters)
    assert hyperparameters_hash({"a": {"b": 1e20}, "c": [1]}) == hyperparameters_hash({"c": [1.0], "a": {"b": 10**20}})


def test_the_replacement_of_a_refused_trial_has_nothing_of_its_number() -> None:
    """Trial 8 takes the place of trial 7, which the model's code refuses, and so has other hyperparameters than trial 8 of the
    earlier experiment, whose validation at the first rung would change all ranks there."""
    settings = {
        "name": "sha",
        "max_trials": 10,
        "max_concurrent_trials": 1,
        "divisor": 2,
        "max_rungs": 2,
        "max_length": {"batches": 2},
    }
    request = submitted({**settings, "smaller_is_better": False}, sources=[source(8, 1, (1, 0.0))])
    log = World(request, 0, 1, Faults(refuse=0.2)).run()
    assert any(isinstance(event.data, TrialFailed) and event.data.trial_id == "1-7" for event in log)
    assert broken(World(request, 0, 1, Faults(refuse=0.2)), log) == []
