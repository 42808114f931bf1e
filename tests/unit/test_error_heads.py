"""A message of 100,000 characters floods no list, and its beginning and its traceback are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tenuto.cli.experiment_story import Story
from tenuto.cli.follow import _line
from tenuto.cli.output import HEAD_CHARACTERS_MAX, cut
from tenuto.workers.endings import ERROR_CHARACTERS_MAX
from tenuto.workers.errors import describe

LONG = "model_def.py:3: ValueError: " + "x" * 100_000


def test_the_first_line_leaves_room_for_the_traceback() -> None:
    try:
        raise ValueError("the shapes differ: " + "x" * 100_000)
    except ValueError as error:
        text = describe(error, Path(__file__).parent)
    head, _, rest = text.partition("\n")
    assert head.startswith("test_error_heads.py:")
    assert "ValueError: the shapes differ: xxx" in head
    assert head.endswith("characters more)")
    assert len(head) < ERROR_CHARACTERS_MAX / 4
    assert rest
    assert len(text) <= ERROR_CHARACTERS_MAX


def test_a_line_of_what_happens_has_the_beginning_of_an_error() -> None:
    event: dict[str, Any] = {
        "type": "TrialFailed",
        "time_us": 0,
        "data": {"trial_id": "1-1", "failures": 1, "error": f"{LONG}\n\nTraceback"},
    }
    line = _line(Story(1), event)
    assert "trial 1-1: failed (1): model_def.py:3: ValueError: xxx" in line
    assert len(line) < HEAD_CHARACTERS_MAX + 100


def test_an_error_in_full_has_no_line_that_is_too_long() -> None:
    shown = cut(f"{LONG}\n\nTraceback\n  {LONG}\nlast").splitlines()
    assert [len(line) <= HEAD_CHARACTERS_MAX + 3 for line in shown] == [True] * 5
    assert (shown[2], shown[-1]) == ("Traceback", "last")
