"""What becomes of a search when trials have no metric or are refused, and when its limits change: also in what is recorded."""

from __future__ import annotations

import math
import random
from bisect import bisect_left

import pytest

from tenuto.schemas.events.search import TrialExtended, TrialPaused, TrialRequested, TrialStopped
from tenuto.services.searcher.codec import dump, load
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
    assert load(dump(search.recorder.state)) == search.recorder.state


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
            assert (data.reason.numbers["rank"], data.reason.numbers["of"]) == (rank, len(arrived[at])), data.reason.text
            if isinstance(data, TrialExtended):
                where = (mine, data.target_length)
                promoted += 1
                assert rank <= max(1, len(arrived[at]) // 4), data.reason.text
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
