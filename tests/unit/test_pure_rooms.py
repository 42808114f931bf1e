"""The pure rooms stay pure, with all that they import: no clock, randomness, environment, I/O or logging, no iteration in hash
order, and no state in a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE_FILES = {"state.py", "commands.py", "decide.py", "evolve.py", "core.py"}
PURE_FOLDERS = {"state", "decide", "evolve", "methods", "policies", "rights"}
PURE_PROTOCOL = (
    "workers/agent/lane_decisions.py", "workers/agent/fair_turns.py", "src/tenuto/kernel/reception.py",
    "src/tenuto/kernel/reactions.py",
)  # fmt: skip
"""Both sides of the road of reports, and the rule for attempts of every receiver of events."""
IMPORTS_ALLOWED = {
    "__future__", "ast", "bisect", "collections", "collections.abc", "dataclasses", "decimal", "enum", "fractions", "functools",
    "hashlib", "heapq", "immutables", "itertools", "json", "keyword", "math", "operator", "pydantic", "pydantic_core", "re",
    "re2", "shlex", "typing", "types", "uuid", "typing_extensions", "statistics", "struct", "unicodedata",
}  # fmt: skip
NAMES_ALLOWED = {
    "pathlib": {"PurePosixPath"},
    "sys": {"builtin_module_names", "float_info", "stdlib_module_names"},
    "urllib.parse": {"urlsplit"},
}
"""Of modules that do other things, too."""
CALLS_FORBIDDEN = {"uuid1", "uuid4", "open", "print", "input", "now", "utcnow", "today", "getenv", "hash", "id"}
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault",
    "sort", "update",
}  # fmt: skip
"""Methods that change a list, set or mapping."""
NO_STATE = {
    "schemas/events/registry.py": {"EVENT_MODELS", "OWNERS"},  # filled while the modules of events are imported, and never later
    "schemas/sentences/rules.py": {"FORMS"},  # filled while the modules of sentences are imported, and never later
    "schemas/config/ranges.py": {"_QUICK"},  # a decimal context, whose `add` adds two numbers
}
"""Names that look like a module's state, and are none."""
FINDS_CODE = {"src/tenuto/kernel/plugins.py"}
"""Finds a class by its name, once, as an import statement does: what is installed is part of the build. It is not followed, and
searches record which package decides them (`PluginMethod`)."""
ALL_FILES_MIN = 120
"""Fewer were not found by following imports."""


def pure_rooms() -> list[Path]:
    found = []
    for service in sorted((ROOT / "services").iterdir()):
        for path in sorted(service.rglob("*.py")):
            inside = path.relative_to(service).parts
            depth = 2 if service.name == "gateway" else 1  # its rooms are those of its subjects
            if (path.name in PURE_FILES and len(inside) <= depth) or set(inside[:-1]) & PURE_FOLDERS:
                found.append(path)
    return [*found, *(ROOT / name for name in PURE_PROTOCOL)]


def with_imported(paths: list[Path]) -> list[Path]:
    """And all of Tenuto that these import: what a pure room calls is as pure as the room, wherever it stands."""
    found, waiting = dict.fromkeys(paths), list(paths)
    while waiting:
        for path in imported(ast.parse(waiting.pop().read_text())):
            if path not in found:
                found[path] = None
                waiting.append(path)
    return sorted(found)


