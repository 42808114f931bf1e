"""The grid: every configuration once, also with conditions, and what the model code refuses of it."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.search import ExperimentFailed
from tenuto.services.searcher.explain import preview
from tenuto.services.searcher.methods import method_for
from tenuto.services.searcher.methods.grid import point, points
from tenuto.services.searcher.methods.sampling import fill, in_use, leaves
from tests.support.said import said
from tests.support.search_driver import Search
from tests.support.search_world import submitted

UNIT = {"type": "double", "minval": 0, "maxval": 1}
HEADS = {"heads": {"type": "categorical", "vals": [3, 4]}, "x": UNIT | {"count": 10}}


def grid(space: dict[str, Any]) -> Any:
    config = submitted({"name": "grid"}, space=space).config
    return method_for(config.searcher, config.hyperparameters)


def all_of(method: Any) -> list[str]:
    return [json.dumps(method.hyperparameters(0, number)) for number in range(1, method.trials_max + 1)]


def test_a_condition_repeats_no_configuration() -> None:
    space = {"o": {"type": "categorical", "vals": ["a", "b"]}, "x": UNIT | {"when": {"o": "a"}, "count": 5}}
    found = [json.loads(text) for text in all_of(grid(space))]
    assert found == [{"o": "a", "x": x} for x in (0.0, 0.25, 0.5, 0.75, 1.0)] + [{"o": "b"}]
    plan = preview(submitted({"name": "grid"}, space=space).config)
    assert (plan.trials, plan.cost) == (6, 6 * 16)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_configuration_comes_once(data: st.DataObject) -> None:
    names = ["a", "b", "c", "d"]
    space: dict[str, Any] = {}
    for index, name in enumerate(names):
        axis: dict[str, Any] = {"type": "int", "minval": 0, "maxval": data.draw(st.integers(0, 2))}
        parents = data.draw(st.lists(st.sampled_from(names[:index]), max_size=2, unique=True)) if index else []
        if parents:
            axis["when"] = {parent: data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=2)) for parent in parents}
        space[name] = axis
    shuffled = {name: space[name] for name in data.draw(st.permutations(names))}
    method = grid(shuffled)
    known = list(leaves(method.space))
    every = {
        json.dumps(fill(method.space, in_use(method.space, dict(zip([path for path, _ in known], values, strict=True)))))
        for values in product(*([point(leaf, index) for index in range(points(leaf))] for _, leaf in known))
    }
    found = all_of(method)
    assert len(found) == len(set(found))
    assert set(found) == every


def test_too_many_combinations_of_conditions_are_refused() -> None:
    axis = {"type": "int", "minval": 0, "maxval": 999}
    space = {"a": axis, "b": axis, "x": {"type": "int", "minval": 0, "maxval": 1, "when": {"a": 1, "b": 2}}}
    assert "lower `count`" in (grid(space).problem or "")


def test_refused_points_are_done_and_the_others_are_tried() -> None:
    search = Search(HEADS, name="grid", max_concurrent_trials=2)
    for number in range(1, 11):
        words = search.refuse(number)
        assert words.startswith(f"{number}xfailed +{number + 2}"), words
        assert "this point of the grid is done" in said(search.decided[0])  # type: ignore[attr-defined]
        assert search.finish(number) == ""
    for number in range(11, 21):
        assert search.validate(number, 16, 0.5).startswith(f"{number}xcompleted")
        words = search.finish(number)
    assert words == "ExperimentCompleted"


def test_a_grid_of_which_every_point_is_refused_fails_and_says_so() -> None:
    search = Search({"heads": HEADS["heads"]}, name="grid", max_concurrent_trials=2)
    search.refuse(1)
    search.refuse(2)
    assert search.finish(1, 2) == "ExperimentFailed"
    failed = search.decided[-1]
    assert isinstance(failed, ExperimentFailed)
    assert failed.error == "All 2 trials failed or were refused by the model code. The last error was: too wide"
