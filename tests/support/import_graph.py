"""Imports between the modules of Tenuto, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {"tenuto": "src/tenuto", "tenuto.schemas": "schemas", "tenuto.services": "services", "tenuto.workers": "workers"}
"""Source folder of each package."""


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
    """Modules imported anywhere in this one, except for type checking only."""
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


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """Modules, and names in them, imported together with this one: neither inside a function nor for type checking only."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            waiting += node.body