def imported(tree: ast.Module) -> Iterator[Path]:
    """Files of Tenuto's modules, and of the packages that they are in: importing a module runs its packages, too. Without
    `tenuto` itself, which only says what users import."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *parts = name.split(".")
            if first != "tenuto" or not parts:
                continue
            base = ROOT if parts[0] in ("schemas", "services", "workers") else ROOT / "src/tenuto"
            for count in range(1, len(parts) + 1):
                place = base.joinpath(*parts[:count])
                files = (path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file())
                yield from (path for path in files if str(path.relative_to(ROOT)) not in FINDS_CODE)


def violations(source: str, no_state: frozenset[str] = frozenset()) -> list[str]:
    tree = ast.parse(source)
    found = [f"line {line}: {what}" for line, what in _changes_of_the_module(tree, no_state)]
    for node in ast.walk(tree):
        found += [f"line {getattr(node, 'lineno', '?')}: {what}" for what in _impure(node)]
    return found


def _impure(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if not _allowed(alias.name))
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = {alias.name for alias in node.names}
        if not (_allowed(module) or names <= NAMES_ALLOWED.get(module, set())):
            yield f"imports {module}"
    elif isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in CALLS_FORBIDDEN:
            yield f"calls {called}()"
        if called == "lru_cache" and not any(item.arg == "maxsize" and _is_bound(item.value) for item in node.keywords):
            yield "keeps results without a bound: give lru_cache a maxsize"
    elif isinstance(node, (ast.Name, ast.Attribute)):
        if "cache" in (getattr(node, "id", ""), getattr(node, "attr", "")):
            yield "keeps results without a bound: use lru_cache with a maxsize"
    elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, (ast.Set, ast.SetComp)):
        yield "iterates a set"


def _allowed(module: str) -> bool:
    """True if a pure room may import this module. Modules of Tenuto may be imported: they are checked themselves."""
    return module in IMPORTS_ALLOWED or module.split(".")[0] == "tenuto"


def _is_bound(value: ast.expr) -> bool:
    return not (isinstance(value, ast.Constant) and value.value is None)


def _changes_of_the_module(tree: ast.Module, no_state: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Lines where a function changes an object of the module: two states would share it, and a replay would find what another
    left. A function's results may be kept by its arguments (lru_cache): they follow from these alone."""
    own = {name.id for node in tree.body for name in ast.walk(node) if isinstance(name, ast.Name) and _is_bound_by(name, node)}
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield node.lineno, f"changes the module's {', '.join(node.names)}"
            changed = _changed_name(node)
            if changed in own - no_state and changed not in _bound_in(function):
                yield getattr(node, "lineno", 0), f"changes the module's {changed}"


def _is_bound_by(name: ast.Name, node: ast.stmt) -> bool:
    return isinstance(name.ctx, ast.Store) and isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))


def _bound_in(function: ast.AST) -> set[str]:
    arguments = {item.arg for item in ast.walk(function) if isinstance(item, ast.arg)}
    return arguments | {item.id for item in ast.walk(function) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}


def _changed_name(node: ast.AST) -> str | None:
    """The name whose object this changes: `name[...] = x`, `del name[...]`, `name.field = x`, `name.append(x)`."""
    target: ast.AST | None = None
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        target = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        target = node.func.value
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


PURE = with_imported(pure_rooms())


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure(path: Path) -> None:
    no_state = NO_STATE.get(str(path.relative_to(ROOT)), set())
    assert violations(path.read_text(), frozenset(no_state)) == []


def test_what_pure_rooms_import_is_read_too() -> None:
    names = {str(path.relative_to(ROOT)) for path in PURE}
    assert len(names) > ALL_FILES_MIN
    assert names >= {
        "services/searcher/methods/sampling.py", "schemas/config/ranges.py", "schemas/events/registry.py", "schemas/ids.py",
        "schemas/config/__init__.py", "src/tenuto/kernel/memo.py",
    }  # fmt: skip


def test_code_is_found_by_name_in_one_place() -> None:
    modules = {name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in FINDS_CODE}
    finding = [
        str(path.relative_to(ROOT))
        for path in PURE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & modules
    ]
    assert finding == ["services/searcher/methods/__init__.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import random",
        "import os",
        "from asyncio import sleep",
        "from pathlib import Path",
        "from sys import argv",
        "x = uuid4()",
        "open('x')",
        "x = {}\ndef f(y): x[id(y)] = y",
        "for x in {1, 2}: pass",
        "x = {}\ndef f(y): x[y] = y",
        "x: dict = {}\ndef f(y): x.setdefault(y, []).append(y)",
        "x = []\ndef f(y): x.append(y)",
        "x = {}\ndef f(y): del x[y]",
        "x = {}\ndef f(y): x['a']['b'] = y",
        "x = 0\ndef f():\n    global x\n    x += 1",
        "@cache\ndef f(x): return x",
        "@functools.cache\ndef f(x): return x",
        "@lru_cache(maxsize=None)\ndef f(x): return x",
        "@lru_cache()\ndef f(x): return x",
    ],
)
def test_the_check_notices(source: str) -> None:
    assert violations(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = {}\ndef f():\n    x = {}\n    x['a'] = 1\n    return x",
        "x = []\ndef f(x): x.append(1)",
        "x = {'a': 1}\ndef f(y): return x[y]",
        "@lru_cache(maxsize=8)\ndef f(x): return x",
        "from pathlib import PurePosixPath",
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert violations(source) == []
