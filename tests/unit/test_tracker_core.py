"""The tracker's rules: fencing, restarts, finishing; and what must hold for any order of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.schemas.events.pool import AllocationPreempted, PoolEvent, SlotsReserved
from tenuto.schemas.events.registry import EVENT_MODELS
from tenuto.schemas.events.run import EXIT_CODE_INVALID_HYPERPARAMETERS, EXIT_CODE_WILL_REPEAT
from tenuto.schemas.events.search import ExperimentCompleted
from tenuto.schemas.events.trial import TrialFailed
from tenuto.schemas.ids import name_id
from tenuto.services.tracker.commands import RecordTrialReport
from tenuto.services.tracker.policies.restart_limits import DEATHS_MAX, FRUITLESS_MAX
from tests.support.said import said
from tests.support.tracker_driver import WHY, Driver, checkpoint, progress, training_ended, types, validation


def test_reports_of_the_current_allocation_are_recorded_once() -> None:
    driver = Driver()
    allocation = driver.grant()
    assert types(driver.report(validation(allocation, 10))) == ["ValidationReported"]
    assert driver.report(validation(allocation, 10, loss=9.0)) == []
    assert types(driver.report(checkpoint(allocation, 10))) == ["CheckpointSaved"]
    assert driver.report(checkpoint(allocation, 10)) == []
    assert types(driver.report(progress(allocation, 12))) == ["TrialProgressed"]
    assert driver.report(progress(allocation, 12)) == []


def test_an_early_end_is_recorded_once_and_is_no_failure() -> None:
    driver = Driver(max_restarts=0)
    allocation = driver.grant()
    [ended] = driver.report(training_ended(allocation, 37))
    assert (ended.TYPE, ended.batches, ended.said) == ("TrainingEnded", 37, "early stopping")  # type: ignore[attr-defined]
    assert driver.report(training_ended(allocation, 37)) == []
    assert driver.exit(allocation, "failed", "killed on its way out") == [], "it has done all that it can"
    driver.release(allocation)
    again = driver.grant()
    assert driver.report(training_ended(again, 40)) == [], "a run that did not know says it again"
    assert types(driver.stop()) == []
    [finished] = driver.release(again)
    assert (finished.TYPE, finished.batches) == ("TrialFinished", 37)  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [validation, checkpoint, progress, training_ended])
def test_reports_of_other_allocations_are_refused(make: Any) -> None:
    driver = Driver()
    assert types(driver.report(make("1-1-1", 10))) == ["ReportRefused"]  # not granted yet
    old = driver.grant()
    driver.exit(old, "lost")
    driver.release(old)
    refused = driver.report(make(old, 10))
    assert types(refused) == ["ReportRefused"]
    assert "released" in said(refused[0])
    driver.grant()
    refused = driver.report(make(old, 10))
    assert "1-1-2 is" in said(refused[0])
    assert types(driver.report(make("1-7-1", 10))) == ["ReportRefused"]  # another trial's allocation


def test_a_repeated_refusal_has_the_same_event_id() -> None:
    driver = Driver()
    id = name_id("once")
    driver.report(validation("1-1-1", 10), id)
    driver.report(validation("1-1-1", 10), id)
    assert driver.log[-1].id == driver.log[-2].id  # so the log refuses the second


def test_every_event_of_a_pools_stream_is_folded() -> None:
    """One that is not would make the guarded version fall behind for ever: every later report of the pool would be refused."""
    driver = Driver()
    allocation = driver.grant()
    version = driver.core.guards(driver.state, RecordTrialReport(name_id("r"), 0, validation(allocation, 10)))["pool/default"]
    driver.event(SlotsReserved(pool="default", trial_id="1-1", experiment_id=1, reason=WHY))
    guards = driver.core.guards(driver.state, RecordTrialReport(name_id("r"), 0, validation(allocation, 10)))
    assert guards == {"pool/default": version + 1}
    assert {"SlotsReserved", "AllocationResized"} <= driver.core.consumes
    assert all(model.TYPE in driver.core.consumes for model in EVENT_MODELS.values() if issubclass(model, PoolEvent))


def test_guards_name_the_version_of_the_pool_as_folded() -> None:
    driver = Driver()
    command = RecordTrialReport(name_id("r"), 0, validation("1-1-1", 10))
    assert driver.core.guards(driver.state, command) == {"pool/default": 0}
    allocation = driver.grant()
    driver.event(AllocationPreempted(pool="default", allocation_id=allocation, trial_id="1-1", experiment_id=1, reason=WHY))
    assert driver.core.guards(driver.state, command) == {"pool/default": 2}
    assert driver.core.guards(driver.state, driver.log[0]) == {}


def test_user_errors_restart_the_trial_until_max_restarts() -> None:
    driver = Driver(max_restarts=2)
    finals = []
    for number in (1, 2, 3):
        allocation = driver.grant()
        (failed,) = driver.exit(allocation, "failed", f"boom {'!' * number}")
        assert failed.error == f"boom {'!' * number}"  # type: ignore[attr-defined]
        assert failed.failures == number  # type: ignore[attr-defined]
        finals.append(failed.final)  # type: ignore[attr-defined]
        driver.release(allocation)
    assert finals == [False, False, True]
    assert types(driver.stop()) == ["TrialFinished"]


def test_losses_without_progress_are_bounded_and_progress_starts_the_count_again() -> None:
    driver = Driver()
    for round_ in range(DEATHS_MAX * 3):
        allocation = driver.grant()
        driver.report(checkpoint(allocation, round_ + 1))
        assert driver.exit(allocation, "lost", code=137) == []
        driver.release(allocation)
    for _ in range(DEATHS_MAX - 1):  # the last exit above counts as the first
        allocation = driver.grant()
        assert driver.exit(allocation, "lost", code=137) == []
        driver.release(allocation)
    allocation = driver.grant()
    (failed,) = driver.exit(allocation, "lost", "killed by signal 9", code=137)
    assert failed.final  # type: ignore[attr-defined]
    assert "killed by signal 9" in failed.error  # type: ignore[attr-defined]
    assert "such as too little memory" in failed.error  # type: ignore[attr-defined]


@pytest.mark.parametrize("max_restarts", [0, DEATHS_MAX + 4])
def test_deaths_are_borne_as_often_as_the_user_says_where_that_is_more(max_restarts: int) -> None:
    driver, finals = Driver(max_restarts=max_restarts), 0
    for number in range(max(DEATHS_MAX, max_restarts) + 1):
        allocation = driver.grant()
        finals = len(driver.exit(allocation, "lost", "killed by signal 9", code=137))
        driver.release(allocation)
        assert finals == (number == max(DEATHS_MAX, max_restarts))


def test_an_outage_is_survived_where_code_that_dies_is_not() -> None:
    driver = Driver()
    for number in range(FRUITLESS_MAX):
        allocation = driver.grant()
        code, cause = ((None, None), (83, "followed"), (84, "infrastructure"))[number % 3]
        assert driver.exit(allocation, "lost", "the link was cut", code=code, cause=cause) == []
        driver.release(allocation)
    allocation = driver.grant()
    (failed,) = driver.exit(allocation, "lost", "the link was cut", code=84, cause="infrastructure")
    assert failed.final  # type: ignore[attr-defined]
    assert "lost 101 times in a row" in failed.error  # type: ignore[attr-defined]
    assert "memory" not in failed.error  # type: ignore[attr-defined]


def test_a_stopped_trial_finishes_when_its_last_allocation_is_released() -> None:
    driver = Driver()
    allocation = driver.grant()
    driver.report(checkpoint(allocation, 40))
    assert driver.stop() == []
    assert types(driver.report(validation(allocation, 50))) == ["ValidationReported"]  # until released, it is current
    assert driver.exit(allocation, "finished") == []
    (finished,) = driver.release(allocation)
    assert (finished.TYPE, finished.batches, finished.checkpoint_id) == ("TrialFinished", 50, "c40")  # type: ignore[attr-defined]
    assert types(driver.report(validation(allocation, 60))) == ["ReportRefused"]
    assert not driver.state.experiments[1].trials


def test_a_trial_stopped_without_an_allocation_finishes_at_once() -> None:
    assert types(Driver().stop()) == ["TrialFinished"]


def test_an_ended_experiment_leaves_the_state() -> None:
    driver = Driver()
    driver.stop()
    driver.event(ExperimentCompleted(experiment_id=1, best_trial_id=None, best_metric=None, trials=1, reason=WHY))
    assert not driver.state.experiments


STEP = st.one_of(
    st.just(("grant",)),
    st.just(("release",)),
    st.just(("stop",)),
    st.tuples(st.just("exit"), st.sampled_from(["finished", "preempted", "paused", "failed", "lost"])),
    st.tuples(
        st.just("report"),
        st.sampled_from([validation, checkpoint, progress]),
        st.integers(0, 3),
        st.integers(0, 6),
    ),
)


def run(steps: list[Any], policy: str) -> Driver:
    """Any history that a scheduler could write: one allocation at a time, released before the next."""
    driver = Driver(checkpoint_policy=policy, max_restarts=1)
    current: str | None = None
    for step in steps:
        if step[0] == "grant" and current is None:
            current = driver.grant()
        elif step[0] == "release" and current is not None:
            driver.release(current)
            current = None
        elif step[0] == "exit" and current is not None:
            driver.exit(current, step[1])
        elif step[0] == "stop":
            driver.stop()
        elif step[0] == "report":
            allocation = current if step[2] == 0 and current else f"1-1-{step[2]}"
            decided = driver.report(step[1](allocation, step[3]))
            if allocation != current:
                assert types(decided) == ["ReportRefused"]
            again = driver.report(step[1](allocation, step[3]))
            assert types(again) in ([], ["ReportRefused"])
    return driver


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=40), st.sampled_from(["best", "all", "none"]))
def test_any_history(steps: list[Any], policy: str) -> None:
    driver = run(steps, policy)
    core = driver.core
    events = [event.data for event in driver.log]
    # Fold of the record is the live state, and a snapshot is the state.
    state = core.initial()
    for event in driver.log:
        state = core.evolve(state, event)
        state = core.load(core.dump(state))
    assert core.dump(state) == core.dump(driver.state)
    # No checkpoint is recorded twice or deleted twice, and none is deleted that was not recorded.
    saved = [item.checkpoint_id for item in events if item.TYPE == "CheckpointSaved"]  # type: ignore[attr-defined]
    deleted = [item.checkpoint_id for item in events if item.TYPE == "CheckpointDeleted"]  # type: ignore[attr-defined]
    assert len(saved) == len(set(saved))
    assert len(deleted) == len(set(deleted))
    assert set(deleted) <= set(saved)
    if policy == "all":
        assert not deleted
    # A trial finishes at most once, only after it was stopped and while it has no allocation.
    names = types(events)
    assert names.count("TrialFinished") <= 1
    if "TrialFinished" in names:
        before = names[: names.index("TrialFinished")]
        assert "TrialStopped" in before
        assert before.count("AllocationGranted") == before.count("AllocationReleased")
        finished = next(item for item in events if item.TYPE == "TrialFinished")
        left = [name for name in saved if name not in deleted]
        assert finished.checkpoint_id == (left[-1] if left else None)  # type: ignore[attr-defined]
    # One final failure, and nothing fails after it or after the stop.
    failures = [item for item in events if item.TYPE == "TrialFailed"]
    assert sum(item.final for item in failures) <= 1  # type: ignore[attr-defined]
    assert not failures or not any(item.final for item in failures[:-1])  # type: ignore[attr-defined]


def test_a_failure_that_would_repeat_is_final_at_once() -> None:
    driver = Driver()
    [failed] = driver.exit(driver.grant(), "failed", "no module named x", code=EXIT_CODE_WILL_REPEAT, cause="will_repeat")
    assert failed.final  # type: ignore[attr-defined]
    assert not failed.invalid_hyperparameters  # type: ignore[attr-defined]
    assert failed.failures == 1  # type: ignore[attr-defined]


def test_refused_hyperparameters_are_final_at_once() -> None:
    driver = Driver()
    allocation = driver.grant()
    [failed] = driver.exit(
        allocation, "failed", "too wide", code=EXIT_CODE_INVALID_HYPERPARAMETERS, cause="invalid_hyperparameters"
    )
    assert isinstance(failed, TrialFailed)
    assert (failed.final, failed.invalid_hyperparameters) == (True, True)
