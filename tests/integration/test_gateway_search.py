"""Searches in the REST interface: the Pareto front, and the decisions of a user's own searcher."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.search import ExperimentStarted, TrialRequested
from tenuto.schemas.events.trial import ValidationReported
from tenuto.services.gateway.trials.policies.pareto import Goal, ParetoCandidate, front
from tests.integration.test_gateway_rest import WHY, World, world  # noqa: F401 - a fixture

NSGA2 = """
name: two
entrypoint: model_def:Trial
searcher:
  {name: nsga2, metric: accuracy, smaller_is_better: false, max_length: {batches: 10}, max_trials: 20,
   objectives: [{metric: latency_ms}]}
"""
CUSTOM = """
name: own
entrypoint: model_def:Trial
hyperparameters: {lr: {type: double, minval: 0, maxval: 1}}
searcher: {name: custom, metric: loss, max_length: {batches: 10}, max_trials: 2}
"""
GOALS = (Goal("a", True), Goal("b", False))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_the_front_is_whom_nobody_dominates(values: list[tuple[int, int]]) -> None:
    trials = [ParetoCandidate(number, 1, (float(a), float(b))) for number, (a, b) in enumerate(values, 1)]

    def dominates(one: ParetoCandidate, other: ParetoCandidate) -> bool:
        no_worse = one.values[0] <= other.values[0] and one.values[1] >= other.values[1]
        return no_worse and one.values != other.values

    expected = [one for one in trials if not any(dominates(other, one) for other in trials)]
    found = front(GOALS, trials)
    assert sorted(found, key=lambda one: one.number) == expected
    assert [one.values[0] for one in found] == sorted(one.values[0] for one in found)


def requested(number: int, lr: float) -> TrialRequested:
    return TrialRequested(
        experiment_id=1,
        trial_id=f"1-{number}",
        trial_number=number,
        hyperparameters={"lr": lr},
        seed=1,
        target_length=10,
        reason=WHY,
    )


async def test_the_pareto_front_is_shown(world: World) -> None:  # noqa: F811
    await world.submit(NSGA2)
    results = [(0.9, 5.0), (0.8, 3.0), (0.8, 4.0), (0.95, 9.0), (math.nan, 1.0)]
    for number, (accuracy, latency) in enumerate(results, 1):
        await world.record(
            requested(number, number / 10),
            ValidationReported(
                trial_id=f"1-{number}",
                allocation_id="a",
                batches=10,
                length=10,
                metrics={"accuracy": accuracy, "latency_ms": latency, "other": 1.0},
            ),
        )
    seen = await world.get("/experiments/1/pareto")
    assert seen["goals"] == [
        {"metric": "accuracy", "smaller_is_better": False},
        {"metric": "latency_ms", "smaller_is_better": True},
    ]
    assert seen["compared"] == 4
    assert [trial["trial_id"] for trial in seen["front"]] == ["1-4", "1-1", "1-2"]
    assert seen["front"][0]["values"] == {"accuracy": 0.95, "latency_ms": 9.0}
    assert seen["front"][0]["hyperparameters"] == {"lr": 0.4}
    assert "trials" not in seen
    chosen = await world.get("/experiments/1/pareto?second=latency_ms&second_smaller_is_better=false&all=true")
    assert chosen["goals"][1] == {"metric": "latency_ms", "smaller_is_better": False}
    assert [trial["trial_id"] for trial in chosen["front"]] == ["1-4"]
    assert [(trial["values"], trial["on_front"]) for trial in chosen["trials"]] == [
        ([accuracy, latency], accuracy == 0.95) for accuracy, latency in results[:4]
    ]
    # A trial is compared by its last validation that has all goals; one that never had them is not.
    for number, batches, metrics in (
        (1, 20, {"accuracy": 0.99, "latency_ms": 0.5}),
        (1, 30, {"accuracy": 1.0}),
        (6, 20, {"latency_ms": 0.1}),
        (7, 20, {"accuracy": math.inf, "latency_ms": 0.1}),
    ):
        said = ValidationReported(trial_id=f"1-{number}", allocation_id="a", batches=batches, length=batches, metrics=metrics)
        await world.record(*([requested(number, 0.5)] if number > 5 else []), said)
    seen = await world.get("/experiments/1/pareto")
    assert seen["compared"] == 4
    assert [(trial["trial_id"], trial["length"]) for trial in seen["front"]] == [("1-1", 20)]
    await world.submit()
    code = (await world.error("GET", "/experiments/2/pareto"))[1:]
    assert code == ("conflict", "Experiment 2 compares accuracy only: a Pareto front needs searcher.objectives (nsga2).")
    assert (await world.get("/experiments/2/pareto?second=loss"))["compared"] == 0
    assert (await world.error("GET", "/experiments/3/pareto"))[1] == "not_found"


async def test_operations_are_recorded_once_per_event_and_refused_with_a_reason(world: World) -> None:  # noqa: F811
    await world.submit(CUSTOM)
    await world.record(ExperimentStarted(experiment_id=1, method="custom", rule_version=2))
    cause = (await world.log.read(0))[-1]
    create = {"kind": "create", "hyperparameters": {"lr": 0.5}, "length": 10}

    async def ask(*operations: Any, cause_id: Any = cause.id, experiment: int = 1) -> Any:
        body = {"searcher": "my.py:Mine", "cause_id": str(cause_id), "operations": operations}
        return await world.http.post(f"/api/v1/experiments/{experiment}/operations", json=body)

    async def refused(*operations: Any, **more: Any) -> tuple[int, str]:
        response = await ask(*operations, **more)
        return response.status_code, response.json()["error"]["message"]

    head = await world.log.head()
    assert await refused(create | {"length": 11}) == (
        400,
        "operations[0].length is 11, but searcher.max_length is 10 batches.",
    )
    assert (
        "operations[0].hyperparameters.lr: 2 is not in the search space"
        in (await refused(create | {"hyperparameters": {"lr": 2}}))[1]
    )
    assert "There is no trial 2 to stop: 1 were created" in (await refused(create, {"kind": "stop", "trial": 2}))[1]
    assert "would be trial 3 of at most 2" in (await refused(create, create, create))[1]
    assert "There is no event" in (await refused(create, cause_id=world.service.doors.base.clock.new_id()))[1]
    assert await world.log.head() == head, "what was refused leaves nothing"

    first = await ask(create)
    assert first.status_code == 200, first.text
    assert await world.log.head() == head + 1
    again = await ask(create, create)
    assert again.json() == first.json(), "the first decision on an event stands"
    assert await world.log.head() == head + 1
    await world.submit()
    await world.record(ExperimentStarted(experiment_id=2, method="single", rule_version=2))
    other = (await world.log.read(0))[-1]
    status, message = await refused(create, cause_id=other.id, experiment=2)
    assert (status, message.split(";")[0]) == (409, "Experiment 2 is searched by single")


async def test_limits_of_trials_are_shown_as_they_are_now(world: World) -> None:  # noqa: F811
    async def limits(experiment: int) -> tuple[int | None, int | None]:
        view = await world.get(f"/experiments/{experiment}")
        return view["max_trials"], view["max_concurrent_trials"]

    async def change(experiment: int, **body: int) -> int:
        return (await world.http.patch(f"/api/v1/experiments/{experiment}", json=body)).status_code

    await world.submit(NSGA2)
    await world.submit()
    assert await limits(1) == (20, 4)
    assert await limits(2) == (None, None)
    assert await change(1, max_concurrent_trials=3) == 200
    assert await limits(1) == (20, 3)
    assert await change(1, max_trials=7) == 200
    assert await limits(1) == (7, 3)
    assert (await world.error("PATCH", "/experiments/2", json={"max_trials": 3}))[1] == "invalid"
    assert await change(2, max_concurrent_trials=3) == 200, "which means nothing to a single trial"
    assert await limits(2) == (None, None)
