"""Docstrings say first what a thing is, and in the words of contributing/words.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "services", "src/tenuto", "workers")
NOT_FIRST = {
    "about", "above", "after", "against", "among", "around", "as", "at", "before", "behind", "below", "beneath",
    "beside", "between", "beyond", "but", "by", "for", "from", "how", "in", "inside", "into", "it", "of", "off", "on",
    "onto", "out", "over", "since", "those", "through", "to", "under", "until", "upon", "what", "when", "where",
    "whether", "which", "who", "whom", "whose", "why", "with", "within", "without",
}  # fmt: skip
"""A sentence that begins so says something about a thing before it says what the thing is."""
FORBIDDEN = re.compile(r"\b(?:nobody|somebody|whoever|whomever|manieth|(?:is|are|was|were) away)\b", re.IGNORECASE)
"""Words that stand for a person or a state that has a name: users, owners, callers; unreachable, disconnected, gone."""


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(parent.is_symlink() for parent in (path, *path.parents)) and "_pb2" not in path.name:
                yield path


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Of modules, classes and functions, and those below fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, item in zip([None, *body], body, strict=False):
            text = item.value.value if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) else None
            if isinstance(text, str) and (documented if before is None else isinstance(before, ast.Assign | ast.AnnAssign)):
                yield text


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def faults(source: str) -> list[str]:
    found, texts = [], list(docstrings(ast.parse(source)))
    for text in texts:
        first = re.match(r"\W*(\w+)", text)
        if first is not None and first[1].lower() in NOT_FIRST:
            found.append(f"begins with {first[1]!r}: {text.strip().splitlines()[0]}")
    for text in (*texts, *comments(source)):
        found.extend(f"says {word!r}: {' '.join(text.split())[:100]}" for word in FORBIDDEN.findall(text))
    return found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""What is kept."""', 1),
        ('"""Files that are kept."""', 0),
        ('class A:\n    x: int\n    """Of the last run."""', 1),
        ('class A:\n    x: int\n    """`seconds` of the last run."""', 0),
        ('def f():\n    """Whether it holds."""', 1),
        ("# nobody reads it", 1),
        ("def f():\n    # the bus is away\n    pass", 1),
        ("f('What is this?')", 0),
    ],
)
def test_faults_are_found(source: str, count: int) -> None:
    assert len(faults(source)) == count


def test_docstrings_name_their_subject_first() -> None:
    wrong = [f"{path.relative_to(ROOT)}: {fault}" for path in files() for fault in faults(path.read_text())]
    assert not wrong, f"{len(wrong)} sentences, see contributing/words.md:\n" + "\n".join(wrong[:50])
