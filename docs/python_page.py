"""docs/reference/python.md: what users import, read from the source, so that no framework is imported for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from inspect import cleandoc
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
MODULES = (
    "tenuto", "tenuto.pytorch", "tenuto.keras", "tenuto.huggingface", "tenuto.lightning", "tenuto.client", "tenuto.search",
    "tenuto.automation",
)  # fmt: skip
"""Modules for users, in the order of the page."""
TITLE = """# Python interface

Classes and functions that your code imports, with their docstrings. Guides: [PyTorch](../pytorch.md), [Keras](../keras.md), \
[Core API](../core-api.md), [client](../client.md), [searches](../search.md), [automation](../automation.md).
"""
PARTS = {
    "Run": {
        "Run.checkpoint": ("tenuto.workers.core_api.checkpoints", "Checkpoints"),
        "Run.checkpoint.latest": ("tenuto.workers.core_api.checkpoints", "Checkpoint"),
    },
}
"""Classes that users meet only as an attribute of another one: its name -> the class."""
CALLBACKS = ("TenutoCallback",)
"""Classes whose methods are hooks of a framework, with its arguments; only Tenuto makes them, and reads their attributes."""
GIVEN = (
    *CALLBACKS, "Checkpoint", "Checkpoints", "Experiment", "Known", "NotCompleted", "PyTorchTrialContext", "Run", "Trial",
)  # fmt: skip
"""Classes whose objects users are given, so that the arguments of their constructors are not shown."""
SIGNATURE_CHARACTERS_MAX = 100
"""A longer signature has one argument on each line."""
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
NEW_CLASS, NEW_METHOD = "###", "####"


@cache
def tree(module: str) -> tuple[ast.Module, bool]:
    """The parsed module, and whether it is a package."""
    path = SOURCE.joinpath(*module.split("."))
    file, package = (path / "__init__.py", True) if path.is_dir() else (path.with_suffix(".py"), False)
    return ast.parse(file.read_text()), package


def public(module: str) -> list[str]:
    """Names in `__all__`; without it those of its classes and functions."""
    body = tree(module)[0].body
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value))
    return [node.name for node in body if isinstance(node, Definition) and not node.name.startswith("_")]


def find(module: str, name: str) -> tuple[str, Definition | None]:
    """Where the name is defined, followed through imports; None for what is no class or function, such as an alias."""
    for node in ast.walk(tree(module)[0]):
        if isinstance(node, ast.ImportFrom) and any(name == (alias.asname or alias.name) for alias in node.names):
            alias = next(alias for alias in node.names if name == (alias.asname or alias.name))
            assert node.module is not None
            return find(node.module, alias.name) if node.module.startswith("tenuto") else (node.module, None)
    for node in tree(module)[0].body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
    return module, None


def members(
    node: ast.ClassDef, module: str, seen: frozenset[str] = frozenset()
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public methods and properties of a class, then those of its bases in this package that it does not replace."""
    names = set(seen)
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_") and item.name not in names:
            names.add(item.name)
            if not _overloaded(item):
                yield item
    for base in node.bases:
        where, found = find(module, ast.unparse(base).split("[")[0])
        if isinstance(found, ast.ClassDef):
            yield from members(found, where, frozenset(names))


def _overloaded(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("overload" in ast.unparse(item) or ".setter" in ast.unparse(item) for item in node.decorator_list)


def arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Arguments of a function, without `self` and `cls`."""
    given = node.args
    found = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [item for item in found if item is not None and item.arg not in ("self", "cls")]


def _written(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Arguments as they are written in a signature."""
    given = node.args
    shown = {item.arg for item in arguments(node)}

    def one(item: ast.arg, default: ast.expr | None, stars: str = "") -> list[str]:
        if item.arg not in shown:
            return []
        kind = "" if item.annotation is None else f": {ast.unparse(item.annotation)}"
        value = "" if default is None else f"{' = ' if kind else '='}{ast.unparse(default)}"
        return [f"{stars}{item.arg}{kind}{value}"]

    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found = []
    for number, (item, default) in enumerate(zip(plain, defaults, strict=True), 1):
        found += one(item, default)
        if number == len(given.posonlyargs):
            found.append("/")
    if given.vararg is not None:
        found += one(given.vararg, None, "*")
    elif given.kwonlyargs:
        found.append("*")
    for item, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found += one(item, default)
    return found + (one(given.kwarg, None, "**") if given.kwarg is not None else [])


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str = "") -> str:
    returns = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    words = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    name = name or node.name
    if is_property(node):
        return f"{name}: {ast.unparse(node.returns)}" if node.returns is not None else name
    given = _written(node)
    line = f"{words}{name}({', '.join(given)}){returns}"
    if len(line) <= SIGNATURE_CHARACTERS_MAX or not given:
        return line
    return "\n".join([f"{words}{name}(", *(f"    {item}," for item in given), f"){returns}"])


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(item).endswith("property") for item in node.decorator_list)


