"""Searches by Optuna's samplers: proposals are recorded, everything else replays, and a restart changes nothing."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.search import ExperimentCompleted, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.services.searcher.adapters.results import results_of, worse_than
from tenuto.services.searcher.adapters.samplers import propose
from tenuto.services.searcher.simulation.run import Surroundings, simulate
from tests.support.proposals import propose_all
from tests.support.search_driver import Search
from tests.support.search_world import Recorder, submitted

SPACE = {
    "x": {"type": "double", "minval": -5, "maxval": 5},
    "lr": {"type": "log", "minval": -4, "maxval": 0},
    "n": {"type": "int", "minval": 1, "maxval": 8},
    "kind": {"type": "categorical", "vals": ["a", ["b", 1]]},
    "momentum": {"type": "double", "minval": 0, "maxval": 1, "step": 0.25, "when": {"kind": "a"}},
    "fixed": 3,
}


def loss_of(h: dict[str, Any]) -> float:
    return float((h["x"] - 2) ** 2 + (math.log10(h["lr"]) + 2) ** 2 + abs(h["n"] - 4) / 4 + (h["kind"] != "a"))


def run(searcher: dict[str, Any], space: dict[str, Any] | None = None, seed: int = 3) -> tuple[Recorder, list[EventData]]:
    recorder = Recorder()
    decided = recorder.put(submitted({"max_length": {"epochs": 1}} | searcher, space=space or SPACE, seed=seed))
    decided = [*decided, *propose_all(recorder)]
    every = list(decided)
    while decided:
        data = decided.pop(0)
        more: list[EventData] = []
        if isinstance(data, TrialRequested):
            loss = loss_of(data.hyperparameters)
            metrics = {"loss": loss, "size": float(data.hyperparameters["n"])}
            more = recorder.put(
                ValidationReported(trial_id=data.trial_id, allocation_id="a", batches=1, length=1, metrics=metrics)
            )
        elif isinstance(data, TrialStopped):
            more = recorder.put(TrialFinished(trial_id=data.trial_id, batches=1, length=1, checkpoint_id=None))
        more = [*more, *propose_all(recorder)]
        decided += more
        every += more
    return recorder, every


@pytest.mark.parametrize(("name", "trials"), [("tpe", 16), ("gp", 12), ("cmaes", 24), ("nsga2", 24)])
def test_a_sampled_search_ends_replays_and_stays_in_the_space(name: str, trials: int) -> None:
    searcher: dict[str, Any] = {"name": name, "max_trials": trials, "max_concurrent_trials": 3}
    if name == "nsga2":
        searcher |= {"objectives": [{"metric": "size"}], "population_size": 10}
    recorder, decided = run(searcher)
    asked = [data for data in decided if isinstance(data, TrialRequested)]
    assert len(asked) == trials
    assert isinstance(decided[-1], ExperimentCompleted)
    assert {data.reason.rule for data in asked} == {f"{name}.proposed"}
    assert asked[-1].reason.numbers["results"] >= trials - 3
    for data in asked:
        h = data.hyperparameters
        assert -5 <= h["x"] <= 5
        assert 1e-4 <= h["lr"] <= 1
        assert h["n"] in range(1, 9)
        assert ("momentum" in h) == (h["kind"] == "a")
        assert h.get("momentum", 0) in (0, 0.25, 0.5, 0.75, 1)
        assert h["fixed"] == 3
    core = recorder.core
    assert core.dump(fold(core, recorder.log)) == core.dump(recorder.state)
    verdict = verify_decisions(core, recorder.log)
    assert verdict.ok, verdict.divergences
    assert verdict.from_commands == trials
    assert run(searcher)[1] == decided, "the same seed, the same search"


@pytest.mark.parametrize("name", ["tpe", "cmaes"])
def test_a_model_beats_its_own_random_start(name: str) -> None:
    better = 0
    for seed in range(4):
        _, decided = run({"name": name, "max_trials": 40, "max_concurrent_trials": 1}, seed=seed)
        losses = [loss_of(data.hyperparameters) for data in decided if isinstance(data, TrialRequested)]
        better += sum(losses[-10:]) < sum(losses[:10]) / 1.5
    assert better >= 3


@pytest.mark.parametrize("name", ["tpe", "cmaes", "nsga2"])
def test_constraints_and_starting_points_hold(name: str) -> None:
    _, decided = run(
        {
            "name": name,
            "max_trials": 15,
            "max_concurrent_trials": 2,
            "startup_trials": 5,
            "constraints": ["x + n <= 3"],
            "starting_points": [{"x": -1.5, "n": 2}],
        }
        | ({"objectives": [{"metric": "size"}]} if name == "nsga2" else {})
    )
    asked = [data.hyperparameters for data in decided if isinstance(data, TrialRequested)]
    assert (asked[0]["x"], asked[0]["n"]) == (-1.5, 2)
    assert all(h["x"] + h["n"] <= 3 for h in asked)


def test_a_proposal_that_comes_too_late_or_twice_decides_nothing() -> None:
    recorder = Recorder()
    recorder.put(submitted({"name": "tpe", "max_trials": 4, "max_concurrent_trials": 1}, space=SPACE))
    command = propose(recorder.state.experiments[1])
    assert len(recorder.core.decide(recorder.state, command)) == 1
    propose_all(recorder)
    assert recorder.core.decide(recorder.state, command) == []


def test_a_restarted_searcher_proposes_the_same() -> None:
    recorder, _ = run({"name": "tpe", "max_trials": 16, "max_concurrent_trials": 2})
    core = recorder.core
    state = core.initial()
    for event in recorder.log[:60]:
        state = core.evolve(state, event)
    again = core.load(core.dump(state))
    assert propose(again.experiments[1]) == propose(state.experiments[1])


CORNER = {"x": {"type": "double", "minval": 0, "maxval": 1}, "y": {"type": "double", "minval": 0, "maxval": 1}}
Told = dict[int, tuple[float, ...]]


def told_after(name: str, outcomes: list[str], **more: Any) -> Told:
    """Observations given to the sampler when trial n ended as outcomes[n - 1] says: a loss, `missing`, `failed` or `refused`."""
    search = Search(CORNER, name=name, max_trials=50, max_concurrent_trials=1, max_length={"epochs": 1}, **more)
    for number, outcome in enumerate(outcomes, 1):
        propose_all(search.recorder)
        match outcome:
            case "missing":
                search.validate(number, 1, None)
            case "failed":
                search.fail(number)
            case "refused":
                search.refuse(number)
            case _:
                search.validate(number, 1, float(outcome))
        search.finish(number)
    propose_all(search.recorder)
    results = results_of(search.recorder.state.experiments[1])
    assert len(results.open) == 1
    return {number: scores for number, _, scores in results.told}


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes"])
def test_who_has_no_score_is_told_as_worse_than_all_who_have_one(name: str) -> None:
    told = told_after(name, ["3", "nan", "1", "missing", "failed", "inf", "refused", "2"])
    assert sorted(told) == list(range(1, 9))
    assert [told[number][0] for number in (3, 8, 1)] == [1, 2, 3]
    assert all(told[number][0] == pytest.approx(3.2) for number in (2, 4, 5, 6, 7))
    assert all(math.isfinite(score) for scores in told.values() for score in scores)


def test_nobody_is_told_as_worse_than_nothing() -> None:
    assert told_after("tpe", ["nan", "failed", "missing"]) == {}


def test_who_lacks_one_of_several_metrics_is_the_worst_in_all() -> None:
    told = told_after("nsga2", ["1", "missing", "3"], objectives=[{"metric": "other"}])
    assert told == {1: (1.0, 1.0), 3: (3.0, 1.0), 2: (pytest.approx(3.2), math.nextafter(1.0, 2))}


def test_worse_than_the_largest_number_is_still_finite() -> None:
    assert worse_than([(1.7e308,), (-1.7e308,)]) == (sys.float_info.max,)
    assert worse_than([]) is None


@pytest.mark.parametrize("name", ["tpe", "cmaes"])
def test_a_sampler_leaves_the_corner_where_there_is_no_metric(name: str) -> None:
    """Most of the square has no metric. Those who learn from it try it about as often as where the loss is huge."""

    def tried(bad: float) -> int:
        inside = 0
        for seed in range(3):
            config = submitted({"name": name, "max_trials": 40, "max_length": {"epochs": 1}}, space=CORNER).config
            curves = Corner(bad)
            simulate(config, curves, Surroundings(workers=2, seed=seed), seed=seed)
            inside += curves.inside
        return inside

    assert tried(math.nan) <= 1.25 * tried(1e6)


class Corner:
    def __init__(self, bad: float) -> None:
        self.bad, self.inside = bad, 0

    def loss(self, hyperparameters: dict[str, Any], length: int) -> float:
        x, y = hyperparameters["x"], hyperparameters["y"]
        if x < 0.7:
            self.inside += 1
            return self.bad
        return float((x - 0.7) ** 2 + (y - 0.5) ** 2)
