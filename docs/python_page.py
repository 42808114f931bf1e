"""docs/reference/python.md: what users import, read from the source, so that no framework is imported for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> str:
    arguments = ast.unparse(node.args)
    if method:
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    words = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if any(ast.unparse(item).endswith("property") for item in node.decorator_list):
        return f"{node.name}: {ast.unparse(node.returns)}" if node.returns is not None else node.name
    return f"{words}{node.name}({arguments}){returns}"


def _said(node: Definition | ast.Module) -> str:
    text = ast.get_docstring(node)
    if text is None:
        return ""
    parts = re.split(r"(\n\n(?:    .*(?:\n|$)+)+)", f"{text}\n")  # an indented part is an example
    return "\n" + "".join(f"\n\n```python\n{cleandoc(part)}\n```\n" if part.startswith("\n\n    ") else part for part in parts)


def _class(node: ast.ClassDef, module: str) -> Iterator[str]:
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    yield f"\n{NEW_CLASS} {node.name}\n"
    if init is not None:
        yield f"\n```python\n{_signature(init, method=True).replace('__init__', node.name, 1).removesuffix(' -> None')}\n```\n"
    yield _said(node)
    if init is not None:
        yield _said(init)
    fields = list(_fields(node))
    if fields:
        yield "\n| attribute | what it is |\n|---|---|\n"
        yield from (f"| `{name}: {kind}` | {what} |\n".replace(" | None", r" \| None") for name, kind, what in fields)
    for item in members(node, module):
        yield f"\n{NEW_METHOD} {node.name}.{item.name}\n\n```python\n{_signature(item, method=True)}\n```\n{_said(item)}"


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Annotated public attributes, with the docstring below each."""
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            said = ast.literal_eval(after.value) if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield item.target.id, ast.unparse(item.annotation), " ".join(str(said).split())


def python_page() -> str:
    lines = [TITLE]
    for module in MODULES:
        lines.append(f"\n## {module}\n")
        lines.append(_said(tree(module)[0]))
        for name in public(module):
            where, node = find(module, name)
            twin = name.removeprefix("Async")
            if twin != name and (where != module or twin in public(module)):
                said = "As [`Client`](#client) and what it returns, for programs with an event loop."
                lines.append(f"\n{NEW_CLASS} {module}.{name}\n\n{said}\n")
            elif isinstance(node, ast.ClassDef):
                lines.extend(_class(node, where))
            elif node is not None:
                lines.append(f"\n{NEW_CLASS} {module}.{name}\n\n```python\n{_signature(node, method=False)}\n```\n{_said(node)}")
    return "".join(lines)
