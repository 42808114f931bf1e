"""No module imports another that imports it again, not even late, inside a function: who reads one part can read it alone."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.import_graph import imported, modules


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
