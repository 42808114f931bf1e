"""The methods against each other on learning curves, with fixed seeds: claims of the literature that these rules must bear
out."""

from __future__ import annotations

import json
from functools import cache
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.brackets import hyperband_brackets
from tenuto.services.searcher.simulation.compare import compare, target_of
from tenuto.services.searcher.simulation.curves import CurveTable, PowerLaw
from tenuto.services.searcher.simulation.run import Surroundings, simulate

SPACE = {
    "lr": {"type": "log", "minval": -5, "maxval": -1},
    "momentum": {"type": "double", "minval": 0, "maxval": 1},
    "width": {"type": "int", "minval": 16, "maxval": 512},
    "act": {"type": "categorical", "vals": ["relu", "tanh", "gelu"]},
}
MAX_LENGTH = 256
SEEDS = 25
FEW_SEEDS = 9
"""For a method that fits a model to all results: a search takes a second."""


def config(**searcher: Any) -> ExperimentConfig:
    base = {"metric": "loss", "max_length": {"epochs": MAX_LENGTH}}
    return ExperimentConfig.model_validate(
        {"name": "t", "entrypoint": "m:T", "hyperparameters": SPACE, "searcher": base | searcher}
    )


@cache
def target(seed: int) -> float:
    one = config(name="random", max_trials=1)
    return target_of(one, PowerLaw(one.hyperparameters, MAX_LENGTH, seed=seed), draws=100)


def costs(seeds: int = SEEDS, **searcher: Any) -> list[float]:
    """Length trained until the best of 100 random configurations is reached, for each seed; infinite where it never is."""
    found = []
    for seed in range(seeds):
        one = config(**searcher)
        curves = PowerLaw(one.hyperparameters, MAX_LENGTH, seed=seed)
        outcome = simulate(one, curves, Surroundings(workers=8, seed=seed), seed)
        found.append(outcome.cost_to(target(seed)))
    return found


@pytest.fixture(scope="module")
def random_costs() -> list[float]:
    return costs(name="random", max_trials=300)


@pytest.mark.parametrize(
    ("searcher", "factor"),
    [
        ({"name": "asha", "max_trials": 300}, 8),
        ({"name": "asha", "max_trials": 300, "mode": "stopping"}, 6),
        ({"name": "adaptive_asha", "max_trials": 300}, 4),
        ({"name": "sha", "max_trials": 300}, 8),
        ({"name": "hyperband", "divisor": 4, "iterations": 2}, 4),
        ({"name": "bohb", "max_trials": 200, "candidates": 24}, 3),
    ],
    ids=lambda value: f"{value['name']} {value.get('mode', '')}".strip() if isinstance(value, dict) else str(value),
)
def test_early_stopping_is_cheaper_than_random(searcher: dict[str, Any], factor: float, random_costs: list[float]) -> None:
    """In the median over seeds, by at least this factor, about half of what these seeds give; the ratio of lengths allows for
    256 / 5 rungs = 51 at most. Also in the median of those searches that reached the target both ways: about a third of the
    others never reach it, as their curves cross late."""
    seeds = FEW_SEEDS if searcher["name"] == "bohb" else SEEDS
    found, random = costs(seeds, **searcher), random_costs[:seeds]
    assert median(random) / median(found) > factor
    both = [before / after for before, after in zip(random, found, strict=True) if isfinite(before) and isfinite(after)]
    assert len(both) >= seeds / 2
    assert median(both) > factor / 2


def test_hyperband_trains_no_more_than_its_bound() -> None:
    # Each of the s_max + 1 brackets trains at most (s_max + 1) * R, with the rounding up of n (Li et al. 2018, section 3).
    one = config(name="hyperband", divisor=4)
    brackets = hyperband_brackets(MAX_LENGTH, 4, 5, 1)
    outcome = simulate(one, PowerLaw(one.hyperparameters, MAX_LENGTH), Surroundings(workers=7), 1)
    assert outcome.trials == sum(bracket.trials for bracket in brackets)
    assert outcome.trained <= len(brackets) * (len(brackets) + 1) * MAX_LENGTH


def test_asynchronous_search_does_not_wait_for_stragglers() -> None:
    """Li et al. 2020, section 4.2: with stragglers and losses the synchronous form waits, ASHA does not."""
    storm = {"workers": 25, "straggler_probability": 0.1, "straggler_factor": 10.0, "failure_probability": 0.05}
    ratios = []
    for seed in range(6):
        took = {}
        for name in ("sha", "asha"):
            one = config(name=name, max_trials=150, max_concurrent_trials=25)
            around = Surroundings(seed=seed, **storm)  # type: ignore[arg-type]
            outcome = simulate(one, PowerLaw(one.hyperparameters, MAX_LENGTH, seed=seed), around, seed)
            took[name] = next(time for _, time, loss in outcome.path if loss <= 1.1 * outcome.best)
        ratios.append(took["sha"] / took["asha"])
    assert median(ratios) > 1


