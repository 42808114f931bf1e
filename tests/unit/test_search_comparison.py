"""What `sim search` compares: the same space for every method, and a target that a search may reach."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tenuto.cli.errors import CliError
from tenuto.cli.sim import search, variants
from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.simulation.compare import target_of
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
