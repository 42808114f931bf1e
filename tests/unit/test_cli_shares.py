"""`share set` and `pool set`: only what is named is sent, so that all else stays."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli import jobs

sent: list[tuple[str, dict[str, Any]]] = []


class Rest:
    def put(self, path: str, body: dict[str, Any]) -> None:
        sent.append((path, body))


def run(app: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, str]:
    """The request sent, None if none, and the output."""
    sent.clear()
    monkeypatch.setattr(jobs, "client", lambda _: Rest())
    result = CliRunner().invoke(app, words)
    return (sent[0] if sent else None), str(result.exception or "") if result.exit_code else result.output.strip()


@pytest.mark.parametrize(
    ("words", "body", "said"),
    [
        (["--weight", "2"], {"weight": 2.0}, "User ada has weight 2 from now on."),
        (["--max-slots", "1"], {"max_slots": 1}, "User ada has at most 1 slot from now on."),
        (
            ["--weight", "2", "--max-slots", "8"],
            {"weight": 2.0, "max_slots": 8},
            "User ada has weight 2 and at most 8 slots from now on.",
        ),
        (["--no-max-slots"], {"max_slots": None}, "User ada has no limit of slots from now on."),
        ([], None, "Nothing to change: give --weight, --max-slots or --no-max-slots."),
        (["--max-slots", "8", "--no-max-slots"], None, "Give either --max-slots or --no-max-slots."),
    ],
)
def test_share_set_names_what_changes(monkeypatch: pytest.MonkeyPatch, words: list[str], body: Any, said: str) -> None:
    found, text = run(jobs.share_app, monkeypatch, "set", "user", "ada", *words)
    assert (found, text) == (("/shares/user/ada", body) if body is not None else None, said)


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], {"policy": "fair_share"}),
        (["--half-life-hours", "24"], {"policy": "fair_share", "usage_half_life_hours": 24.0}),
        (["--no-half-life"], {"policy": "fair_share", "usage_half_life_hours": None}),
    ],
)
def test_pool_set_names_what_changes(monkeypatch: pytest.MonkeyPatch, words: list[str], body: Any) -> None:
    assert run(jobs.pool_app, monkeypatch, "set", "default", "fair_share", *words)[0] == ("/pools/default", body)


def test_a_half_life_is_set_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = run(jobs.pool_app, monkeypatch, "set", "default", "fifo", "--no-half-life", "--half-life-hours", "2")
    assert (found, said) == (None, "Give either --half-life-hours or --no-half-life.")
