"""Draws from a search space: fixed for ever, independent of any order, and spread as promised."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import ROUND_HALF_EVEN, Context, Decimal
from sys import float_info
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.ranges import power
from tenuto.services.searcher.methods import method_for
from tenuto.services.searcher.methods.sampling import sample, trial_seed
from tenuto.services.searcher.state.space import Space
from tests.support.search_world import SPACE, submitted

SEEDS = st.integers(0, 2**63 - 1)


def space_of(raw: dict[str, Any]) -> dict[str, Any]:
    return submitted({"name": "single"}, space=raw).config.hyperparameters


def test_draws_are_the_same_for_ever() -> None:
    # Recorded by rules version 1. If this fails, every recorded search stops to verify: make a new rule version instead.
    assert sample(space_of(SPACE), 7, 1) == {
        "lr": 0.0005505321669062862,
        "model": {"layers": 4, "act": "relu"},
        "dropout": 0.3415237939219794,
        "batch_size": 32,
    }
    assert trial_seed(7, 1) == 3733492680539598487


@given(SEEDS, st.integers(1, 10_000), st.randoms())
def test_the_order_of_keys_changes_no_value(seed: int, number: int, shuffle: Any) -> None:
    names = list(SPACE)
    shuffle.shuffle(names)
    assert sample(space_of({name: SPACE[name] for name in names}), seed, number) == sample(space_of(SPACE), seed, number)


@given(SEEDS)
def test_trials_and_names_draw_independently(seed: int) -> None:
    two = space_of({"a": {"type": "double", "minval": 0, "maxval": 1}, "b": {"type": "double", "minval": 0, "maxval": 1}})
    values = [value for number in range(1, 6) for value in sample(two, seed, number).values()]
    assert len(set(values)) == len(values)
    assert sample({"a": two["a"]}, seed, 1)["a"] == values[0], "another hyperparameter changed this one"


@given(
    SEEDS,
    st.floats(-1e300, 1e300),
    st.floats(0, 1e300),
    st.integers(-(10**12), 10**12),
    st.integers(0, 10**12),
)
def test_values_stay_inside_their_ranges(seed: int, low: float, width: float, whole: int, span: int) -> None:
    high = low + width
    raw = {
        "d": {"type": "double", "minval": low, "maxval": high},
        "i": {"type": "int", "minval": whole, "maxval": whole + span},
        "l": {"type": "log", "minval": -3, "maxval": 2},
        "c": {"type": "categorical", "vals": [None, {"a": 1}, [1, 2]]},
        "k": [1, {"x": None}],
    }
    drawn = sample(space_of(raw), seed, 3)
    assert low <= drawn["d"] <= high
    assert whole <= drawn["i"] <= whole + span
    assert 1e-3 <= drawn["l"] <= 1e2
    assert drawn["c"] in [None, {"a": 1}, [1, 2]]
    assert drawn["k"] == [1, {"x": None}]
    assert 0 <= trial_seed(seed, 3) < 2**63


def test_draws_are_uniform() -> None:
    raw = {
        "i": {"type": "int", "minval": 0, "maxval": 9},
        "l": {"type": "log", "minval": -2, "maxval": 2},
        "c": {"type": "categorical", "vals": ["a", "b", "c"]},
    }
    drawn = [sample(space_of(raw), 1, number) for number in range(1, 3001)]
    # Bounds of six standard deviations: fixed draws, so this is a check of the code and not of luck.
    assert all(abs(n - 300) < 100 for n in Counter(d["i"] for d in drawn).values())
    assert all(abs(n - 1000) < 160 for n in Counter(d["c"] for d in drawn).values())
    decades = Counter(math.floor(math.log10(d["l"])) for d in drawn)
    assert all(abs(decades[k] - 750) < 150 for k in (-2, -1, 0, 1))


@given(st.floats(1e-3, 1e3), st.floats(-20, 20))
def test_power_is_the_nearest_double_or_next_to_it(base: float, exponent: float) -> None:
    assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-14)


def test_power_never_overflows() -> None:
    assert power(10.0, 400.0) < math.inf
    assert power(10.0, 1e18) < math.inf
    assert power(10.0, -1e18) == 0.0
    assert power(0.5, 1e18) == 0.0


GRID = {
    "lr": {"type": "log", "minval": -3, "maxval": -1, "count": 3},
    "layers": {"type": "int", "minval": 1, "maxval": 9, "count": 3},
    "net": {"act": {"type": "categorical", "vals": ["relu", "tanh"]}, "width": 64},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.5, "count": 2},
}


def grid(raw: dict[str, Any]) -> tuple[ExperimentConfig, list[dict[str, Any]]]:
    config = submitted({"name": "grid"}, space=raw).config
    method = method_for(config.searcher, config.hyperparameters)
    return config, [method.hyperparameters(1, number) for number in range(1, method.trials_max + 1)]


def test_a_grid_has_every_combination_once() -> None:
    _, trials = grid(GRID)
    assert len(trials) == 3 * 3 * 2 * 2
    assert len({json.dumps(trial, sort_keys=True) for trial in trials}) == len(trials)
    assert sorted({trial["lr"] for trial in trials}) == [0.001, 0.01, 0.1]
    assert sorted({trial["layers"] for trial in trials}) == [1, 5, 9]
    assert {trial["dropout"] for trial in trials} == {0.0, 0.5}
    assert trials[0] == {"lr": 0.001, "layers": 1, "net": {"act": "relu", "width": 64}, "dropout": 0.0}
    assert list(trials[0]) == list(GRID), "the user's order of names"
    assert grid({name: GRID[name] for name in reversed(GRID)})[1] == trials


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ({"type": "int", "minval": 0, "maxval": 3}, [0, 1, 2, 3]),
        ({"type": "int", "minval": 0, "maxval": 3, "count": 10}, [0, 1, 2, 3]),
        ({"type": "int", "minval": 0, "maxval": 10, "count": 1}, [5]),
        ({"type": "int", "minval": -5, "maxval": 5, "count": 3}, [-5, 0, 5]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 1}, [0.5]),
        ({"type": "double", "minval": 2, "maxval": 2, "count": 7}, [2.0]),
        ({"type": "log", "minval": -2, "maxval": 0, "count": 3}, [0.01, 0.1, 1.0]),
        ({"type": "log", "base": 2, "minval": 0, "maxval": 4, "count": 1}, [4.0]),
        ({"type": "categorical", "vals": [1, "a", None]}, [1, "a", None]),
        ("fixed", ["fixed"]),
    ],
)
def test_points_along_an_axis(axis: Any, expected: list[Any]) -> None:
    assert [trial["x"] for trial in grid({"x": axis})[1]] == expected


def test_the_space_survives_a_snapshot_with_its_order() -> None:
    space = space_of({"z": 1, "a": {"type": "categorical", "vals": [{"q": 1, "b": 2}]}, "m": {"y": 1, "c": 2}})
    again = Space.restored(Space(space).stored())
    assert again == space
    assert json.dumps(sample(again, 1, 1)) == json.dumps(sample(space, 1, 1))


@given(
    st.sampled_from([10.0, 2.0, 0.5, math.e, 3.0, 100.0]),
    st.floats(-30, 30) | st.floats(-1_000, 1_000) | st.integers(-40, 40).map(float) | st.integers(-200, 200).map(lambda n: n / 8),
)
def test_a_power_is_what_forty_digits_give(base: float, exponent: float) -> None:
    exact = Context(prec=40, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, traps=[])
    expected = min(Decimal(float_info.max), exact.power(Decimal(base), Decimal(exponent)))
    assert power(base, exponent) == float(expected)
