"""Whole searches in virtual time, from seeds. A failing seed is in the test's name and repeats its run."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.services.searcher.core import SearcherCore
from tenuto.services.searcher.methods.asha import WAITING_SPARE
from tests.support.said import said
from tests.support.search_world import Faults, Recorder, Worker, World, submitted

STORM = Faults(fail=0.15, nan=0.1, missing=0.05, repeat=0.3, late=0.3, early=0.3)


def learning_curve(worker: Worker, length: int) -> float:
    """A loss that falls with training to a floor, which the learning rate and the dropout decide; curves cross early on."""
    lr, dropout = worker.hyperparameters["lr"], worker.hyperparameters["dropout"]
    floor = 0.1 + (math.log10(lr) + 2.3) ** 2 / 4 + (dropout - 0.2) ** 2
    return float(floor + (0.5 + dropout) / length**0.5)


def own(log: list[Event]) -> list[Event]:
    return [event for event in log if event.actor == f"searcher/{SearcherCore().rule_version}"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["promotion", "stopping"])
def test_a_search_in_a_storm_ends_and_verifies(mode: str, seed: int) -> None:
    request = submitted(
        {"name": "asha", "max_trials": 200, "max_concurrent_trials": 16, "mode": mode, "max_length": {"epochs": 64}},
        seed=seed,
    )
    cancel_at = 400.0 if seed % 4 == 3 else None
    world = World(
        request,
        seed=seed,
        slots=4 + seed,
        faults=Faults(**(STORM.__dict__ | {"cancel_at": cancel_at})),
        objective=learning_curve,
        lag_max=seed * 5,
    )
    log = world.run()
    core = SearcherCore()
    assert own(log)[-1].type == ("ExperimentCanceled" if cancel_at else "ExperimentCompleted")
    assert Counter(event.type for event in log)["TrialRequested"] == Counter(event.type for event in log)["TrialFinished"]
    assert verify_decisions(core, log).ok
    assert core.dump(fold(core, log)) == core.dump(world.recorder.state) == core.dump(core.initial())


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_is_the_same_search(seed: int) -> None:
    def payloads() -> list[bytes]:
        request = submitted({"name": "asha", "max_trials": 60, "max_concurrent_trials": 8}, seed=seed)
        return [event.payload for event in World(request, seed=seed, faults=STORM, lag_max=10).run()]

    assert payloads() == payloads()


def test_promotion_needs_less_training_than_random_for_the_same_result() -> None:
    """Training in all until a loss in the best 2 % of random draws is seen, summed over seeds (one random draw may be lucky)."""

    def trained_until(target: float, searcher: dict[str, Any]) -> int:
        limits = {"max_concurrent_trials": 8, "max_length": {"epochs": 256}}
        trained = 0
        for seed in range(5):
            world = World(submitted(searcher | limits, seed=seed), seed=seed, objective=learning_curve, checked=False)
            world.run()
            trained += next((trained for trained, loss in world.best_by_training if loss <= target), 10**9)
        return trained

    promotion = trained_until(0.15, {"name": "asha", "max_trials": 500, "divisor": 4})
    assert 1.5 * promotion < trained_until(0.15, {"name": "random", "max_trials": 200})


def test_ten_thousand_trials() -> None:
    trials, divisor = 10_000, 4
    request = submitted(
        {
            "name": "asha",
            "max_trials": trials,
            "max_concurrent_trials": 200,
            "divisor": divisor,
            "max_length": {"batches": 4096},
        }
    )
    world = World(request, seed=1, slots=200, objective=learning_curve, checked=False)
    core, largest = world.recorder.core, 0
    put = world.recorder.put

    def watched(data: Any) -> list[Any]:
        nonlocal largest
        decided = put(data)
        for experiment in world.recorder.state.experiments.values():
            largest = max(largest, len(experiment.trials))
            if len(world.recorder.log) % 5000 < 2:
                core.check(world.recorder.state)
        return decided

    world.recorder.put = watched  # type: ignore[method-assign]
    log = world.run()
    counts = Counter(event.type for event in log)
    assert counts["TrialRequested"] == counts["TrialFinished"] == trials
    last = log[-1].data
    assert isinstance(last, ExperimentCompleted)
    assert last.trials == trials
    # Those that lost for good leave; what stays is what may go on, what runs, and what is just leaving.
    assert largest < 2 * (trials // divisor + WAITING_SPARE) + 3 * 200
    promoted = Counter(event.data.target_length for event in log if isinstance(event.data, TrialExtended))
    assert trials // divisor <= promoted[64] <= 2 * trials // divisor, "about one in four goes on from the first rung"
    assert promoted[4096] >= 1


def test_every_decision_says_why_in_numbers() -> None:
    request = submitted({"name": "asha", "max_trials": 60, "max_concurrent_trials": 8})
    decisions = own(World(request, seed=3, faults=STORM, objective=learning_curve).run())
    for event in decisions:
        reason = getattr(event.data, "reason", None)
        assert reason is not None or event.type == "ExperimentStarted"
        if reason is not None:
            assert reason.rule
            assert said(event.data).endswith(".")
        if isinstance(event.data, TrialExtended):
            numbers = reason.numbers
            compared = {"rung", "length", "unit", "rank", "of", "top", "cut_off", "metric", "metric_name", "divisor"}
            assert numbers.keys() | {"unit"} == compared
            if reason.rule == "asha.promotion":
                assert numbers["rank"] <= numbers["top"]
                assert numbers["metric"] <= numbers["cut_off"]
        if isinstance(event.data, TrialStopped):
            assert {"rung", "length"} <= reason.numbers.keys()


def test_many_experiments_at_once_share_nothing() -> None:
    """A hundred searches on one log decide what each decides alone."""

    def play(recorder: Recorder, experiments: list[int]) -> dict[int, list[bytes]]:
        decided = [data for e in experiments for data in recorder.put(request(e))]
        while decided:
            data = decided.pop(0)
            if isinstance(data, TrialRequested | TrialExtended):
                loss = data.experiment_id * int(data.trial_id.split("-")[1]) % 17 / data.target_length
                decided += recorder.put(ValidationReported(
                    trial_id=data.trial_id, allocation_id="a", batches=data.target_length, length=data.target_length,
                    metrics={"loss": loss},
                ))  # fmt: skip
            elif isinstance(data, TrialStopped):
                decided += recorder.put(TrialFinished(trial_id=data.trial_id, batches=0, length=0, checkpoint_id=None))
        streams: dict[int, list[bytes]] = {e: [] for e in experiments}
        for event in own(recorder.log):
            streams[int(event.correlation_id)].append(event.payload)
        return streams

    def request(experiment: int) -> Any:
        return submitted(
            {"name": "asha", "max_trials": 12, "max_concurrent_trials": 4}, experiment_id=experiment, seed=experiment
        )

    together = Recorder()
    together.checked = False
    streams = play(together, list(range(1, 101)))
    assert not together.state.experiments
    for experiment in (1, 50, 100):
        assert play(Recorder(), [experiment])[experiment] == streams[experiment]
