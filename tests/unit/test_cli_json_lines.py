"""What programs get of the command line: JSON on request, of errors too, and a status that tells a wrong command line from a
failure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from tenuto.cli import json_lines, main, say

AWAY = "http://127.0.0.1:9"
"""Nothing listens there: the port of a service that no machine runs any more."""


@pytest.fixture(autouse=True)
def as_people_have_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(say, "as_json_lines", False)
    monkeypatch.setenv("TENUTO_TOKEN", "x")
    before = json_lines.UsageProblem.exit_code
    yield
    json_lines.UsageProblem.exit_code = before


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tenuto", "--url", AWAY, *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


def leaves(command: Any, name: str = "tenuto") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
    for word, item in (below or {}).items():
        yield from leaves(item, f"{name} {word}")


def test_every_command_knows_json() -> None:
    command = typer.main.get_command(main.app)
    json_lines.add_to(command)
    found = dict(leaves(command))
    assert len(found) > 140
    assert [name for name, item in found.items() if sum("--json" in option.opts for option in item.params) != 1] == []


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("exp", "pause", "3"), 1, "cannot be reached"),
        (("exp", "ls"), 1, "cannot be reached"),
        (("exp", "pause", "x"), 64, "is not the id of an experiment"),
        (("exp", "pauze", "3"), 64, "No such command 'pauze'"),
        (("exp", "pause"), 64, "Missing argument"),
        (("exp", "wait", "3", "--timout", "5"), 64, "No such option"),
        (("exp", "set", "3"), 64, "Nothing to change"),
        (("job", "move", "3"), 64, "Give either"),
    ],
)
def test_an_error_is_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, told: str
) -> None:
    assert run(monkeypatch, *words, "--json") == status
    printed = capsys.readouterr()
    assert printed.out == ""
    error = json.loads(printed.err)["error"]
    assert told in error["message"]
    assert error["exit_code"] == status
    assert run(monkeypatch, *words) == status, "for people, too"
    said = capsys.readouterr().err
    assert told.split()[-1].strip("'") in said
    assert not said.startswith("{")


def test_sentences_are_lines_of_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(say, "as_json_lines", True)
    say.say("Experiment", 3, "is \x1b[2J changed.")
    say.say("aside", file=sys.stderr)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"message": "Experiment 3 is \x1b[2J changed."}
    assert "\x1b" not in printed.out
    assert printed.err == "aside\n"


def test_a_shell_completes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"_TENUTO_COMPLETE": "complete_bash", "COMP_WORDS": "tenuto exp pa", "COMP_CWORD": "2"}.items():
        monkeypatch.setenv(name, value)
    assert run(monkeypatch) == 0
    assert capsys.readouterr().out.split() == ["pareto", "pause"]
