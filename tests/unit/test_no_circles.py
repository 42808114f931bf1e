"""No module imports another that imports it again, not even late, inside a function: who reads one part can read it alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"tenuto": "src/tenuto", "tenuto.schemas": "schemas", "tenuto.services": "services", "tenuto.workers": "workers"}
"""By package."""


def modules() -> dict[str, Path]:
    """Every module of Tenuto by its full name, without the links in src/tenuto to the other folders."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path:
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Modules that are imported anywhere in it, but for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & known
            if names - known and node.module in known:
                yield str(node.module)
        else:
            yield from imported(node, known)


def circle(sources: dict[str, str]) -> list[str]:
    """Modules that import each other, in order; empty if none do."""
    known = set(sources)
    graph = {name: set(imported(ast.parse(source), known)) - {name} for name, source in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    sources = {name: path.read_text() for name, path in modules().items()}
    assert len(sources) > 400
    assert circle(sources) == []


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"a": "import b", "b": "from c import x", "c": "import a"}, True),
        ({"a": "import b", "b": "def f():\n    import a"}, True),
        ({"p": "", "p.a": "from p import b", "p.b": "from p.a import x"}, True),
        ({"a": "import b", "b": "import c", "c": ""}, False),
        ({"a": "import b", "b": "if TYPE_CHECKING:\n    import a"}, False),
    ],
)
def test_circles_are_found(sources: dict[str, str], found: bool) -> None:
    assert bool(circle(sources)) is found
