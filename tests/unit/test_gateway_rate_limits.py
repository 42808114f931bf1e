"""Requests of one sender keep to their rate, whatever the others do, and those who keep to it are never refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.services.gateway.http.rate_limits import Pace, StandingPace

PAUSES = st.lists(st.floats(0, 3), min_size=1, max_size=200)


@given(rate=st.floats(0.1, 50), burst_seconds=st.floats(0, 5), pauses=PAUSES)
def test_no_more_come_through_than_the_rate_and_the_burst(rate: float, burst_seconds: float, pauses: list[float]) -> None:
    pace, now, taken = Pace(rate, burst_seconds), 0.0, []
    for pause in pauses:
        now += pause
        if pace.take("eve", now) == 0.0:
            taken.append(now)
    for first, begun in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= rate * (taken[last] - begun) + max(rate * burst_seconds, 1) + 1e-6


@given(rate=st.floats(0.1, 50), pauses=PAUSES)
def test_who_keeps_to_the_rate_is_never_refused(rate: float, pauses: list[float]) -> None:
    pace, now = Pace(rate, burst_seconds=0), 0.0
    for pause in pauses:
        now += max(pause, 1 / rate)
        assert pace.take("ada", now) == 0.0


@given(rate=st.floats(0.1, 50), burst_seconds=st.floats(0, 5))
def test_who_waits_as_told_is_answered_and_others_need_not_wait(rate: float, burst_seconds: float) -> None:
    pace = Pace(rate, burst_seconds)
    for _ in range(1_000):
        if wait := pace.take("eve", 7.0):
            break
    assert wait > 0
    assert pace.take("ada", 7.0) == 0.0
    assert pace.take("eve", 7.0 + wait * 0.5) > 0
    assert pace.take("eve", 7.0 + wait + 1e-6) == 0.0


def test_senders_are_forgotten_and_the_busiest_last() -> None:
    pace = Pace(1.0, burst_seconds=5, senders_max=10)
    for _ in range(5):
        pace.take("eve", 0.0)
    for number in range(100):
        pace.take(f"somebody {number}", 0.5)
        assert len(pace) <= 10
    assert pace.take("eve", 0.5) > 0, "who fills the memory does not get a new start for somebody else"


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_no_limit(rate: float) -> None:
    pace = Pace(rate)
    assert not any(pace.take("ada", 0.0) for _ in range(1_000))


def test_a_stranger_uses_up_neither_an_agents_questions_nor_more_than_its_address_has() -> None:
    pace = StandingPace()
    assert sum(not pace.take("192.0.2.1", "node", 0.0) for _ in range(100)) == 20
    assert pace.take("192.0.2.1", "node", 0.0) > 0
    assert pace.take("192.0.2.2", "node", 0.0) == 0.0
    assert sum(not pace.take("192.0.2.1", f"guess-{number}", 0.0) for number in range(1_000)) < 200
    assert pace.take("192.0.2.1", "node", 60.0) == 0.0
