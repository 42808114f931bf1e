"""Text written by others is shown by the terminal, and never obeyed as control sequences."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tenuto.cli.output import console, table
from tenuto.cli.say import json_text, say

CLI = Path(__file__).parents[2] / "src" / "tenuto" / "cli"
EVIL = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\rc[red]d[/]"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x9b31m\u202eb\rc[red]d[/]"


def test_control_characters_are_shown_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{EVIL}\tx\n")
    assert capsys.readouterr().out == f"{SHOWN}\tx\n\n"


def test_tables_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(table(EVIL, (EVIL,), [(EVIL,)]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert shown.count("[red]d[/]") == 3
    assert shown.count(r"\x1b[2J") == 3


def test_json_keeps_its_meaning() -> None:
    text = json_text({EVIL: [EVIL, "é"]}, indent=2)
    assert json.loads(text) == {EVIL: [EVIL, "é"]}
    assert "\x9b" not in text
    assert "é" in text
    assert "\x7f" not in json_text(["a\x7fb"])
    assert json.loads(json_text(["a\x7fb"])) == ["a\x7fb"]


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_every_command_prints_by_these(path: Path) -> None:
    """`print` only where what is printed was made safe by `say.py`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and path.name != "say.py":
            source = ast.unparse(node)
            assert "json_text" in source or "safe_json" in source, f"{path.name}:{node.lineno}: {source}"
