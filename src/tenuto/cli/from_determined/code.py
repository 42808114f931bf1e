"""Features of Determined that the code in a model directory uses and Tenuto cannot provide."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tenuto.cli.from_determined.notes import Kind, Note

FILES_MAX = 1_000
FILE_BYTES_MAX = 1 << 20
"""Limits of a look through a model directory: number of Python files, and bytes of each."""
HOOK = "startup-hook.sh"
IGNORED = ".detignore"
"""Determined's list of files that are left out of a context."""
MODULES: Mapping[str, str] = {
    "determined.pytorch.deepspeed": "there are no trials of DeepSpeed here; distributed.strategy: fsdp divides a PyTorch model",
    "determined.estimator": "TensorFlow's estimators are no more; write a Keras trial, or a script",
    "determined.experimental": "use tenuto.client, the client of a cluster",
    "determined.searcher": 'a custom search is of another form here: see "A search of your own" in docs/search.md',
    "determined.launch": "Tenuto starts a process for each slot itself",
    "determined.tensorboard": "metrics are recorded by the cluster",
    "determined.profiler": "use your framework's profiler",
    "model_hub": "Determined's model hub is not part of Tenuto; take the model from its library",
}
"""Modules that Tenuto does not stand in for, with what to do instead."""


def look_through(directory: Path) -> list[Note]:
    """Notes on the code, in the order of the files' names; reads, and runs nothing."""
    notes = []
    if (directory / HOOK).is_file():
        notes.append(Note(HOOK, Kind.LEFT_OUT, "is not run; install what it installs where the agents are"))
    if (directory / IGNORED).is_file():
        notes.append(Note(IGNORED, Kind.LEFT_OUT, "is not read; rename it to .tenutoignore"))
    for path in _python_files(directory):
        notes += _imports(path, str(path.relative_to(directory)))
    return notes


def _python_files(directory: Path) -> Iterator[Path]:
    count = 0
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(".py"):
                count += 1
                if count > FILES_MAX:
                    return
                yield Path(folder) / name


def _imports(path: Path, shown: str) -> Iterator[Note]:
    try:
        with path.open("rb") as file:
            tree = ast.parse(file.read(FILE_BYTES_MAX))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the worker says so when it runs it
    told = set()
    for node in ast.walk(tree):
        for name in _names(node):
            module = next((known for known in MODULES if name == known or name.startswith(f"{known}.")), None)
            if module is not None and module not in told:
                told.add(module)
                yield Note(f"{shown}:{node.lineno}", Kind.LEFT_OUT, f"imports {module}: {MODULES[module]}")  # type: ignore[attr-defined]


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
