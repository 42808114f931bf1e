"""Searches whose trials have no metric or are refused, or whose limits change: decisions and records."""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_left
from typing import Any

import pytest

from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.services.searcher.core import SearcherCore
from tests.support.said import said
from tests.support.search_driver import Search, asha

SQUARE = {"x": {"type": "double", "minval": 0, "maxval": 1}, "y": {"type": "double", "minval": 0, "maxval": 1}}


def test_bohb_learns_from_failed_and_refused_trials_and_a_snapshot_keeps_them() -> None:
    search = Search(SQUARE, name="bohb", max_trials=50, max_concurrent_trials=1, random_fraction=0, max_length={"epochs": 1})
    outcomes: list[float | str | None] = [3.0, math.nan, "failed", 1.0, None, "refused", 2.0]
    for number, outcome in enumerate(outcomes, 1):
        if outcome == "failed":
            search.fail(number)
        elif outcome == "refused":
            search.refuse(number)
        else:
            assert not isinstance(outcome, str)
            search.validate(number, 1, outcome)
    request = search.decided[-1]
    assert isinstance(request, TrialRequested)
    assert request.reason.rule == "bohb.model"
    assert request.reason.numbers["results"] == 7
    [rung] = search.recorder.state.experiments[1].rungs
    assert [number for _, number in rung.lost] == [2, 3, 5, 6]
    assert SearcherCore().load(SearcherCore().dump(search.recorder.state)) == search.recorder.state


