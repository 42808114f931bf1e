"""Searches by Optuna's samplers: proposals are recorded, everything else replays, and a restart changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.search import ExperimentCompleted, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.services.searcher.adapters.samplers import propose
from tests.support.proposals import propose_all
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
