"""Folders stand on each other in one direction, so that each can be read, changed and tested without those above it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules() -> dict[str, tuple[Path, bool]]:
    """Module without `tenuto.` -> (its file, whether it is a package)."""
    tops = {name: ROOT / name for name in ("services", "workers", "schemas")}
    tops |= {path.name: path for path in (ROOT / "src/tenuto").iterdir() if path.is_dir() and not path.is_symlink()}
    found = {}
    for top, folder in tops.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            package = parts[-1] == "__init__"
            found[".".join((top, *(parts[:-1] if package else parts)))] = path, package
    return found


def imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tenuto."):
            base = (node.module or "").removeprefix("tenuto.")
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
        elif isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("tenuto.") for alias in node.names if alias.name.startswith("tenuto."))


def folders_beneath(known: Mapping[str, tuple[Path, bool]]) -> dict[str, dict[str, set[str]]]:
    """Folder -> the folders in it -> which of these each imports. A folder does not count as above or below its own parts."""
    found: dict[str, dict[str, set[str]]] = {}
    for module, (path, _) in known.items():
        for other in imported(ast.parse(path.read_text()), known):
            if other not in known:
                continue
            a, b = ((name if known[name][1] else name.rpartition(".")[0]).split(".") for name in (module, other))
            same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            if same < len(a) and same < len(b):
                found.setdefault(".".join(a[:same]), {}).setdefault(a[same], set()).add(b[same])
    return found


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_no_folders_import_each_other_both_ways() -> None:
    found = folders_beneath(modules())
    assert {"services.gateway", "workers", ""} <= found.keys()
    circles = {above: circle(graph) for above, graph in found.items()}
    assert {above: names for above, names in circles.items() if names} == {}