EXAMPLE = re.compile(r"\n\n((?:    .*(?:\n|$)|\n(?=\n*    ))+)")
"""An indented part of a docstring, after an empty line."""


def examples(text: str) -> list[str]:
    """Examples in a docstring, as code."""
    return [cleandoc(f"\n{part}") for part in EXAMPLE.findall(f"{text}\n")]


def _said(node: Definition | ast.Module) -> str:
    text = ast.get_docstring(node)
    if text is None:
        return ""
    shown = []
    for number, part in enumerate(EXAMPLE.split(f"{text}\n")):  # every second one is an example
        code = cleandoc(f"\n{part}")
        shown.append(f"```python\n{code}\n```" if number % 2 else part.strip())
    return "\n" + "\n\n".join(part for part in shown if part) + "\n"


def _code(signature: str) -> str:
    return f"\n```python\n{signature}\n```\n"


def constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    """`__init__` of a class, if users call it."""
    found = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    return None if node.name in GIVEN else next(found, None)


def _class(node: ast.ClassDef, module: str, name: str) -> Iterator[str]:
    init = constructor(node)
    yield f"\n{NEW_CLASS} {name}\n"
    if init is not None:
        yield _code(_signature(init, name))
    yield _said(node)
    if init is not None:
        yield _said(init)
    yield from _table(fields(node, module))
    for item in node.body:
        if isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
            yield f"\n{NEW_METHOD} {name}.{item.name}\n{_said(item)}"
            yield from _table(fields(item, module))
    for item in members(node, module):
        yield f"\n{NEW_METHOD} {name}.{item.name}\n{_code(_signature(item))}{_said(item)}"
    for part, (where, kind) in PARTS.get(name, {}).items():
        found = find(where, kind)[1]
        assert isinstance(found, ast.ClassDef)
        yield from _class(found, where, part)


Field = tuple[str, str, str]
"""Name, type (empty: not annotated) and docstring of an attribute."""


def _table(rows: Sequence[Field]) -> Iterator[str]:
    if rows:
        yield "\n| attribute | what it is |\n|---|---|\n"
    for name, kind, what in rows:
        shown = f"{name}: {kind}" if kind else name
        yield f"| `{shown}` | {what} |\n".replace(" | None", r" \| None")


def fields(node: ast.ClassDef, module: str) -> list[Field]:
    """Public attributes of a class and of its bases in this package: those in its body, and those that its `__init__` sets."""
    if node.name in CALLBACKS:
        return []
    rows = list(_assigned(node.body, ""))
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            rows += _assigned(item.body, "self.")
    for base in node.bases:
        where, other = find(module, ast.unparse(base).split("[")[0])
        if isinstance(other, ast.ClassDef):
            rows += fields(other, where)
    found: dict[str, Field] = {}
    for row in rows:
        found.setdefault(row[0], row)
    return [row for row in found.values() if row[0] != "model_config"]


def _assigned(body: Sequence[ast.stmt], prefix: str) -> Iterator[Field]:
    for item, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(item, ast.AnnAssign | ast.Assign):
            continue
        kind = ast.unparse(item.annotation) if isinstance(item, ast.AnnAssign) else ""
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        for target in (one for each in targets for one in (each.elts if isinstance(each, ast.Tuple) else [each])):
            name = ast.unparse(target)
            if name.startswith(prefix) and name.removeprefix(prefix).isidentifier() and not name.startswith(f"{prefix}_"):
                yield name.removeprefix(prefix), kind, " ".join(str(said).split())


def alias(module: str, name: str) -> str:
    """Docstring of a name of the module that is neither a class nor a function."""
    return next((what for known, _, what in _assigned(tree(module)[0].body, "") if known == name), "")


def _named(module: str, name: str, shown: dict[tuple[str, str], str]) -> Iterator[str]:
    where, node = find(module, name)
    heading = f"\n{NEW_CLASS} {module}.{name}\n"
    twin = name.removeprefix("Async")
    if twin != name and (where != module or twin in public(module)):
        yield f"{heading}\nAs [`Client`](#client) and what it returns, for programs with an event loop.\n"
    elif (where, name) in shown:
        yield f"{heading}\nSame as [`{shown[where, name]}.{name}`](#{name.lower()}).\n"
    elif isinstance(node, ast.ClassDef):
        yield from _class(node, where, name)
    elif node is not None:
        yield f"{heading}{_code(_signature(node))}{_said(node)}"
    elif where.startswith("tenuto"):
        yield f"{heading}\n{alias(where, name)}\n"
    else:
        yield f"{heading}\nSame as `{where}.{name}`.\n"
    shown.setdefault((where, name), module)


def python_page() -> str:
    lines = [TITLE]
    shown: dict[tuple[str, str], str] = {}
    for module in MODULES:
        lines.append(f"\n## {module}\n")
        lines.append(_said(tree(module)[0]))
        for name in public(module):
            lines.extend(_named(module, name, shown))
    return "".join(lines)
