"""The pure rooms stay pure: no clock, randomness, environment, I/O or logging, and no iteration in hash order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE_FILES = {"state.py", "decide.py", "evolve.py", "core.py"}
PURE_FOLDERS = {"methods", "policies"}
PURE_PROTOCOL = ("workers/agent/sending.py", "workers/agent/turns.py", "src/tenuto/kernel/reception.py")
"""Both sides of the road of reports."""
IMPORTS_ALLOWED = {
    "__future__", "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "hashlib", "heapq",
    "immutables", "itertools", "json", "math", "operator", "pydantic", "re", "typing", "uuid", "typing_extensions", "statistics",
    "struct",
}  # fmt: skip
CALLS_FORBIDDEN = {"uuid1", "uuid4", "open", "print", "input", "now", "utcnow", "today", "getenv", "hash", "id"}


def pure_files() -> list[Path]:
    found = []
    for service in sorted((ROOT / "services").iterdir()):
        for path in sorted(service.rglob("*.py")):
            inside = path.relative_to(service).parts
            if (path.name in PURE_FILES and len(inside) == 1) or set(inside[:-1]) & PURE_FOLDERS:
                found.append(path)
    return _with_imported(found) + [ROOT / name for name in PURE_PROTOCOL]


def _with_imported(paths: list[Path]) -> list[Path]:
    """And what these import of their services: a fold that was moved to a file of its own is as pure as before."""
    found, waiting = dict.fromkeys(paths), list(paths)
    while waiting:
        for node in ast.walk(ast.parse(waiting.pop().read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tenuto.services."):
                continue
            module = ROOT.joinpath(*str(node.module).split(".")[1:])
            for path in (module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)):
                if path.is_file() and path not in found:
                    found[path] = None
                    waiting.append(path)
    return sorted(found)


def violations(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            pure = (
                name in IMPORTS_ALLOWED or name.startswith(("tenuto.schemas", "tenuto.services.")) or name == "tenuto.kernel.core"
            )
            if not pure:
                found.append(f"line {node.lineno}: imports {name}")
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in CALLS_FORBIDDEN:
                found.append(f"line {node.lineno}: calls {called}()")
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, (ast.Set, ast.SetComp)):
            found.append(f"line {getattr(node, 'lineno', '?')}: iterates a set")
    return found


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pure(path: Path) -> None:
    assert violations(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "import random",
        "import os",
        "from tenuto.kernel.bus import connect",
        "x = uuid4()",
        "open('x')",
        "for x in {1, 2}: pass",
    ],
)
def test_the_check_notices(line: str) -> None:
    assert violations(line)
