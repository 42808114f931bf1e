"""Files and functions stay short enough to be read at once; a longer one says why, in a sentence that begins "Long, because"."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("schemas", "services", "workers", "src/tenuto", "tests", "benchmarks", "docs", "examples")
FILE_LINES_MAX = 350
FUNCTION_LINES_MAX = 73
REASON = "Long, because"


def sources() -> Iterator[Path]:
    """Without what is generated, and without the links in src/tenuto to the other folders."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path and "wire" not in path.parts:
                yield path


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text()
    tree = ast.parse(text)
    lines = len(text.splitlines())
    if lines > FILE_LINES_MAX and not _says_why(tree):
        yield f"{path}: {lines} lines, at most {FILE_LINES_MAX}"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX and not _says_why(node):
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def _says_why(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return REASON in (ast.get_docstring(node) or "")


def test_files_and_functions_are_short_or_say_why_not() -> None:
    paths = list(sources())
    assert len(paths) > 300
    found = [sentence for path in paths for sentence in too_long(path)]
    assert not found, f'split these by subject, or say in the docstring why not ("{REASON} ..."):\n' + "\n".join(found)


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    body = "def f() -> None:\n" + "    pass\n" * FUNCTION_LINES_MAX + "\n" * FILE_LINES_MAX
    path.write_text(body)
    assert len(list(too_long(path))) == 2
    path.write_text(f'"""One.\n\n{REASON} it is."""\n' + body.replace("pass", f'"""{REASON} it must."""', 1))
    assert list(too_long(path)) == []
