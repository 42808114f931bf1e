"""The comparison of `sim search`: the same space for every method, and a target that a search may reach."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tenuto.cli.errors import CliError
from tenuto.cli.sim import budgets, cells, heads, search, variants
from tenuto.schemas.config import ExperimentConfig, Length
from tenuto.services.searcher.simulation.compare import MethodResult, compare, target_of
from tenuto.services.searcher.simulation.run import BETWEEN_MAX, Surroundings, simulate
from tests.support.search_world import submitted

UNIT = {"type": "double", "minval": 0, "maxval": 1}


def config_of(space: dict[str, Any], **searcher: Any) -> ExperimentConfig:
    return submitted({"name": "asha", "max_trials": 8} | searcher, space=space).config


def test_a_value_that_is_nothing_is_one_for_every_method() -> None:
    space = {"sched": {"type": "categorical", "vals": [None, "cosine"]}, "clip": None, "x": UNIT}
    config = config_of(space, starting_points=[{"sched": None, "x": 0.5}])
    for name, variant in variants(config, "random,tpe,hyperband").items():
        assert variant.hyperparameters == config.hyperparameters, name
        assert variant.searcher.starting_points == [{"sched": None, "x": 0.5}], name


def test_the_target_is_drawn_from_what_the_constraints_allow() -> None:
    class Sum:
        def loss(self, hyperparameters: dict[str, Any], length: int) -> float:
            return float(hyperparameters["x"] + hyperparameters["y"])

    space = {"x": UNIT, "y": UNIT}
    assert target_of(config_of(space), Sum()) < 0.5
    assert target_of(config_of(space, constraints=["x + y > 1.5"], starting_points=[{"x": 0.9, "y": 0.9}]), Sum()) > 1.5


def test_a_missing_sampler_is_told_in_a_sentence(tmp_path: Any) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(
        "name: t\nentrypoint: m:T\nhyperparameters: {x: {type: double, minval: 0, maxval: 1}}\n"
        "searcher: {name: tpe, metric: loss, max_length: {epochs: 4}, max_trials: 12}\n"
    )
    with (
        patch.dict("tenuto.services.searcher.adapters.samplers._PACKAGES", {"tpe": "no-such-package"}),
        pytest.raises(CliError, match="needs the package no-such-package"),
    ):
        search(path, "random", 1, 2, None, 0.0, 0.0, None, None)


class Falling:
    def loss(self, hyperparameters: dict[str, Any], length: int) -> float:
        return 1 - length / 64


@pytest.mark.parametrize(
    ("period", "costs"),
    [(None, [16, 64]), ({"batches": 8}, [8, *range(16, 65, 8)]), ({"batches": 1}, [*range(1, 65)]), ({"epochs": 1}, [16, 64])],
)
def test_what_is_validated_between_rungs_counts_from_then_on(period: dict[str, int] | None, costs: list[float]) -> None:
    config = config_of({"x": UNIT}, max_trials=1, max_length={"batches": 64}, divisor=4, max_rungs=2)
    config = config.model_copy(update={"min_validation_period": None if period is None else Length.model_validate(period)})
    outcome = simulate(config, Falling(), seed=1)
    assert [cost for cost, _, _ in outcome.path] == costs
    assert outcome.cost_to(1 - 24 / 64) == (24 if period and "batches" in period else 64)


def test_of_a_million_validations_between_rungs_some_are_looked_at() -> None:
    looked = []

    class Counting:
        def loss(self, hyperparameters: dict[str, Any], length: int) -> float:
            looked.append(length)
            return 1.0

    config = config_of({"x": UNIT}, max_trials=1, max_length={"batches": 10**7}, divisor=4, max_rungs=2, average_validations=4)
    config = config.model_copy(update={"min_validation_period": Length.model_validate({"batches": 1})})
    simulate(config, Counting(), seed=1)
    assert len(looked) <= 2 * (BETWEEN_MAX + 4)
    assert looked[-4:] == list(range(10**7 - 3, 10**7 + 1)), "those that are averaged are all there"


def result_of(method: str, cost: float, to_target: float | None, reached: int) -> MethodResult:
    return MethodResult(
        method=method, seeds=10, trials=64, cost=cost, cost_range=(cost, cost * 1.5), best=0.5, best_at_same_cost=0.6,
        target=0.4, target_draws=300, cost_to_target=to_target, cost_quartiles=(None, None), reached=reached, path=(),
    )  # fmt: skip


def test_who_did_not_reach_the_target_is_said_to_cost_more_than_it_trained() -> None:
    asha, random, sha = result_of("asha", 200, 50, 9), result_of("random", 4_000, None, 3), result_of("sha", 100, None, 0)
    results = [asha, random, sha]
    assert heads(results, "epochs")[4:7] == ("best loss by 100 epochs", "epochs to target", "reached it")
    assert cells(asha, results)[2:] == ("200 (200 to 300)", "0.5", "0.6", "50", "9 of 10", "over 80.0x cheaper")
    assert cells(random, results)[5:] == ("over 4,000", "3 of 10", "")
    assert cells(sha, results)[5:] == ("over 100", "0 of 10", "")
    known = [asha, result_of("random", 4_000, 2_000, 8), sha]
    assert [cells(result, known)[7] for result in known] == ["40.0x cheaper", "", "below 20.0x"]
    assert "random trained 40.0 times as much as sha (4,000 epochs against 100)" in budgets(results, "epochs")
    assert "about as much, 200 to 210 epochs" in budgets([asha, result_of("sha", 210, None, 0)], "epochs")


def test_losses_are_compared_by_the_same_cost() -> None:
    """Each loss is that of the length trained so far: who trains four times as much is compared by a quarter of it."""

    class Falling:
        def loss(self, hyperparameters: dict[str, Any], length: int) -> float:
            return float(hyperparameters["x"])

    few, many = (config_of({"x": UNIT}, name="random", max_trials=trials, max_length={"epochs": 4}) for trials in (2, 8))
    short, long = compare({"few": few, "many": many}, lambda seed: Falling(), Surroundings(workers=1), 9)
    assert (short.cost, long.cost) == (8, 32)
    assert short.cost_range == (8, 8)
    assert short.best_at_same_cost == short.best == long.best_at_same_cost
    assert long.best < short.best
