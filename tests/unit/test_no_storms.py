"""Whatever goes wrong on the road of reports, all of them are recorded once, in order, and the messages sent for that stay
bounded by a constant for each report, each loss and each start of the agent. Time and a slow or stopped receiver cost nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenuto.workers.agent import lane_decisions
from tenuto.workers.agent.lane_decisions import (
    DELAY_TARGET_SECONDS,
    WAY_REPORTS,
    WINDOW_FIRST,
    WINDOW_MAX,
    WINDOW_MIN,
    WINDOW_SLOW,
)
from tests.support.report_road import BATCH_MAX, Faults, Road

SECONDS_MAX = 100_000.0

rare = st.sampled_from([0.0, 0.0, 0.01, 0.1])
often = st.sampled_from([0.0, 0.0, 0.05, 0.3])
faults = st.builds(
    Faults,
    publish_lost=rare,
    answer_lost=rare,
    message_lost=rare,
    delivered_twice=often,
    word_lost=often,
    word_twice=often,
    word_delay_seconds=st.sampled_from([0.0, 0.1, 3.0]),
    commit_seconds=st.sampled_from([0.001, 0.05, 1.0, 10.0]),
)
blows = st.lists(
    st.tuples(
        st.floats(min_value=0.0, max_value=60.0),
        st.sampled_from(["stop the receiver", "kill the receiver", "kill the agent", "wipe the stream"]),
    ),
    max_size=6,
)


def checked(road: Road) -> Road:
    road.run(SECONDS_MAX)
    assert road.recorded == list(range(1, road.total + 1)), "not each report once, in order"
    return road


def bound(road: Road) -> int:
    """For each report: itself, and twice in vain, as a window that grew by one commit is sent in vain once and halved."""
    counts = road.counts
    return (
        3 * road.total
        + counts.agent_starts * (2 * WINDOW_FIRST + WINDOW_MAX)
        + counts.losses * WINDOW_MIN
        + counts.failed_batches * (BATCH_MAX + WINDOW_MIN)
    )


def strike(road: Road, at: float, what: str) -> None:
    actions: dict[str, Any] = {
        "stop the receiver": lambda: road.stop_receiver(30.0),
        "kill the receiver": road.kill_receiver,
        "kill the agent": road.start_agent,
        "wipe the stream": road.wipe,
    }
    road.after(at, actions[what])


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    total=st.integers(1, 700),
    report_seconds=st.sampled_from([0.0, 0.001, 0.05]),
    faults=faults,
    blows=blows,
)
def test_everything_arrives_and_little_is_sent_in_vain(
    seed: int, total: int, report_seconds: float, faults: Faults, blows: list[tuple[float, str]]
) -> None:
    road = Road(seed, total, report_seconds, faults)
    for at, what in blows:
        strike(road, at, what)
    checked(road)
    assert road.counts.published <= bound(road)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    commit_seconds=st.floats(0.001, 20.0),
    stops=st.lists(st.floats(0.0, 60.0), max_size=4),
    twice=often,
    delay=st.sampled_from([0.0, 0.5, 5.0]),
)
def test_without_a_loss_each_report_is_sent_once(
    seed: int, commit_seconds: float, stops: list[float], twice: float, delay: float
) -> None:
    """However slow the receiver is, however often it stops for 30 s, whatever words come twice or late or never."""
    faults = Faults(
        delivered_twice=twice, word_twice=twice, word_lost=twice, word_delay_seconds=delay, commit_seconds=commit_seconds
    )
    road = Road(seed, 500, 0.001, faults)
    for at in stops:
        road.after(at, lambda: road.stop_receiver(30.0))
    checked(road)
    assert road.counts.published == road.counts.stored == 500


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_stream_that_loses_every_third_message_costs_a_constant_factor(seed: int) -> None:
    road = checked(Road(seed, 500, 0.0, Faults(message_lost=0.33)))
    assert road.counts.published <= bound(road)


@settings(max_examples=50, deadline=None)
@given(per_second=st.floats(10.0, 20_000.0), way_seconds=st.sampled_from([0.0, 0.001, 0.05, 0.5, 2.0]))
@example(per_second=2001.0, way_seconds=2.0)
def test_so_much_is_on_the_road_as_is_committed_in_a_tenth_of_a_second(per_second: float, way_seconds: float) -> None:
    """A trial has always something to send: what another trial reports waits behind no more than that. A receiver that is fast
    enough is kept busy all the same, however long the way to it takes."""
    state, now = lane_decisions.begin(1, 0, 0.0), 0.0
    windows: list[int] = []
    # Where the way takes much longer than the target, one commit brings a window that is too large only some percent nearer.
    while now < 40.0 or len(windows) < 120:
        state, step = lane_decisions.next_step(state, 10**9, now, 10**6)
        assert step.do == "publish"
        state = lane_decisions.published(state, state.sent + step.limit, True, now)
        now += way_seconds + state.out / per_second
        state = lane_decisions.told(state, state.sent, False, state.round, now)
        windows.append(state.window)
    fits, largest = per_second * DELAY_TARGET_SECONDS, max(windows[-20:])
    assert largest <= max(WINDOW_SLOW, 1.05 * fits + WAY_REPORTS + 2)
    assert largest >= min(WINDOW_MAX, max(WINDOW_SLOW, fits * 0.9 - 2))


def test_a_way_that_takes_longer_of_a_sudden_keeps_the_road_full() -> None:
    """As on a machine that became busy: a window for the short way would be committed WINDOW_SLOW reports at a time."""
    state, now = lane_decisions.begin(1, 0, 0.0), 0.0
    while now < 60.0:
        state, step = lane_decisions.next_step(state, 10**9, now, 10**6)
        state = lane_decisions.published(state, state.sent + step.limit, True, now)
        now += (0.01 if now < 20.0 else 1.0) + state.out / 4_000
        state = lane_decisions.told(state, state.sent, False, state.round, now)
    assert state.window >= 360
