"""Pauses before restarts: a trial that fails again and again waits longer each time, and every one starts again in the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import ExperimentPauseRequested, ExperimentResumeRequested
from tenuto.schemas.events.run import RestartPauseEnded, WorkersExited
from tenuto.schemas.events.search import ExperimentCompleted, TrialExtended
from tenuto.schemas.events.trial import CheckpointSaved, TrialFinished, ValidationReported
from tenuto.schemas.ids import allocation_id
from tenuto.services.launcher.commands import EndRestartPauses
from tenuto.services.launcher.state.restarts import RESTART_PAUSE_SECONDS_MAX, pause_seconds
from tests.support import scheduler_driver
from tests.support.launcher_driver import STOPPED, WHY, Driver, only, preempted

RESUMED = ExperimentResumeRequested(experiment_id=1)


def kinds(decided: list[EventData]) -> list[str]:
    return [data.TYPE for data in decided]


def granted(decided: list[EventData]) -> list[str]:
    return [data.allocation_id for data in decided if isinstance(data, AllocationGranted)]


def lose(driver: Driver, number: int, outcome: str = "lost", code: int | None = None, cause: str | None = None) -> WorkersExited:
    driver.grant(number=number)
    return only(driver.exited(outcome, code, allocation_id("1-1", number), cause=cause), WorkersExited)


def advance(driver: Driver, number: int, kind: str) -> None:
    common = {"trial_id": "1-1", "allocation_id": allocation_id("1-1", number), "batches": number, "length": number}
    if kind == "saved":
        driver.event(CheckpointSaved(**common, checkpoint_id=f"c{number}", files=(), size_bytes=0, location="file:///c"))
    else:
        driver.event(ValidationReported(**common, metrics={"loss": 1.0}))


def test_pauses_double_up_to_a_bound_and_outlast_an_outage_of_ten_minutes() -> None:
    pauses = [pause_seconds(number) for number in range(1, 40)]
    assert pauses[:5] == [0, 1, 2, 4, 8]
    assert pauses[-1] == RESTART_PAUSE_SECONDS_MAX == pause_seconds(10_000)
    assert sum(pauses[:11]) > 600


@pytest.mark.parametrize("outcome", ["lost", "failed"])
def test_each_setback_without_progress_doubles_the_pause_and_the_first_costs_none(outcome: str) -> None:
    driver = Driver()
    driver.join()
    first = lose(driver, 1, outcome)
    assert (first.setbacks, first.restart_at_us) == (0, None)
    assert not driver.state.pauses
    for number, seconds in enumerate((1, 2, 4, 8), start=2):
        exited = lose(driver, number, outcome)
        assert (exited.setbacks, exited.restart_at_us) == (number, seconds * 1_000_000)
        assert driver.command(EndRestartPauses, time_us=seconds * 1_000_000 - 1) == []
        ended = only(driver.command(EndRestartPauses, time_us=seconds * 1_000_000), RestartPauseEnded)
        assert ended.allocation_id == allocation_id("1-1", number)
        assert driver.command(EndRestartPauses, time_us=10**12) == []


@pytest.mark.parametrize("kind", ["saved", "validated"])
def test_progress_starts_the_count_again(kind: str) -> None:
    driver = Driver()
    driver.join()
    for number in (1, 2, 3):
        lose(driver, number)
    driver.grant(number=4)
    advance(driver, 4, kind)
    assert only(driver.exited("lost", None, "1-1-4"), WorkersExited).restart_at_us is None
    assert lose(driver, 5).restart_at_us == 1_000_000


def test_who_left_as_asked_waits_for_nothing_and_what_no_restart_changes_has_no_pause() -> None:
    driver = Driver()
    driver.join()
    for number in (1, 2, 3):
        lose(driver, number)
    driver.grant(number=4)
    driver.event(preempted(allocation="1-1-4"))
    assert only(driver.exited("preempted", 80, "1-1-4"), WorkersExited).restart_at_us is None
    assert lose(driver, 5, "failed", 82, "invalid_hyperparameters").restart_at_us is None
    assert lose(driver, 6, "failed", 82).restart_at_us == 8_000_000, "a code alone says nothing"


@pytest.mark.parametrize("outcome", ["preempted", "paused"])
def test_who_leaves_unasked_is_set_back_like_a_loss(outcome: str) -> None:
    driver = Driver()
    driver.join()
    assert [lose(driver, number, outcome).restart_at_us for number in range(1, 5)] == [None, 1_000_000, 2_000_000, 4_000_000]
    driver.grant(number=5)
    advance(driver, 5, "validated")
    assert only(driver.exited(outcome, 80, "1-1-5"), WorkersExited).restart_at_us is None
    assert lose(driver, 6, outcome).restart_at_us is None


def test_who_is_asked_to_leave_before_it_has_begun_waits_from_the_seventh_time_on() -> None:
    driver, pauses = Driver(), []
    driver.join()
    for number in range(1, 10):
        driver.grant(number=number)
        driver.event(preempted(allocation=allocation_id("1-1", number)))
        pauses.append(only(driver.exited("preempted", 80, allocation_id("1-1", number)), WorkersExited).restart_at_us)
    assert pauses == [None] * 6 + [1_000_000, 2_000_000, 4_000_000]


def test_a_checkpoint_at_the_place_of_the_last_is_no_progress() -> None:
    driver, pauses = Driver(), []
    driver.join()
    for number in range(1, 5):
        driver.grant(number=number)
        common = {"trial_id": "1-1", "allocation_id": allocation_id("1-1", number), "batches": 5, "length": 5}
        driver.event(CheckpointSaved(**common, checkpoint_id=f"c{number}", files=(), size_bytes=0, location="file:///c"))
        pauses.append(only(driver.exited("preempted", 80, allocation_id("1-1", number)), WorkersExited).restart_at_us)
    assert pauses == [None, None, 1_000_000, 2_000_000]


@pytest.mark.parametrize(
    "over",
    [
        STOPPED,
        RESUMED,
        TrialFinished(trial_id="1-1", batches=0, length=0, checkpoint_id=None),
        ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=1, reason=WHY),
    ],
)
def test_a_pause_ends_where_the_trial_is_over_or_its_user_asks_for_it(over: EventData) -> None:
    driver = Driver()
    driver.join()
    lose(driver, 1)
    lose(driver, 2)
    assert list(driver.state.pauses) == ["1-1"]
    said = driver.event(over)
    assert kinds(said) == (["RestartPauseEnded"] if over is RESUMED else [])
    assert not driver.state.pauses
    assert driver.command(EndRestartPauses, time_us=10**12) == []


def test_a_trial_that_pauses_holds_no_slots_and_others_have_them() -> None:
    driver = scheduler_driver.Driver()
    first, second = (scheduler_driver.requested(number, 1)[0] for number in (1, 2))
    driver.feed(scheduler_driver.joined("a", 1), scheduler_driver.submitted(1), first)
    lost = WorkersExited(allocation_id="1-1-1", trial_id="1-1", outcome="lost", exit_code=None, setbacks=2, restart_at_us=9)
    assert kinds(driver.feed(lost)) == ["AllocationReleased"]
    assert granted(driver.feed(scheduler_driver.submitted(2), second)) == ["2-1-1"]
    driver.feed(scheduler_driver.stopped("2-1"))
    assert kinds(driver.feed(scheduler_driver.exited("2-1-1"))) == ["AllocationReleased"]
    assert driver.feed(RestartPauseEnded(allocation_id="1-1-9", trial_id="1-1")) == [], "the end of another pause"
    assert driver.core.load(driver.core.dump(driver.state)) == driver.state
    assert granted(driver.feed(RestartPauseEnded(allocation_id="1-1-1", trial_id="1-1"))) == ["1-1-2"]


@pytest.mark.parametrize("resumed_first", [False, True])
def test_whoever_resumes_an_experiment_ends_its_pauses(resumed_first: bool) -> None:
    """Also where the log has the request before an exit that the launcher decided on without having read the request."""
    launcher, scheduler = Driver(), scheduler_driver.Driver()
    launcher.join()
    for number in (1, 2):
        exited = lose(launcher, number)
    assert exited.restart_at_us is not None
    ended = launcher.event(RESUMED)
    scheduler.feed(scheduler_driver.joined("a", 1), scheduler_driver.submitted(1), scheduler_driver.requested(1, 1)[0])
    scheduler.feed(WorkersExited(allocation_id="1-1-1", trial_id="1-1", outcome="lost", exit_code=None))
    scheduler.feed(ExperimentPauseRequested(experiment_id=1))
    found = scheduler.feed(*((RESUMED, exited) if resumed_first else (exited, RESUMED)), *ended)
    assert granted(found)[-1:] == ["1-1-3"]
    assert not launcher.state.pauses


ACTS = st.lists(st.sampled_from(["lost", "failed", "preempted", "saved", "ends", "resume", "stop", "extend"]), max_size=40)


@settings(deadline=None)
@given(ACTS)
def test_in_any_order_the_index_fits_and_whoever_is_wanted_starts_again(acts: list[str]) -> None:
    """`check` runs after every step of the driver."""
    driver = Driver()
    driver.join()
    number, time_us = 0, 0
    for act in acts:
        time_us += 400_000
        if act in ("lost", "failed", "preempted"):
            if "1-1" in driver.state.pauses:
                continue  # the scheduler would grant nothing
            number += 1
            driver.grant(number=number)
            driver.exited(act, None, allocation_id("1-1", number))
        elif act == "saved" and number:
            advance(driver, number, "saved")
        elif act == "ends":
            driver.command(EndRestartPauses, time_us=time_us)
        elif act == "resume":
            driver.event(RESUMED)
        elif act == "stop":
            driver.event(STOPPED)
        elif act == "extend":
            driver.event(TrialExtended(experiment_id=1, trial_id="1-1", target_length=20, reason=WHY))
    driver.command(EndRestartPauses, time_us=10**15)
    assert not driver.state.pauses
    assert driver.core.dump(fold(driver.core, driver.log)) == driver.core.dump(driver.state)
    assert driver.core.dump(driver.core.load(driver.core.dump(driver.state))) == driver.core.dump(driver.state)
    assert verify_decisions(driver.core, driver.log).ok
