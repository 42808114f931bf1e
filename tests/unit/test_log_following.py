"""`logs --follow` of a run whose last lines come after its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tenuto.cli import logs
from tenuto.client.blocking.client import Client


class Rest:
    """A log that has more lines at each look. `looks`: how many lines there are then; afterwards as at the last."""

    def __init__(self, *looks: int) -> None:
        self.looks, self.asked = looks, 0

    def pages(self, path: str, *, after: int, **query: Any) -> Iterator[list[dict[str, Any]]]:
        count = self.looks[min(self.asked, len(self.looks) - 1)]
        self.asked += 1
        yield [
            {"line": number, "time_us": 0, "trial_id": "1-1", "rank": 0, "stream": "stdout", "text": f"line {number}"}
            for number in range(after + 1, count + 1)
        ]


def printed(rest: Rest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    monkeypatch.setattr(logs.time, "sleep", lambda seconds: None)
    logs.show_logs(cast(Client, rest), "/trials/1-1/logs", json=False, **options)
    return [line.rpartition("] ")[2] for line in capsys.readouterr().out.splitlines()]


def test_lines_that_come_after_the_end_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rest = Rest(1, 1, 1, 2, 2, 2, 2, 3, 3)
    assert printed(rest, monkeypatch, capsys, follow=True, ended=lambda: rest.asked > 0) == ["line 1", "line 2", "line 3"]


def test_it_ends_when_an_ended_run_says_no_more(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rest = Rest(1)
    assert printed(rest, monkeypatch, capsys, follow=True, ended=lambda: True) == ["line 1"]
    assert rest.asked == 1 + logs.LATE_LOOKS


def test_without_following_there_is_one_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rest = Rest(1)
    assert printed(rest, monkeypatch, capsys, follow=False, ended=lambda: False) == ["line 1"]
    assert rest.asked == 1
