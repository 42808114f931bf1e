"""The pages on how Tenuto is built name files that exist, and stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "docs/scheduler-passes.md", *sorted((ROOT / "contributing").glob("*.md")), *DECISIONS]
ARCHITECTURE_WORDS_MAX = 1_500
DECISION_WORDS_MAX = 500
"""One printed page."""
TOP = ("benchmarks/", "deploy/", "docs/", "examples/", "kernel/", "page/", "schemas/", "services/", "src/", "tests/", "workers/")
"""Beginnings of whole paths; other paths on these pages are relative to the service or package that their text is about."""


def named_files(text: str) -> set[str]:
    found = re.findall(r"`([\w./-]+\.(?:py|sql|json|toml|md))`", text)
    return {f"src/tenuto/{path}" if path.startswith("kernel/") else path for path in found if path.startswith(TOP)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_it_names_exist(page: Path) -> None:
    written_as_a_pattern = {path for path in named_files(page.read_text()) if re.search(r"NAME|Name\.v1", path)}
    assert [path for path in sorted(named_files(page.read_text()) - written_as_a_pattern) if not (ROOT / path).exists()] == []


def test_the_architecture_is_read_in_ten_minutes() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= ARCHITECTURE_WORDS_MAX


def test_decisions_are_numbered_and_listed() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (ROOT / "docs/decisions/README.md").read_text(), re.MULTILINE)
    titles = [path.read_text().splitlines()[0].removeprefix("# ") for path in DECISIONS]
    assert [f"{number}. {title}" for number, title, _ in listed] == titles
    assert [name for _, _, name in listed] == [path.name for path in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_its_context_and_what_follows(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) <= DECISION_WORDS_MAX
