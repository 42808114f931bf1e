"""The methods' tables worked out by hand, their draws, and what no order of arrival may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.kernel import plugins
from tenuto.schemas.config.brackets import Bracket, adaptive_brackets, hyperband_brackets
from tenuto.schemas.config.constraints import holds, parse
from tenuto.schemas.config.searchers import OWN_NAMES
from tenuto.schemas.events.search import TrialExtended, TrialRequested, TrialStopped
from tenuto.services.searcher.explain import preview
from tenuto.services.searcher.methods import GROUP, method_for
from tenuto.services.searcher.methods.sobol import DIMENSIONS_MAX, sobol_point
from tenuto.services.searcher.simulation.curves import PowerLaw
from tenuto.services.searcher.simulation.run import simulate
from tests.support.said import said
from tests.support.search_judge import broken
from tests.support.search_world import Faults, Worker, World, submitted


def test_hyperband_is_the_papers_table() -> None:
    # R = 81, eta = 3: n = ceil(5 * 3**s / (s + 1)).
    assert hyperband_brackets(81, 3, 20, 1) == (
        Bracket(81, (1, 3, 9, 27, 81)),
        Bracket(34, (3, 9, 27, 81)),
        Bracket(15, (9, 27, 81)),
        Bracket(8, (27, 81)),
        Bracket(5, (81,)),
    )


def test_adaptive_brackets_by_hand() -> None:
    # Divisor 4, 100 trials: 4**4 = 256 trials would be needed for five rungs, so there are four. Standard: 4, 3 and 2 rungs,
    # with weights 64/4 = 16, 16/3 = 5.33 and 4/2 = 2, in all 23.33: 68.57, 22.86 and 8.57 trials; the two that rounding leaves
    # go to the first.
    assert adaptive_brackets(256, 4, 5, 100, "standard") == (
        Bracket(70, (4, 16, 64, 256)),
        Bracket(22, (16, 64, 256)),
        Bracket(8, (64, 256)),
    )
    # Divisor 3, 200 trials: 3**4 = 81 are enough for five rungs. Weights 81/5 = 16.2, 27/4 = 6.75, 9/3 = 3, 3/2 = 1.5 and 1, in
    # all 28.45: 113.88, 47.45, 21.09, 10.54 and 7.03; the two left go to the first.
    assert adaptive_brackets(81, 3, 5, 200, "conservative") == (
        Bracket(115, (1, 3, 9, 27, 81)),
        Bracket(47, (3, 9, 27, 81)),
        Bracket(21, (9, 27, 81)),
        Bracket(10, (27, 81)),
        Bracket(7, (81,)),
    )
    assert adaptive_brackets(81, 3, 5, 200, "aggressive") == (Bracket(200, (1, 3, 9, 27, 81)),)


@pytest.mark.parametrize("trials", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("mode", ["conservative", "standard", "aggressive"])
def test_few_trials_fill_no_more_brackets_than_they_can(trials: int, mode: str) -> None:
    brackets = adaptive_brackets(4096, 4, 7, trials, mode)
    assert sum(bracket.trials for bracket in brackets) == trials
    assert all(bracket.trials >= 1 for bracket in brackets)


def test_sobol_points_are_scipys() -> None:
    qmc = pytest.importorskip("scipy.stats.qmc")
    theirs = qmc.Sobol(DIMENSIONS_MAX, scramble=False, bits=32).random(256)
    for number in range(256):
        ours = [sobol_point(number, dimension) / 2**32 for dimension in range(DIMENSIONS_MAX)]
        assert ours == list(theirs[number])


def test_sobol_fills_every_cell_once() -> None:
    space = {"a": {"type": "double", "minval": 0, "maxval": 1}, "b": {"type": "double", "minval": 0, "maxval": 1}}
    config = submitted({"name": "sobol", "max_trials": 256}, space=space).config
    method: Any = method_for(config.searcher, config.hyperparameters)
    drawn = [method.hyperparameters(5, number) for number in range(1, 257)]
    assert len({(int(h["a"] * 16), int(h["b"] * 16)) for h in drawn}) == 256, "one point in each of 16 x 16 cells"
    assert method.hyperparameters(6, 1) != drawn[0]


def curve(worker: Worker, length: int) -> float:
    return float(worker.hyperparameters["lr"] + 1.0 / length)


SYNCHRONOUS: list[dict[str, Any]] = [
    {"name": "sha", "max_trials": 9, "divisor": 3, "max_length": {"epochs": 9}},
    {"name": "hyperband", "divisor": 2, "max_length": {"epochs": 4}},
    {"name": "pbt", "population_size": 5, "generations": 3, "max_length": {"epochs": 9}},
    {"name": "random", "max_trials": 6},
    {"name": "sobol", "max_trials": 6},
]


@pytest.mark.parametrize("searcher", SYNCHRONOUS, ids=lambda searcher: str(searcher["name"]))
def test_any_order_of_arrival_is_the_same_search(searcher: dict[str, Any]) -> None:
    """100 worlds with other speeds, slots and lags: each trial gets the same hyperparameters, and trains as far."""
    searches = set()
    for world in range(100):
        request = submitted(searcher | {"max_concurrent_trials": 1 + world % 9}, seed=11)
        log = World(request, seed=world, slots=1 + world % 5, objective=curve, lag_max=world % 7, checked=False).run()
        trials: dict[str, list[Any]] = {}
        for event in log:
            data = event.data
            if isinstance(data, TrialRequested):
                trials[data.trial_id] = [json.dumps(data.hyperparameters), data.source_checkpoint_id, data.target_length]
            elif isinstance(data, TrialExtended):
                trials[data.trial_id].append(data.target_length)
            elif isinstance(data, TrialStopped):
                trials[data.trial_id].append(data.outcome)
        searches.add(json.dumps(sorted(trials.items())))
    assert len(searches) == 1


def test_pbt_keeps_the_lineage_and_changes_what_it_copies() -> None:
    request = submitted({"name": "pbt", "population_size": 10, "generations": 5, "max_length": {"epochs": 20}})
    log = World(request, seed=1, objective=curve).run()
    asked = {event.data.trial_id: event.data for event in log if isinstance(event.data, TrialRequested)}
    copies = [data for data in asked.values() if data.parent_trial_id]
    assert len(copies) == 4 * 2, "two of ten after each of four generations"
    for copy in copies:
        parent = asked[copy.parent_trial_id or ""]
        assert copy.source_checkpoint_id
        assert copy.source_checkpoint_id.startswith(f"{parent.trial_id}@")
        assert copy.hyperparameters != parent.hyperparameters
        assert "is a copy of trial" in said(copy)
    # The learning rate alone decides: what is copied and changed ends lower than what was drawn.
    last = min(data.hyperparameters["lr"] for data in copies)
    assert last < min(data.hyperparameters["lr"] for data in asked.values() if not data.parent_trial_id)


@pytest.mark.parametrize("unsaved", [0.5, 1.0])
def test_a_population_stays_as_large_where_trials_have_saved_nothing(unsaved: float) -> None:
    request = submitted({"name": "pbt", "population_size": 4, "generations": 4, "max_length": {"epochs": 8}})
    world = World(request, seed=3, objective=curve, faults=Faults(unsaved=unsaved))
    log = world.run()
    asked = [event.data for event in log if isinstance(event.data, TrialRequested)]
    assert len(asked) == 4 + 3, "one of four is replaced after each of three generations"
    anew = [data for data in asked if data.parent_trial_id and data.source_checkpoint_id is None]
    assert anew
    assert all("trained anew from the beginning, as that one has saved no checkpoint" in said(data) for data in anew)
    assert sum(worker.length == 8 for worker in world.workers.values()) == 4
    assert broken(world, log) == []


def test_a_model_of_the_results_proposes_better_ones() -> None:
    def best_part(name: str) -> float:
        found = 0.0
        for seed in range(2):
            searcher = {"name": name, "max_trials": 120, "max_concurrent_trials": 4, "divisor": 3, "max_length": {"epochs": 9}}
            log = World(submitted(searcher, seed=seed), seed=seed, slots=4, objective=curve, checked=False).run()
            asked = [event.data for event in log if isinstance(event.data, TrialRequested)]
            found += sum(data.hyperparameters["lr"] < 3e-4 for data in asked[60:]) / 60
        return found / 2

    # One in six is below 3e-4 at random (half a decade of three).
    assert best_part("asha") < 0.25
    assert best_part("bohb") > 0.4


SPACE = {
    "kind": {"type": "categorical", "vals": ["sgd", "adam"]},
    "momentum": {"type": "double", "minval": 0.1, "maxval": 0.9, "step": 0.1, "when": {"kind": "sgd"}},
    "nesterov": {"type": "categorical", "vals": [True, False], "when": {"momentum": [0.8, 0.9]}},
    "net": {
        "width": {"type": "int", "minval": 16, "maxval": 128, "step": 16},
        "layers": {"type": "int", "minval": 1, "maxval": 8},
    },
    "lr": {"type": "log", "minval": -4, "maxval": -1, "step": 1},
}


@pytest.mark.parametrize(
    ("name", "size", "trials"),
    [
        ("random", {"max_trials": 60}, 60),
        ("sobol", {"max_trials": 60}, 60),
        ("bohb", {"max_trials": 60}, 60),
        ("asha", {"max_trials": 60}, 60),
        ("sha", {"max_trials": 60}, 60),
        ("hyperband", {"divisor": 3, "iterations": 2}, 34),
        ("adaptive_asha", {"max_trials": 60}, 60),
        ("pbt", {"population_size": 20, "generations": 8, "truncate_fraction": 0.3}, 62),
    ],
)
def test_steps_conditions_constraints_and_starting_points(name: str, size: dict[str, Any], trials: int) -> None:
    searcher = {
        "name": name,
        "max_concurrent_trials": 3,
        "constraints": ["net.width * net.layers <= 256", "kind == 'adam' or lr < 0.1"],
        "starting_points": [{"kind": "sgd", "momentum": 0.9, "net": {"width": 32}}, {"kind": "adam", "lr": 0.1}],
        **size,
    }
    log = World(submitted(searcher, space=SPACE), seed=1, objective=lambda worker, length: worker.number / length).run()
    asked = [event.data.hyperparameters for event in log if isinstance(event.data, TrialRequested)]
    assert len(asked) == trials
    assert (asked[0]["kind"], asked[0]["momentum"], asked[0]["net"]["width"]) == ("sgd", 0.9, 32)
    assert (asked[1]["kind"], asked[1]["lr"]) == ("adam", 0.1)
    for h in asked:
        assert ("momentum" in h) == (h["kind"] == "sgd")
        assert ("nesterov" in h) == (h.get("momentum") in (0.8, 0.9))
        assert h.get("momentum", 0.5) in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        assert h["net"]["width"] % 16 == 0
        assert h["lr"] in (1e-4, 1e-3, 1e-2, 1e-1)
        assert h["net"]["width"] * h["net"]["layers"] <= 256
        assert h["kind"] == "adam" or h["lr"] < 0.1
    assert len({json.dumps(h) for h in asked}) > 30


def test_constraints_that_nothing_keeps_end_the_search_with_a_sentence() -> None:
    log = World(submitted({"name": "random", "max_trials": 3, "constraints": ["lr > 5"]})).run()
    assert log[-1].type == "ExperimentFailed"
    assert "keeps searcher.constraints" in log[-1].data.error  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a + 1 < b", {"a": 1, "b": 3}, True),
        ("a * b % 3 == 0 and not a > b", {"a": 3, "b": 2}, False),
        ("kind in ['x', 'y'] or n // 2 > 1", {"kind": "z", "n": 4}, True),
        ("max(a, b) - abs(-a) <= 1", {"a": 2, "b": 3}, True),
        ("1 < a < 3", {"a": 3}, False),
        ("a / b > 1", {"a": 1, "b": 0}, False),
        ("a > 'x'", {"a": 1}, False),
        ("gone > 3", {"a": 1}, True),
    ],
)
def test_constraint_values(text: str, values: dict[str, Any], expected: bool) -> None:
    assert holds(text, values) is expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "a ** 9",
        "a.b()",
        "(lambda: a)()",
        "[x for x in a]",
        "a if b else c",
        "1 < 2",
        "a <",
        "x[0] > 1",
        "a" * 600,
    ],
)
def test_a_constraint_is_no_program(text: str) -> None:
    with pytest.raises(ValueError, match=r"not understood|not an expression|names no|longer|dot behind"):
        parse(text)


@pytest.mark.parametrize(
    ("space", "searcher", "said"),
    [
        ({"a": {"type": "int", "minval": 1, "maxval": 2, "when": {"b": 1}}}, {}, "there is no hyperparameter b"),
        (
            {
                "a": {"type": "const", "val": 1, "when": {"b": 2}},
                "b": {"type": "int", "minval": 0, "maxval": 2, "when": {"a": 1}},
            },
            {},
            "in a circle",
        ),
        ({"a": {"type": "const", "val": 1, "when": {"k": "z"}}, "k": {"type": "categorical", "vals": ["x"]}}, {}, "is never 'z'"),
        ({"a": 1}, {"constraints": ["a < c"]}, "names c, which is no hyperparameter"),
        ({"a": 1}, {"starting_points": [{"c": 1}]}, "there is no such hyperparameter"),
        ({"a": {"type": "log", "minval": -3, "maxval": -1}}, {"starting_points": [{"a": 1}]}, "a number from 0.001 to 0.1"),
    ],
)
def test_a_space_that_contradicts_itself_is_refused(space: dict[str, Any], searcher: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        submitted({"name": "random", "max_trials": 1} | searcher, space=space)


def test_the_documents_examples_are_accepted() -> None:
    text = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    examples = [yaml.safe_load(line)["searcher"] for line in text.splitlines() if line.startswith("searcher: {")]
    assert len(examples) >= 10
    for example in examples:
        config = submitted(example, space=SPACE).config
        assert method_for(config.searcher, config.hyperparameters).problem is None


def test_every_configured_method_has_rules() -> None:
    assert {plugin.name for plugin in plugins.declared(GROUP) if plugin.own} == OWN_NAMES


@pytest.mark.parametrize(
    ("name", "more", "exact"),
    [
        ("single", {}, True),
        ("random", {"max_trials": 32}, True),
        ("sobol", {"max_trials": 32, "constraints": ["lr < 0.05"]}, True),
        ("grid", {}, True),
        ("sha", {"max_trials": 32}, True),
        ("sha", {"max_trials": 50, "divisor": 3}, True),
        ("hyperband", {}, True),
        ("pbt", {}, True),
        ("pbt", {"population_size": 7, "generations": 4, "truncate_fraction": 0.5}, True),
        ("asha", {"max_trials": 32, "max_rungs": 1}, True),
        ("tpe", {"max_trials": 12}, True),
        ("asha", {"max_trials": 32}, False),
        ("adaptive_asha", {"max_trials": 32}, False),
        ("bohb", {"max_trials": 32}, False),
    ],
)
def test_the_preview_is_what_the_search_then_does(name: str, more: dict[str, Any], exact: bool) -> None:
    space = SPACE
    if name == "grid":
        space = {"kind": SPACE["kind"], "momentum": SPACE["momentum"], "lr": SPACE["lr"]}
    config = submitted({"name": name, "max_length": {"epochs": 27}} | more, space=space).config
    plan = preview(config)
    done = simulate(config, PowerLaw(config.hyperparameters, 27), seed=2)
    assert done.ended == "ExperimentCompleted"
    assert plan.exact is exact
    assert plan.trials == done.trials
    if exact:
        assert plan.cost == done.trained


def test_the_command_previews_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "name: t\nentrypoint: m:T\nhyperparameters: {lr: {type: log, minval: -4, maxval: -1}}\n"
        "searcher: {name: asha, metric: loss, max_length: {epochs: 16}, max_trials: 64}\n"
    )
    shown = CliRunner().invoke(app, ["exp", "preview", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "Cost: about 160 epochs in all, 15.6 % of" in shown.output  # 64 + 16 * 3 + 4 * 12
    plan = json.loads(CliRunner().invoke(app, ["exp", "preview", str(path), "--json"]).output)
    assert [(rung["length"], rung["trials"]) for rung in plan["rungs"]] == [(1, 64), (4, 16), (16, 4)]
    other = ["exp", "preview", str(path), "--set", "searcher.divisor=2", "--set", "searcher.max_rungs=2", "--json"]
    plan = json.loads(CliRunner().invoke(app, other).output)
    assert [(rung["length"], rung["trials"]) for rung in plan["rungs"]] == [(8, 64), (16, 32)]
