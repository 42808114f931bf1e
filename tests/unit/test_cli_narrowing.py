"""A call builds the one command that it needs, and says the same as if all had been built."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.cli.narrowing import first_command, narrowed

NAMES = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exp", "ls"], "exp"),
        (["--url", "http://a", "exp", "ls"], "exp"),
        (["--url=http://a", "--data-dir", "x", "status"], "status"),
        (["--help"], ""),
        (["--help", "exp"], ""),
        (["--version"], ""),
        (["--url"], ""),
        ([], ""),
    ],
)
def test_the_first_command_is_found_behind_options(words: list[str], expected: str) -> None:
    assert first_command(words) == expected


@pytest.mark.parametrize("name", NAMES)
def test_one_command_is_built_and_its_help_is_the_same(name: str) -> None:
    part = narrowed(app, [name])
    assert list(typer.main.get_command(part).commands) == [name]  # type: ignore[attr-defined]
    runner = CliRunner()
    assert runner.invoke(part, [name, "--help"]).output == runner.invoke(app, [name, "--help"]).output


@pytest.mark.parametrize("words", [[], ["--help"], ["exq", "ls"]])
def test_all_are_there_for_what_concerns_all(words: list[str]) -> None:
    assert narrowed(app, words) is app
