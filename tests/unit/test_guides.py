"""Things named in README and the guides exist: links, commands, configurations."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from tenuto.cli.main import app
from tenuto.schemas.config.reading import parse_config

ROOT = Path(__file__).parents[2]
FOUND = (path for place in ("*.md", "contributing/*.md", "docs/**/*.md") for path in sorted(ROOT.glob(place)))
GUIDES = [path for path in FOUND if path.parent.name != "reference"]
"""Documents written by hand; those in docs/reference are generated from the code."""
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Names under which a code host and the site know the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in headings}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(guide: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", guide.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = guide.parent / target if target else guide
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.resolve()), f"{target}#{anchor}"


def test_the_commands_of_the_readme_exist() -> None:
    lines = [line.split("#")[0].split() for block in blocks(README, "") for line in block.splitlines()]
    commands = [line[1:] for line in lines if line[:1] == ["tenuto"]]
    assert len(commands) >= 7
    for words in commands:
        command = get_command(app)
        while (nested := getattr(command, "commands", None)) is not None:
            command = nested[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, words


def test_the_example_of_the_readme_is_a_trial_and_a_configuration() -> None:
    [code] = blocks(README, "python")
    [config] = blocks(README, "yaml")
    compile(code, "README.md", "exec")
    assert parse_config(config).entrypoint == "model_def:MyTrial"
    assert "class MyTrial" in code


def test_every_guide_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [path.name for path in sorted(ROOT.glob("docs/*.md")) if path.name != "README.md" and f"({path.name})" not in index]
    assert not missing


def test_the_glossary_has_the_words_of_the_code() -> None:
    """Nouns that contributing/words.md names, and each of them once."""
    glossary = (ROOT / "docs" / "glossary.md").read_text().partition("## Words with several meanings")[0]
    nouns = re.findall(r"^\| ([a-z -]+?)(?: \([a-z ]+\))? \| [A-Z]", glossary, re.MULTILINE)
    listed = re.findall(r"gives it: ([a-z, ]+)\.", (ROOT / "contributing" / "words.md").read_text())
    assert len(nouns) == len(set(nouns)) >= 40
    assert set(listed[0].split(", ")) <= set(nouns)
