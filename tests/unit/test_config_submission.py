"""Search spaces refused at submission, because they would halt or mislead the search later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.errors import ConfigError
from tenuto.schemas.config.reading import parse_config, validated
from tenuto.services.searcher.methods.sampling import sample
from tests.support.search_driver import Search
from tests.support.search_world import World, submitted

UNIT = {"type": "double", "minval": 0, "maxval": 1}
KIND = {"type": "categorical", "vals": ["a", "b"]}
TENS = {"type": "int", "minval": 0, "maxval": 95, "step": 10}


def config(space: dict[str, Any], **searcher: Any) -> dict[str, Any]:
    base = {"name": "random", "metric": "loss", "max_length": {"epochs": 4}, "max_trials": 4}
    return {"name": "t", "entrypoint": "m:T", "hyperparameters": space, "searcher": base | searcher}


def problem(space: dict[str, Any], **searcher: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(json.dumps(config(space, **searcher)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"net.kind": KIND}, "hyperparameters.net.kind: a name must not have a dot, which separates the levels"),
        ({"net.kind": KIND, "x": UNIT | {"when": {"net.kind": "a"}}}, "write `net: {kind: ...}`"),
        ({"a": {"b.c": UNIT}}, "hyperparameters.a.b.c: a name must not have a dot"),
        ({"": UNIT}, "hyperparameters: a hyperparameter must have a name"),
        (
            {"x": {"type": "int", "minval": 0, "maxval": 10**320}},
            "hyperparameters.x: minval and maxval must be whole numbers of 64",
        ),
        ({"x": {"type": "int", "minval": -(2**63) - 1, "maxval": 0}}, "whole numbers of 64 bits"),
        (
            {"x": UNIT | {"maxval": 1e50, "step": 1e-5}},
            "hyperparameters.x.step: is too small for the range, which would have more than 9,007",
        ),
        ({"x": {"type": "log", "minval": -4, "maxval": 400}}, "hyperparameters.x: minval and maxval are exponents"),
        ({"x": {"type": "log", "minval": -400, "maxval": 0}}, "has values outside 1e-300 to 1e+300"),
        ({"x": {"type": "log", "minval": -1, "maxval": 1, "base": float("inf")}}, "has values outside"),
        (
            {"n": TENS, "x": UNIT | {"when": {"n": 7}}},
            "hyperparameters.x.when.n: can never hold: n is never 7, it is from 0 to 95 in",
        ),
        ({"n": TENS, "x": UNIT | {"when": {"n": [10, 100]}}}, "n is never 100"),
        ({"n": TENS, "x": UNIT | {"when": {"n": "a"}}}, "n is never 'a', it is a whole number"),
    ],
)
def test_what_the_search_could_not_work_with_is_refused(space: dict[str, Any], said: str) -> None:
    assert said in problem(space)


@pytest.mark.parametrize(
    ("space", "point", "said"),
    [
        ({"x": TENS}, {"x": 7}, "starting_points[0].x: 7 is not in the search space: it is from 0 to 95 in steps of 10"),
        ({"x": UNIT | {"step": 0.1}}, {"x": 0.25}, "steps of 0.1"),
        (
            {"x": {"type": "log", "minval": -4, "maxval": 0, "step": 1}},
            {"x": 0.05},
            "base ** x with x from -4 to 0 in steps of 1",
        ),
        ({"x": {"type": "log", "minval": -4, "maxval": 400}}, {"x": 1.0}, "exponents"),
    ],
)
def test_a_starting_point_is_one_that_could_be_drawn(space: dict[str, Any], point: dict[str, Any], said: str) -> None:
    assert said in problem(space, starting_points=[point])


def test_a_starting_point_that_breaks_a_constraint_is_refused() -> None:
    said = problem({"x": UNIT, "y": UNIT}, constraints=["x < y"], starting_points=[{"x": 0.1, "y": 0.5}, {"x": 0.5, "y": 0.1}])
    assert said.startswith("searcher.starting_points[1]: breaks searcher.constraints[0], `x < y`; change the point")
    nested = {"k": KIND, "x": UNIT | {"when": {"k": "a"}}, "c": 0.5}
    assert "breaks" in problem(nested, constraints=["x < c"], starting_points=[{"k": "a", "x": 0.7}])


@pytest.mark.parametrize(
    ("point", "constraint"),
    [
        ({"x": 0.7}, "x < y"),  # y is drawn
        ({"k": "b"}, "z < 0"),  # z is not in use
        ({"x": 0.3}, "z < 0 and x > 0"),  # whether z is in use is drawn
        ({"step": 0.30000000000000004, "lr": 0.001, "n": 90}, "x > 0"),
    ],
)
def test_what_may_still_be_kept_is_accepted(point: dict[str, Any], constraint: str) -> None:
    space = {
        "k": KIND,
        "x": UNIT,
        "y": UNIT,
        "z": UNIT | {"when": {"k": "a"}},
        "step": UNIT | {"step": 0.1},
        "lr": {"type": "log", "minval": -4, "maxval": 0, "step": 1},
        "n": TENS,
    }
    validated(config(space, constraints=[constraint], starting_points=[point]))


@pytest.mark.parametrize("name", ["learning-rate", "lambda"])
def test_a_constraint_says_which_names_it_cannot_use(name: str) -> None:
    said = problem({name: UNIT, "x": UNIT}, constraints=[f"{name} < x"])
    assert f"searcher.constraints[0] {'names learning' if name != 'lambda' else 'is not an expression'}" in said
    assert f"a constraint cannot name {name}: names there have letters, digits and _ only" in said
    validated(config({name: UNIT, "x": UNIT}))


def test_what_is_on_record_is_read_and_searched() -> None:
    """It was accepted once: the record must stay readable, and one experiment must not halt all others."""
    space = {"net.kind": KIND, "x": UNIT | {"when": {"net.kind": "a"}}, "y": UNIT | {"maxval": 1e50, "step": 1e-5}}
    read = ExperimentConfig.model_validate(config(space))
    drawn = [sample(read.hyperparameters, 7, number) for number in range(1, 20)]
    assert all(("x" in trial) == (trial["net.kind"] == "a") for trial in drawn)
    search = Search(space, name="random", max_trials=3, max_concurrent_trials=3)
    assert search.words() == "ExperimentStarted +1 +2 +3"


NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 7, 0.1, -0.5, 1e-5, 1e50, -1e50, 1e308, 5e-324, 300, -300, 2**63 - 1, -(2**63), 10**30, 1e16]
)


@st.composite
def leaf(draw: st.DrawFn, others: list[str]) -> Any:
    kind = draw(st.sampled_from(["int", "double", "log", "categorical", "const"]))
    if kind == "const":
        return draw(NUMBERS)
    found: dict[str, Any] = {"type": kind}
    if kind == "categorical":
        found["vals"] = draw(st.lists(st.sampled_from([1, True, "x", None, 0.5, [1], {"k": 1}]), min_size=1, max_size=3))
    else:
        low, high = sorted([draw(NUMBERS), draw(NUMBERS)])
        found |= {"minval": low, "maxval": high, "count": draw(st.integers(1, 3))}
        if draw(st.booleans()):
            found["step"] = draw(NUMBERS)
        if kind == "log" and draw(st.booleans()):
            found["base"] = draw(st.sampled_from([2, 0.5, 10, 1e300, 1e-300]))
    if others and draw(st.booleans()):
        found["when"] = {draw(st.sampled_from(others)): draw(NUMBERS)}
    return found


SPACES = st.fixed_dictionaries(
    {"a": leaf([]), "b": leaf(["a"])},
    optional={"lambda": leaf([]), "n": st.fixed_dictionaries({"x": leaf(["a", "b"]), "learning-rate": leaf(["n.x"])})},
)
POINTS = st.fixed_dictionaries({}, optional={"a": NUMBERS, "b": NUMBERS})
METHODS: list[dict[str, Any]] = [
    {"name": "random", "max_trials": 4},
    {"name": "sobol", "max_trials": 4},
    {"name": "grid", "max_trials": None},
    {"name": "bohb", "max_trials": 9, "random_fraction": 0, "max_concurrent_trials": 1},
    {"name": "pbt", "population_size": 3, "generations": 3},
]


@given(SPACES, st.sampled_from(METHODS), st.sampled_from([[], ["a < 1"], ["a > b or b > 0"]]), POINTS)
@settings(max_examples=150, deadline=None)
def test_what_is_accepted_halts_no_searcher(
    space: dict[str, Any], searcher: dict[str, Any], constraints: list[str], point: dict[str, Any]
) -> None:
    more: dict[str, Any] = (
        {} if searcher["name"] == "grid" else {"constraints": constraints, "starting_points": [point][: len(point)]}
    )
    document = config(space, **searcher, **more)
    document["searcher"] = {name: value for name, value in document["searcher"].items() if value is not None}
    if searcher["name"] == "pbt":
        del document["searcher"]["max_trials"]
    try:
        accepted = validated(document)
    except ConfigError:
        return
    request = submitted({"name": "single"}).model_copy(update={"config": accepted})
    log = World(request, objective=lambda worker, length: worker.number / length, events_max=10_000).run()
    assert log[-1].type in ("ExperimentCompleted", "ExperimentFailed")
