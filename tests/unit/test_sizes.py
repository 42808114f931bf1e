"""Files and functions stay short enough to be read at once; a longer one says why, in a sentence that begins "Long, because", or
"Deep, because" where only its nesting is over the bound.

Lines alone can be flattered by wrapping less, so statements and nesting have bounds of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "services", "workers", "src/tenuto")
OTHERS = ("tests", "benchmarks", "docs", "examples")
FILE_LINES_MAX = 350
REASON, REASON_OF_DEPTH = "Long, because", "Deep, because"


class Bounds(NamedTuple):
    """Bounds of a function."""

    lines: int = 73
    statements: int = 45
    """With those inside others; a function or class inside counts as one, and is judged by itself."""
    nesting: int = 4
    """Levels of if, for, while, with, try and match; `elif` is on the level of its `if`."""


BOUNDS_OF_OTHERS = Bounds(statements=50, nesting=5)
"""A test tells a story, step by step, inside what it has opened for it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
APART = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def sources(folders: tuple[str, ...]) -> Iterator[Path]:
    """Without what is generated, and without the links in src/tenuto to the other folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path and "wire" not in path.parts:
                yield path


def statements_of(node: ast.AST) -> int:
    found = 0
    for child in ast.iter_child_nodes(node):
        found += isinstance(child, ast.stmt)
        if not isinstance(child, APART):
            found += statements_of(child)
    return found


def nesting_of(node: ast.AST, level: int = 0) -> int:
    deepest = level
    for child in ast.iter_child_nodes(node):
        if isinstance(child, APART):
            continue
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deepest = max(deepest, nesting_of(child, level + (isinstance(child, NESTING) and not is_elif)))
    return deepest


def too_long(path: Path, bounds: Bounds) -> Iterator[str]:
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX and REASON not in (ast.get_docstring(tree) or ""):
        yield f"{path}: {len(lines)} lines, at most {FILE_LINES_MAX}"
    for node in ast.walk(tree):
        if isinstance(node, Function):
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            for sentence in _function_too_long(node, source, bounds):
                yield f"{path}:{node.lineno}: {node.name} has {sentence}"


def _function_too_long(node: Function, source: str, bounds: Bounds) -> Iterator[str]:
    """A reason may also stand in a comment, as the docstrings of what users call are documents."""
    length, statements, nesting = source.count("\n") + 1, statements_of(node), nesting_of(node)
    if REASON not in source:
        if length > bounds.lines:
            yield f"{length} lines, at most {bounds.lines}"
        if statements > bounds.statements:
            yield f"{statements} statements, at most {bounds.statements}"
    if nesting > bounds.nesting and REASON_OF_DEPTH not in source:
        yield f"{nesting} levels of nesting, at most {bounds.nesting}"


def test_files_and_functions_are_short_or_say_why_not() -> None:
    product, others = list(sources(PRODUCT)), list(sources(OTHERS))
    assert len(product) > 300
    assert len(others) > 300
    found = [sentence for path in product for sentence in too_long(path, Bounds())]
    found += [sentence for path in others for sentence in too_long(path, BOUNDS_OF_OTHERS)]
    assert not found, f'split these by subject, or say why not ("{REASON} ...", "{REASON_OF_DEPTH} ..."):\n' + "\n".join(found)


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    bounds = Bounds(statements=1_000)
    body = "def f() -> None:\n" + "    pass\n" * bounds.lines + "\n" * FILE_LINES_MAX
    path.write_text(body)
    assert len(list(too_long(path, bounds))) == 2
    path.write_text(f'"""One.\n\n{REASON} it is."""\n' + body.replace("pass", f'"""{REASON} it must."""', 1))
    assert list(too_long(path, bounds)) == []


@pytest.mark.parametrize(
    ("body", "statements", "nesting"),
    [
        ("pass", 1, 0),
        ("a = 1; b = 2; c = 3", 3, 0),
        ("if a:\n  pass\nelif b:\n  pass\nelse:\n  pass", 5, 1),
        ("if a:\n  pass\nelse:\n  if b:\n    pass\n  pass", 5, 2),
        ("for a in b:\n  with c:\n    try:\n      pass\n    except D:\n      while e:\n        pass", 6, 4),
        ("match a:\n  case 1:\n    if b:\n      pass", 3, 2),
        ("if a:\n  def g():\n    while b:\n      pass", 2, 1),
        ("a = [b for c in d if e]", 1, 0),
    ],
)
def test_statements_and_nesting_are_counted(body: str, statements: int, nesting: int) -> None:
    [function] = ast.parse("async def f():\n" + "\n".join(f"  {line}" for line in body.splitlines())).body
    assert (statements_of(function), nesting_of(function)) == (statements, nesting)


def test_many_statements_on_few_lines_and_deep_ones_are_found(tmp_path: Path) -> None:
    path, bounds = tmp_path / "module.py", Bounds()
    many = "def f():\n    {reason}" + "; ".join(["a = 1"] * (bounds.statements + 1)) + "\n"
    deep = "class A:\n  def f():\n    {reason}" + "".join(
        "if a:\n" + " " * (6 + level) for level in range(bounds.nesting + 1)
    ) + "pass\n"  # fmt: skip
    path.write_text(many.format(reason="") + deep.format(reason=""))
    assert [sentence.split(" has ")[1] for sentence in too_long(path, bounds)] == [
        f"{bounds.statements + 1} statements, at most {bounds.statements}",
        f"{bounds.nesting + 1} levels of nesting, at most {bounds.nesting}",
    ]
    path.write_text(many.format(reason=f"# {REASON} so.\n    ") + deep.format(reason=f'"""{REASON_OF_DEPTH} so."""\n    '))
    assert list(too_long(path, bounds)) == []
