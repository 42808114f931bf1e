"""Waits that grow, and warnings that are said seldom."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.backoff import SAY_SECONDS_MAX, Backoff, Seldom
from tenuto.kernel.reactions import wait_seconds


@given(st.integers(min_value=0, max_value=10**6), st.floats(0.01, 10), st.floats(10, 1000))
def test_waits_grow_up_to_their_bound(failures: int, first: float, longest: float) -> None:
    assert first <= wait_seconds(failures, first, longest) <= wait_seconds(failures + 1, first, longest) <= longest


def test_what_worked_begins_again() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.worked()
    assert backoff.failed() == 0.5


def test_the_same_warning_is_said_seldom_and_a_new_one_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    seldom = Seldom(logging.getLogger("test"), lambda: now)
    for second in range(3600):
        now = float(second)
        seldom.warn("the disk is full")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) <= 7 + 3600 / SAY_SECONDS_MAX
    assert said[0] == "the disk is full"
    assert said[-1].startswith("the disk is full (and ")
    seldom.warn("the disk is gone")
    assert caplog.records[-1].getMessage() == "the disk is gone"
    seldom.over("the disk is back")
    seldom.over("the disk is back")
    assert [record.getMessage() for record in caplog.records[-2:]] == ["the disk is gone", "the disk is back"]
    seldom.warn("the disk is gone")
    assert caplog.records[-1].getMessage() == "the disk is gone"