@pytest.mark.parametrize("mode", ["promotion", "stopping"])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_true_and_only_the_best_are_promoted_after_max_trials_was_raised(mode: str, seed: int) -> None:
    search = asha(40, 1, mode=mode, max_length={"epochs": 4})
    drawn = random.Random(seed)
    arrived: dict[int, list[tuple[float, int]]] = {1: [], 4: []}
    where = (1, 1)
    promoted = 0
    for step in range(300):
        number, length = where
        loss = drawn.random()
        keys = arrived[length]
        keys.insert(bisect_left(keys, (loss, number)), (loss, number))
        search.validate(number, length, loss)
        if step == 45:
            after_raise = search.decided
            search.limit(max_trials=200)
            assert not search.decided or not after_raise
            search.decided = [*after_raise, *search.decided]
        for data in search.decided:
            if isinstance(data, TrialRequested):
                where = (data.trial_number, data.target_length)
            if not isinstance(data, (TrialExtended, TrialPaused, TrialStopped)) or "rank" not in data.reason.numbers:
                continue
            mine = int(data.trial_id.split("-")[1])
            at = int(str(data.reason.numbers["length"]))
            rank = next(index for index, (_, who) in enumerate(arrived[at], 1) if who == mine)
            assert (data.reason.numbers["rank"], data.reason.numbers["of"]) == (rank, len(arrived[at])), said(data)
            if isinstance(data, TrialExtended):
                where = (mine, data.target_length)
                promoted += 1
                assert rank <= max(1, len(arrived[at]) // 4), said(data)
        if search.recorder.state.experiments[1].active == 0:
            break
    assert len(arrived[1]) == 200
    assert promoted >= 30


def test_added_trials_are_shared_among_the_brackets_of_adaptive_asha() -> None:
    search = Search(
        name="adaptive_asha", mode="conservative", max_trials=100, max_rungs=4, max_length={"epochs": 64}, max_concurrent_trials=4
    )

    def trials() -> list[int]:
        return [bracket.trials for bracket in search.recorder.state.experiments[1].brackets]

    assert trials() == [67, 21, 8, 4]
    search.limit(max_trials=1000)
    assert trials() == [658, 219, 82, 41]
    search.limit(max_trials=90)
    search.limit(max_trials=1000)
    assert sum(trials()) == 1000
    assert trials() == [658, 219, 82, 41]


class Answers:
    """Answers a search's trials in an order of its own; what a trial reports depends on its hyperparameters, seed and length."""

    def __init__(self, order: int, refused: float, space: dict[str, Any] | None = None, **searcher: Any) -> None:
        self.search = Search(space, **searcher)
        self.order, self.refused = random.Random(order), refused
        self.requests: dict[int, TrialRequested] = {}
        self.targets: dict[int, int] = {}
        self.leaving: list[int] = []
        self.ends: dict[int, str] = {}
        self.take()
        while self.targets or self.leaving:
            self.step()

    def step(self) -> None:
        if self.leaving and (not self.targets or self.order.random() < 0.5):
            self.search.finish(self.leaving.pop(self.order.randrange(len(self.leaving))))
        else:
            number = self.order.choice(sorted(self.targets))
            length = self.targets.pop(number)
            drawn = random.Random(f"{self.drawn(number)}/{length}")
            if random.Random(self.drawn(number)).random() < self.refused:
                self.search.refuse(number)
            else:
                if self.search.recorder.state.experiments[1].settings.name == "pbt":
                    self.search.save(number, length)
                self.search.validate(number, length, drawn.random())
        self.take()

    def drawn(self, number: int) -> str:
        request = self.requests[number]
        return json.dumps([request.hyperparameters, request.seed, request.bracket], sort_keys=True)

    def take(self) -> None:
        for data in self.search.decided:
            if isinstance(data, TrialRequested):
                self.requests[data.trial_number] = data
                self.targets[data.trial_number] = data.target_length
            elif isinstance(data, (TrialExtended, TrialPaused, TrialStopped)):
                number = int(data.trial_id.split("-")[1])
                if isinstance(data, TrialExtended):
                    self.targets[number] = data.target_length
                else:
                    self.targets.pop(number, None)
                if isinstance(data, TrialStopped):
                    self.leaving.append(number)
                    self.ends[number] = f"{data.outcome} at {data.reason.numbers['length']} by {data.reason.rule}"

    @property
    def outcome(self) -> list[tuple[str, str]]:
        assert self.search.words() == "ExperimentCompleted"
        return sorted((self.drawn(number), end) for number, end in self.ends.items())


@pytest.mark.parametrize(
    "searcher",
    [
        {"name": "hyperband", "max_length": {"epochs": 9}, "divisor": 3},
        {"name": "sha", "max_trials": 27, "max_length": {"epochs": 9}, "divisor": 3},
        {"name": "pbt", "population_size": 6, "generations": 4, "truncate_fraction": 0.5, "max_length": {"epochs": 8}},
        {"name": "random", "max_trials": 20},
    ],
    ids=lambda searcher: str(searcher["name"]),
)
def test_any_order_of_arrival_is_the_same_search_also_where_hyperparameters_are_refused(searcher: dict[str, Any]) -> None:
    def run(order: int, refused: float) -> list[tuple[str, str]]:
        return Answers(order, refused, max_concurrent_trials=1 + order % 9, **searcher).outcome

    first = run(0, 0.2)
    refusals = sum("invalid" in end for _, end in first)
    assert refusals >= 2
    assert len(first) == len(run(0, 0.0)) + refusals, "as many trials as without refusals"
    for order in range(1, 25):
        assert run(order, 0.2) == first


def test_a_refused_copy_is_followed_by_another_one_of_the_same_parent() -> None:
    search = Search(
        name="pbt", population_size=4, generations=3, truncate_fraction=0.25, max_concurrent_trials=4, max_length={"epochs": 3}
    )
    for number in (1, 2, 3, 4):
        search.save(number, 1)
        search.validate(number, 1, float(number))
    copy = next(data for data in search.decided if isinstance(data, TrialRequested))
    assert (copy.trial_number, copy.parent_trial_id) == (5, "1-1")
    search.save(1, 2)
    search.validate(1, 2, 1.0)  # Its parent has trained on, and has other checkpoints.
    search.validate(2, 2, 2.0)
    assert search.validate(3, 2, 3.0) == "3|"
    assert search.refuse(5) == "5xfailed +6"
    again = search.decided[-1]
    assert isinstance(again, TrialRequested)
    assert (again.parent_trial_id, again.source_checkpoint_id) == (copy.parent_trial_id, copy.source_checkpoint_id)
    assert (again.target_length, again.seed != copy.seed) == (copy.target_length, True)
    assert again.hyperparameters != copy.hyperparameters
    assert again.reason.numbers["replaces"] == 5
    assert "takes the place of trial 1-5" in said(again)
    search.recorder.state = SearcherCore().load(SearcherCore().dump(search.recorder.state))
    assert search.refuse(6) == "6xfailed +7"
    search.save(7, 2)
    # The generation is compared when it is there: four go on, or are replaced.
    assert sorted(search.validate(7, 2, 0.5).split()) == ["+8", "1>3", "2>3", "3xearly_stopped", "7>3"]


def test_a_copy_that_is_refused_after_its_first_checkpoint_is_not_replaced() -> None:
    """What it began from may be deleted by then."""
    search = Search(name="pbt", population_size=2, generations=2, max_concurrent_trials=2, max_length={"epochs": 2})
    for number in (1, 2):
        search.save(number, 1)
        search.validate(number, 1, float(number))
    search.save(3, 2)
    assert search.refuse(3) == "3xfailed"


def stops(search: Search, rule: str) -> list[TrialStopped]:
    every = [event.data for event in search.recorder.log if event.type == "TrialStopped"]
    return [data for data in every if isinstance(data, TrialStopped) and data.reason.rule == rule]


def test_the_recorded_cut_off_is_the_value_that_decided() -> None:
    search = Search(name="sha", max_trials=16, divisor=4, max_length={"epochs": 16}, max_concurrent_trials=16)
    for number in range(1, 17):
        search.validate(number, 1, float(17 - number))
    early = stops(search, "sha.stop")[0].reason
    assert (early.numbers["rank"], early.numbers["of"], early.numbers["expected"]) == (5, 5, 16)
    assert (early.numbers["top"], early.numbers["cut_off"], early.numbers["metric"]) == (4, 15.0, 16.0)

    search = asha(40, 40, max_length={"epochs": 4})
    for number in range(1, 16):
        search.validate(number, 1, float(number))
    stopped = stops(search, "asha.no_chance")[0]
    reason = stopped.reason
    assert (reason.numbers["top"], reason.numbers["cut_off"], reason.numbers["metric"]) == (14, 14.0, 15.0)
    assert "14 better ones are known" in said(stopped)

    search = Search(name="pbt", population_size=4, generations=2, truncate_fraction=0.25, max_length={"epochs": 2})
    for number in range(1, 5):
        search.save(number, 1)
        search.validate(number, 1, float(number))
    reason = stops(search, "pbt.truncate")[0].reason
    assert (reason.numbers["top"], reason.numbers["cut_off"], reason.numbers["metric"]) == (3, 3.0, 4.0)


def test_a_trial_that_goes_on_for_a_failed_one_is_not_said_to_be_among_the_best() -> None:
    search = Search(name="sha", max_trials=4, divisor=2, max_length={"epochs": 2}, max_rungs=2, max_concurrent_trials=4)
    for number in (1, 2, 3):
        search.validate(number, 1, float(number))
    search.fail(1)
    assert search.validate(4, 1, 4.0) == "2>2 4>2"
    goes_on = search.decided[1]
    assert isinstance(goes_on, TrialExtended)
    assert "rank 4, loss 4, is among the best 2 (1/2) that are left" in said(goes_on)
    assert (goes_on.reason.numbers["top"], goes_on.reason.numbers["cut_off"]) == (4, 4.0)
