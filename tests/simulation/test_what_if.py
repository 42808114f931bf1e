"""What if: a recorded history run again, beside what happened, with the scheduler's own core."""

from __future__ import annotations

from functools import cache
from uuid import UUID

import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.run import WorkersStarted
from tenuto.schemas.what_if import Course, WhatIfQuestion
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster
from tenuto.services.scheduler.simulation.traces import generated, script_of
from tenuto.services.scheduler.simulation.what_if import NotPossible, offered_us, ran, what_if
from tests.support.scheduler_driver import joined

SECOND = 1_000_000


@cache
def history() -> tuple[Event, ...]:
    """A simulated cluster's log under fifo, with the starts of workers that a real one has."""
    told: list[Event] = []

    def observer(data: EventData) -> None:
        told.append(
            Event(
                id=UUID(int=len(told) + 1), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION,
                time_us=cluster.now_us, payload=data.to_json(), actor="test/1",
            ).recorded(len(told) + 1, 1)
        )  # fmt: skip
        if isinstance(data, AllocationGranted):
            agents = tuple(part.agent_id for part in data.slots)
            observer(WorkersStarted(allocation_id=data.allocation_id, trial_id=data.trial_id, agent_ids=agents))

    jobs = generated(25, 8, 3, arrivals="bursty", load=1.5)
    cluster = SimulatedCluster(script_of(jobs, 2, 4), "fifo", Costs(startup_us=0, checkpoint_us=0), observer=observer)
    cluster.run()
    return tuple(told)


def courses(**asked: object) -> dict[str, Course]:
    answer = what_if(history(), WhatIfQuestion.model_validate({"pool": "default", "trials": 2_000, **asked}))
    assert answer.left_out == 0
    return {course.name: course for course in answer.courses}


def test_the_simulator_finds_again_what_happened() -> None:
    """Its clock is exact where starting costs nothing, so every figure is that of the record."""
    found = courses()
    assert found["simulated"].figures == found["changed"].figures == found["recorded"].figures
    assert set(found["simulated"].segments) == set(found["recorded"].segments)
    trials = ran([(event.time_us, event.data) for event in history()])
    assert found["recorded"].figures.trials == len(trials) > 20
    assert 0 < found["recorded"].figures.used <= 1


def test_another_policy_serves_others_first_and_does_the_same_work() -> None:
    found = courses(policy="fair_share")
    before, after = found["recorded"].figures, found["changed"].figures
    assert found["simulated"].figures == before
    assert after.wait_mean_seconds != before.wait_mean_seconds
    assert after.trials == before.trials
    assert [user.user for user in after.users] == [user.user for user in before.users]


def test_more_agents_make_waiting_shorter() -> None:
    answer = what_if(history(), WhatIfQuestion(pool="default", agents=2, slots=4, trials=2_000))
    before, _, after = answer.courses
    assert answer.agents[:2] == ("added-1", "added-2")
    assert after.figures.wait_mean_seconds < before.figures.wait_mean_seconds / 2
    assert {answer.agents[segment[0]] for segment in after.segments} > {answer.agents[segment[0]] for segment in before.segments}


def test_only_the_newest_trials_are_run_again() -> None:
    answer = what_if(history(), WhatIfQuestion(pool="default", trials=5))
    assert {course.figures.trials for course in answer.courses} == {5}
    assert answer.left_out > 15


def test_what_cannot_be_run_again_is_refused() -> None:
    with pytest.raises(NotPossible, match="No agent of pool other had joined by then"):
        what_if(history(), WhatIfQuestion(pool="other"))
    with pytest.raises(NotPossible, match="No trial had run to its end by then"):
        what_if(history()[:6], WhatIfQuestion(pool="default"))


def test_slots_count_while_they_are_in_service() -> None:
    facts = [(0, joined("a", 4)), (10, joined("b", 2)), (30, joined("x", 9, pool="other"))]
    assert offered_us(facts, "default", 0, 20) == 4 * 20 + 2 * 10
    assert offered_us(facts, "default", 15, 20) == 6 * 5
    assert offered_us(facts, "default", 20, 20) == 0
