"""The site of the documents: `make docs` builds it with Sphinx, and any link that leads nowhere is an error.

Its pages are the Markdown files of the repository as they stand, so that they read the same on a code host. The table of
contents, which a site needs beside them, is made of the links in docs/README.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tenuto

ROOT = Path(__file__).resolve().parents[1]
project, author, release = "Tenuto", "the authors of Tenuto", tenuto.__version__
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = [
    "*.md",
    *(f"{folder}/{below}*.md" for folder in ("contributing", "deploy", "docs", "examples") for below in ("", "**/")),
]
exclude_patterns = ["**/node_modules"]
html_theme = "furo"
html_title = f"Tenuto {release}"
html_copy_source = False
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # shown output and shortened files are no programs

INDEX = "docs/README"
LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
OTHERS = {"Decisions": "docs/decisions", "Contributing": "contributing", "Figures": "docs/benchmarks"}
"""Captions of folders all of whose pages the table of contents lists beside what the index links."""


def _contents(text: str) -> str:
    """Tables of contents, one for each section of the index, with the pages that it links."""
    listed: set[str] = set()
    made = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        caption = section.splitlines()[0]
        pages = [_page(INDEX, target) for _, target, _ in LINK.findall(section)]
        made.append(_tree(caption, [page for page in dict.fromkeys(pages) if page and page not in (*listed, root_doc)]))
        listed.update(filter(None, pages))
    for caption, folder in OTHERS.items():
        pages = [path.relative_to(ROOT).with_suffix("").as_posix() for path in sorted((ROOT / folder).glob("*.md"))]
        made.append(_tree(caption, [page for page in pages if page not in listed]))
        listed.update(pages)
    rest = [path.relative_to(ROOT).with_suffix("").as_posix() for pattern in include_patterns for path in ROOT.glob(pattern)]
    left = sorted({page for page in rest if page not in listed and page not in (root_doc, INDEX) and "node_modules" not in page})
    return "\n".join([*made, _tree("More", left)])


def _page(document: str, target: str) -> str:
    """The page that a link of `document` leads to; empty where that is no page."""
    path = (ROOT / document).parent.joinpath(target).resolve()
    path = path / "README.md" if path.is_dir() else path
    return path.relative_to(ROOT).with_suffix("").as_posix() if path.suffix == ".md" and path.is_file() else ""


def _tree(caption: str, pages: list[str]) -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *(f"/{page}" for page in pages), "```", ""])


def _source_read(app: Any, document: str, source: list[str]) -> None:
    source[0] = LINK.sub(lambda found: _link(document, *found.groups()), source[0])
    if document == root_doc:
        source[0] += _tree("", [INDEX]) + _contents((ROOT / f"{INDEX}.md").read_text())


def _link(document: str, text: str, target: str, anchor: str | None) -> str:
    """A link to a folder leads to its README; where it has none, the name alone stays."""
    path = (ROOT / document).parent.joinpath(target)
    if not path.is_dir():
        return f"[{text}]({target}{anchor or ''})"
    return f"[{text}]({target.rstrip('/')}/README.md)" if (path / "README.md").is_file() else text


def setup(app: Any) -> None:
    app.connect("source-read", _source_read)
