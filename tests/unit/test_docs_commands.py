"""Each command that the documents show is there, with the options that they give it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tenuto.cli.main import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/benchmarks/*.md", "deploy/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # which also tells of what was there once
)


def commands(text: str) -> Iterator[str]:
    yield from re.findall(r"`tenuto ([^`\n]+)`", text)
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if found := re.match(r"\s{0,4}(?:\$ )?tenuto (.*)", line):
                yield re.split(r"\s#|\s\s\s|[|<>]|&&", found[1])[0]


@cache
def command_line() -> Any:
    """Made once: `typer` takes longer for it than all documents take to read."""
    return typer.main.get_command(app)


def problem(words: Sequence[str]) -> str:
    node = command_line()
    rest = list(words)
    while hasattr(node, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in node.commands:
            return f"there is no {rest[0]!r}"
        node = node.commands[rest.pop(0)]
    if hasattr(node, "commands"):
        return ""
    known = {"--help", "-h", *(name for item in node.params for name in (*item.opts, *item.secondary_opts))}
    for word in rest:
        name = word.strip("[].,;:)").partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", name) and name not in known:
            return f"there is no option {name}"
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documented_commands_are_there(path: Path) -> None:
    wrong = {line: why for line in commands(path.read_text()) if (why := problem(line.split()))}
    assert wrong == {}


def test_what_the_product_recommends_is_there() -> None:
    """Sentences of errors and notices, and what people read in docstrings."""
    wrong: dict[str, str] = {}
    for top in ("schemas", "services", "workers", "src/tenuto"):
        for path in sorted((ROOT / top).rglob("*.py")):
            # A sentence may go on in the next line of the source: then the rest of it is not there to be judged.
            for line in re.findall(r"`tenuto ((?:[a-z-]+ ?)+)[^`\n]*(?:`|$)", path.read_text(), re.MULTILINE):
                if why := problem(line.split()):
                    wrong[f"{path.relative_to(ROOT)}: tenuto {line}"] = why
    assert wrong == {}


def test_what_is_not_there_is_found() -> None:
    assert len([line for path in DOCUMENTS for line in commands(path.read_text())]) > 100
    assert problem(["exp", "creat", "x"]) == "there is no 'creat'"
    assert problem(["exp", "create", "x", "--folow"]) == "there is no option --folow"
    assert problem(["exp", "create", "x", "--follow"]) == ""
