"""Draws where constraints and conditions leave few values, and the end of a search that can draw no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenuto.schemas.config.constraints import holds
from tenuto.schemas.events.search import ExperimentFailed, TrialRequested
from tenuto.services.searcher.methods import method_for
from tenuto.services.searcher.methods.sobol import WALK_MAX
from tests.support.search_driver import Search
from tests.support.search_world import World, submitted

UNIT = {"type": "double", "minval": 0, "maxval": 1}
SQUARE = {"x": UNIT, "y": UNIT}


def asked(searcher: dict[str, Any], space: dict[str, Any], seed: int = 7) -> tuple[list[dict[str, Any]], str]:
    """The hyperparameters of all trials, in their order, and how the search ended."""
    world = World(submitted(searcher, space=space, seed=seed), checked=False)
    log = world.run()
    found = [event.data for event in log if isinstance(event.data, TrialRequested)]
    return [data.hyperparameters for data in sorted(found, key=lambda data: data.trial_number)], log[-1].type


def test_a_rare_constraint_takes_no_trial_away() -> None:
    # One draw in two hundred keeps it.
    searcher = {"name": "random", "max_trials": 300, "constraints": ["x + y < 0.1"]}
    trials, ended = asked(searcher, SQUARE)
    assert (len(trials), ended) == (300, "ExperimentCompleted")
    assert all(trial["x"] + trial["y"] < 0.1 for trial in trials)


@pytest.mark.parametrize("name", ["random", "sobol", "asha", "sha", "bohb"])
def test_a_point_that_cannot_be_used_fails_the_search_with_a_sentence(name: str) -> None:
    # y = 1 is never above x, so nothing that is drawn for x helps.
    searcher = {
        "name": name,
        "max_trials": 8,
        "max_concurrent_trials": 1,
        "constraints": ["y < x"],
        "starting_points": [{"x": 0.9, "y": 0.1}, {"y": 1.0}],
    }
    world = World(submitted(searcher, space=SQUARE))
    log = world.run()
    ended = log[-1].data
    assert isinstance(ended, ExperimentFailed)
    assert "searcher.starting_points[1] cannot be used" in ended.error
    assert "results of its 1 trials are kept" in ended.error
    assert sum(event.type == "TrialRequested" for event in log) == 1


def test_a_search_that_cannot_draw_its_first_trial_fails() -> None:
    searcher = {"name": "random", "max_trials": 8, "constraints": ["y < x"], "starting_points": [{"y": 1.0}]}
    search = Search(SQUARE, **searcher)
    assert search.words() == "ExperimentStarted ExperimentFailed"


@pytest.mark.parametrize("trials", [8, 16, 64, 100, 104, 256])
def test_sobol_walks_on_to_the_next_point_that_is_allowed(trials: int) -> None:
    found, ended = asked({"name": "sobol", "max_trials": trials, "constraints": ["x < y"]}, SQUARE)
    assert (len(found), ended) == (trials, "ExperimentCompleted")
    free, _ = asked({"name": "sobol", "max_trials": 4 * trials}, SQUARE)
    assert found == [point for point in free if point["x"] < point["y"]][:trials], "the same sequence, without what is forbidden"


def test_a_sobol_trial_beyond_the_first_maximum_is_a_new_point() -> None:
    request = submitted({"name": "sobol", "max_trials": 8, "constraints": ["x < y"]}, space=SQUARE)
    method: Any = method_for(request.config.searcher, request.config.hyperparameters)
    assert len({json.dumps(method.hyperparameters(7, number)) for number in range(1, 201)}) == 200
    rare = submitted({"name": "sobol", "max_trials": 8, "constraints": ["x + y < 0.02"]}, space=SQUARE)
    method = method_for(rare.config.searcher, rare.config.hyperparameters)
    behind = method.hyperparameters(7, WALK_MAX)
    assert behind["x"] + behind["y"] < 0.02, "drawn at random behind the points that are looked at"


@pytest.mark.parametrize("text", ["momentum < 0.9 and lr < 0.1", "lr < 0.1 and momentum < 0.9", "lr > 0.5 or momentum < 0"])
def test_a_constraint_on_what_is_not_in_use_holds_in_any_order(text: str) -> None:
    assert holds(text, {"lr": 1.0})
