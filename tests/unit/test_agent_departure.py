"""The end of an agent's time: what its heartbeats announce when, what launcher and scheduler make of that, and when it ends."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.kernel.settings import Settings
from tenuto.schemas.events.agent import AgentJoined, AgentLost, Leaving
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.sentences.released_slots import AgentLeaves
from tenuto.schemas.sentences.rules import form_of
from tenuto.services.launcher.commands import ExpireLease
from tenuto.workers.agent import departure as module
from tenuto.workers.agent.departure import BadEnd, Departure
from tests.support.launcher_driver import Driver as Launcher
from tests.support.launcher_driver import only
from tests.support.manual_clock import ManualClock
from tests.support.scheduler_driver import Driver, exited, joined, requested, short, submitted
from tests.support.waiting import SECONDS_MAX

HOUR = 3600.0


def make(clock: ManualClock, seconds: float = HOUR, **changes: float) -> Departure:
    return Departure(Settings(leave_at=clock.now_us() / 1e6 + seconds if seconds else 0.0, **changes), clock)  # type: ignore[arg-type]


def test_nothing_begins_in_the_last_minutes_and_what_runs_saves_in_the_last_two() -> None:
    clock = ManualClock()
    departure = make(clock)
    steps = []
    for seconds in (0.0, HOUR - 301, 2.0, 178.0, 2.0):
        clock.advance(seconds)
        departure._look(busy=True)
        steps.append(departure.leaving)
    assert steps == ["", "", "soon", "soon", "now"]
    departure.announce("soon")
    assert departure.leaving == "now", "a step is not taken back"


def test_an_agent_without_work_for_long_announces_its_end() -> None:
    clock = ManualClock()
    departure = make(clock, 0.0, leave_idle_seconds=60.0)
    for busy in (False, True, False):
        clock.advance(59)
        departure._look(busy)
        assert departure.leaving == ""
    clock.advance(60)
    departure._look(busy=False)
    assert departure.leaving == "soon"


@pytest.mark.parametrize(
    ("seconds", "changes", "by_signal", "workers_seconds"),
    [
        (0.0, {}, False, 20.0),
        (HOUR, {}, True, 20.0),
        (0.0, {"leave_signal_seconds": 145.0}, True, 135.0),
        (HOUR, {"leave_signal_seconds": 5.0}, True, 0.0),
    ],
)
def test_sigterm_means_the_end_where_the_agent_knows_it_or_is_told(
    seconds: float, changes: dict[str, float], by_signal: bool, workers_seconds: float
) -> None:
    departure = make(ManualClock(), seconds, **changes)
    assert (departure.by_signal, departure.signal_seconds_max) == (by_signal, workers_seconds)


@pytest.mark.parametrize(
    ("seconds", "changes", "said"),
    [
        (200.0, {}, "200 s from now, and nothing begins in its last 300 s: give it more time"),
        (-5.0, {}, "0 s from now"),
        (HOUR, {"leave_closed_seconds": 60.0}, "must be at least TENUTO_LEAVE_SAVE_SECONDS"),
        (1e12, {}, "must be a time in seconds since 1970"),
        (float("nan"), {}, "must be a time in seconds since 1970"),
        (float("inf"), {}, "must be a time in seconds since 1970"),
    ],
)
def test_an_end_that_leaves_no_time_for_work_is_refused(seconds: float, changes: dict[str, float], said: str) -> None:
    with pytest.raises(BadEnd, match=said):
        make(ManualClock(), seconds, **changes)


async def test_an_agent_ends_when_its_work_is_on_record_and_its_step_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    departure, allocations = make(ManualClock()), ["1-1-1"]
    over = asyncio.create_task(departure.over(lambda: tuple(allocations)))
    departure.announce("now")
    for _ in range(5):
        departure.heard("now")
        await asyncio.sleep(0)
    assert not over.done(), "its workers have not left"
    allocations.clear()
    await over


async def test_an_agent_without_answers_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    clock = ManualClock()
    departure = make(clock)
    over = asyncio.create_task(departure.over(lambda: ("1-1-1",)))
    departure.announce("now", 20.0)
    departure.announce("now", 90.0)
    clock.advance(19.0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not over.done()
    clock.advance(1.0)
    await over


async def test_a_step_is_announced_at_once() -> None:
    departure = make(ManualClock())
    waiting = asyncio.create_task(departure.pause(HOUR, ""))
    await asyncio.sleep(0)
    departure.announce("now")
    await asyncio.wait_for(waiting, SECONDS_MAX)
    await asyncio.wait_for(departure.pause(HOUR, ""), SECONDS_MAX)


def test_the_launcher_records_what_an_agent_announces_and_that_it_went() -> None:
    launcher = Launcher()
    launcher.join()
    launcher.grant()
    launcher.started()
    assert only(launcher.join(has=("1-1-1",), leaving="now"), AgentJoined).leaving == "now"
    assert launcher.join(has=("1-1-1",), leaving="now") == []
    gone = launcher.join(leaving="now", gone=True)
    assert [type(data) for data in gone] == [AgentLost, WorkersExited]
    assert gone[0].announced  # type: ignore[attr-defined]
    assert launcher.join(leaving="now", gone=True) == [], "it does not join again"


@pytest.mark.parametrize(
    ("leaving", "works", "announced"),
    [("", False, False), ("soon", True, False), ("soon", False, True), ("now", True, True), ("now", False, True)],
)
def test_an_agent_whose_end_is_on_record_has_announced_it_though_its_last_word_is_lost(
    leaving: Leaving, works: bool, announced: bool
) -> None:
    launcher = Launcher()
    launcher.join()
    if works:
        launcher.grant()
        launcher.started()
    launcher.join(has=("1-1-1",) if works else (), leaving=leaving)
    lost = launcher.command(ExpireLease, "a", "no heartbeat for 10 s")[0]
    assert isinstance(lost, AgentLost)
    assert (lost.reason, lost.announced) == ("no heartbeat for 10 s", announced)


def test_nothing_begins_on_an_agent_that_leaves_and_what_runs_goes_on_elsewhere() -> None:
    driver = Driver()
    driver.feed(joined("a", 2), submitted(1), *requested(1, 1))
    assert short(driver.feed(joined("a", 2, leaving="soon"), *requested(1, 2))) == []
    [preempted] = driver.feed(joined("a", 2, leaving="now"))
    assert isinstance(preempted, AllocationPreempted)
    assert preempted.reason.rule == "agent_leaves"
    assert form_of(preempted.TYPE, "agent_leaves", 6) is AgentLeaves
    said = AgentLeaves(agent="a").sentence({"trial_id": "1-1", "experiment_id": 1})
    assert said == "The time of agent a ends; what runs there saves a checkpoint and goes on elsewhere."
    assert short(driver.feed(exited("1-1-1", "preempted"))) == ["-1-1-1"]
    assert short(driver.feed(joined("b", 2))) == ["+1-1-2 b:0", "+1-2-1 b:1"]


def test_an_agent_that_comes_back_with_more_time_is_used_again() -> None:
    driver = Driver()
    driver.feed(joined("a", 1, leaving="now"), submitted(1), *requested(1, 1))
    assert short(driver.feed(joined("a", 1))) == ["+1-1-1 a:0"]
