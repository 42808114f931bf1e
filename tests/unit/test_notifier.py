"""Notices of model code: bounded in size and rate, and sent by the process that reports for the trial only."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.schemas.base import Model
from tenuto.schemas.reports import TRACKER_REPORT, NoticeReport
from tenuto.workers.errors import UserError
from tenuto.workers.harness import notifier
from tenuto.workers.harness.notifier import NOTICES_BURST_MAX, Notifier


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[Model] = []
        self.lines: list[str] = []
        assignment = cast(Any, SimpleNamespace(trial_id="1-1", allocation_id="1-1-1"))
        notifier.install(Notifier(assignment, self.reports.append, self.lines.append, lambda: self.now))


@pytest.fixture
def world() -> Iterator[World]:
    yield World()
    notifier.install(None)


def test_outside_a_trial_nothing_is_sent() -> None:
    assert notifier.notify("hello") is False


def test_a_notice_is_a_report_that_the_tracker_reads(world: World) -> None:
    assert notifier.notify("  nul \0 and half \udc80, " + "x" * 5_000, "warning")
    [report] = world.reports
    assert TRACKER_REPORT.validate_json(report.to_json()) == report
    assert isinstance(report, NoticeReport)
    assert (report.level, len(report.text)) == ("warning", 1_000)
    assert report.text.startswith("nul \ufffd and half \ufffd, x")


def test_more_than_people_read_is_left_out_and_said(world: World) -> None:
    taken = [notifier.notify(f"step {step}") for step in range(100)]
    assert taken == [True] * int(NOTICES_BURST_MAX) + [False] * (100 - int(NOTICES_BURST_MAX))
    [line] = world.lines
    assert line == (
        "warning: notices are left out, because there are more than 20 at once and then 6 a minute; notify only of what a person "
        "should look at."
    )
    world.now += 10
    assert [notifier.notify("later"), notifier.notify("too soon")] == [True, False]
    assert world.lines[1] == "80 notices were left out."
    assert len(world.reports) == NOTICES_BURST_MAX + 1


@pytest.mark.parametrize(("text", "level"), [("", "info"), (" \n", "info"), (None, "info"), ("x", "fatal"), ("x", None)])
def test_a_wrong_notice(world: World, text: Any, level: Any) -> None:
    with pytest.raises(UserError, match=r"^notify\("):
        notifier.notify(text, level)
    assert world.reports == []


def test_a_helper_process_sends_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert notifier.notify("from a data loader") is False
    assert world.reports == []