def test_one_seed_is_one_run_and_another_is_another() -> None:
    one = config(name="asha", max_trials=60)
    curves = PowerLaw(one.hyperparameters, MAX_LENGTH, seed=3)
    around = Surroundings(workers=3, failure_probability=0.2, straggler_probability=0.2, start_cost=0.5, seed=1)
    assert simulate(one, curves, around, 1) == simulate(one, curves, around, 1)
    assert simulate(one, curves, around, 1) != simulate(one, curves, around, 2)


def test_losses_cost_more_but_change_no_result_of_a_search_in_step() -> None:
    one = config(name="sha", max_trials=64)
    curves = PowerLaw(one.hyperparameters, MAX_LENGTH, seed=3)
    calm = simulate(one, curves, Surroundings(workers=4), 1)
    storm = simulate(one, curves, Surroundings(workers=4, failure_probability=0.3), 1)
    assert storm.best == calm.best
    assert storm.trained > calm.trained


def test_a_table_of_trained_curves_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    rows = ["lr,momentum,width,act,loss@1,loss@4,loss@16"]
    for index in range(50):
        lr, good = 10 ** (-5 + 4 * index / 49), abs(index - 30) / 30
        rows.append(f"{lr},0.5,100,relu,{good + 1},{good + 0.5},{good + 0.1}")
    path.write_text("\n".join(rows))
    space = config(name="random", max_trials=1).hyperparameters
    table = CurveTable.read(path, space)
    middle = {"lr": 10 ** (-5 + 4 * 30 / 49), "momentum": 0.5, "width": 100, "act": "relu"}
    assert [table.loss(middle, length) for length in (1, 3, 4, 15, 16, 500)] == [1.0, 1.0, 0.5, 0.5, 0.1, 0.1]
    one = config(name="asha", max_trials=100, max_length={"epochs": 16})
    [asha] = compare({"asha": one}, lambda seed: table, Surroundings(), 3)
    assert asha.best < 0.2


def test_the_command_compares_and_draws(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "name: t\nentrypoint: m:T\nhyperparameters: {lr: {type: log, minval: -4, maxval: -1}}\n"
        "searcher: {name: asha, metric: accuracy, smaller_is_better: false, max_length: {epochs: 16}, max_trials: 40}\n"
    )
    picture = tmp_path / "out.png"
    command = ["sim", "search", str(path), "--methods", "random,hyperband", "--seeds", "3", "--picture", str(picture)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.output for name in ("asha", "random", "hyperband", "Target: a loss of"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    results = json.loads(CliRunner().invoke(app, [*command[:-2], "--json"]).output)
    assert [result["method"] for result in results] == ["asha", "random", "hyperband"]
    wrong = CliRunner().invoke(app, ["sim", "search", str(path), "--methods", "magic"])
    assert wrong.exit_code != 0
    assert "There is no method magic" in str(wrong.exception)
    own = CliRunner().invoke(app, ["sim", "search", str(path), "--methods", "custom"])
    assert "compared where searcher.name is custom" in str(own.exception)


EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_search"


def test_a_search_of_ones_own_is_simulated_and_its_picture_is_a_page(tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    config_file, zoom = str(EXAMPLE / "config.yaml"), f"{EXAMPLE / 'my_search.py'}:Zoom"
    command = ["sim", "search", config_file, "--methods", "random,asha", "--seeds", "4", "--searcher", zoom]
    done = CliRunner().invoke(app, [*command, "--json", "--picture", str(page)])
    assert done.exit_code == 0, done.output
    custom, random, asha = json.loads(done.output)
    assert (custom["method"], random["method"], asha["method"]) == ("custom", "random", "asha")
    # Three rounds of four trials for 2 epochs, the best of each trained for 4 more.
    assert (custom["trials"], custom["cost"]) == (12, 3 * (4 * 2 + 4))
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).output) == [custom, random, asha], "one seed, one search"
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<svg") == text.count("</svg>") == 1
    assert "<td>custom</td><td>12</td>" in text
    assert not any(fetched in text for fetched in ("<script", "<link", "<img", "url(http", "@import url")), "no network is needed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    pass", "does not come to an end: nothing trains any more, and the class asks for nothing"),
        ("    def on_start(self):\n        return [1 / 0]", "failed (ZeroDivisionError: division by zero)"),
    ],
)
def test_a_searcher_that_does_nothing_or_fails_is_told_so(tmp_path: Path, body: str, said: str) -> None:
    source = tmp_path / "mine.py"
    source.write_text(f"from tenuto.search import CustomSearcher\nclass Mine(CustomSearcher):\n{body}\n")
    done = CliRunner().invoke(app, ["sim", "search", str(EXAMPLE / "config.yaml"), "--searcher", f"{source}:Mine"])
    assert said in str(done.exception)
    none = CliRunner().invoke(app, ["sim", "search", str(EXAMPLE / "config.yaml")])
    assert "name its class with --searcher FILE:CLASS" in str(none.exception)
