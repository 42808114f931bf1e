"""Events are built where they are decided: in `decide`, `methods` or `policies` of the service that owns them, and nowhere else.
So whoever looks for the code of an event finds it by the name of its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tenuto.schemas.events import EVENT_MODELS, OWNERS, EventData

ROOT = Path(__file__).parents[2]
FOLDERS = ("services", "src/tenuto", "workers", "schemas")
ROOMS = {"decide", "methods", "policies"}
SIMULATED = "simulation"
"""Makes up what other services and people would record."""
MODULES = {kind.__module__ for kind in EVENT_MODELS.values()}


@cache
def sources() -> tuple[Path, ...]:
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(path for path in found if path.resolve() == path and "wire" not in path.parts)


@cache
def deciding(owner: str) -> tuple[str, ...]:
    """Texts of the rooms of a service in which events are built."""
    return tuple(path.read_text() for path in sources() if rooms_of(path)[0] == owner and rooms_of(path)[1] & ROOMS)


def built(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, type) of each call of an event's class or of `from_object` with it, by the name that it is imported under;
    of what is made of a class by other means (`model_copy`, `from_json`) a decision or the log was the origin."""
    names: dict[str, str] = {}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module in MODULES and alias.name in EVENT_MODELS:
                    names[alias.asname or alias.name] = alias.name
                elif f"{node.module}.{alias.name}" in MODULES:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "from_object":
                called = node.args[0]
            if isinstance(called, ast.Name) and called.id in names:
                yield node.lineno, names[called.id]
            elif isinstance(called, ast.Attribute) and called.attr in EVENT_MODELS and ast.unparse(called.value) in modules:
                yield node.lineno, called.attr


def rooms_of(path: Path) -> tuple[str, set[str]]:
    """The service that a file belongs to, and the rooms that it is in."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return (parts[1], set(parts[2:])) if parts[0] == "services" and len(parts) > 2 else ("", set())


def test_events_are_built_where_they_are_decided() -> None:
    found, decided = [], set()
    for path in sources():
        service, rooms = rooms_of(path)
        if SIMULATED in rooms:
            continue
        for line, name in built(ast.parse(path.read_text())):
            if OWNERS[name] == service and rooms & ROOMS:
                decided.add(name)
            else:
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert found == []
    assert len(decided) > 40


COMMANDS = sorted((*ROOT.glob("services/*/commands.py"), *ROOT.glob("services/gateway/*/commands.py")))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.parent.name)
def test_no_command_holds_an_event(path: Path) -> None:
    """Commands are orders and events are facts: an event that is handed in would be recorded as somebody else decided it."""
    commands = import_module(f"tenuto.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}")
    assert [name for name, kind in vars(commands).items() if isinstance(kind, type) and issubclass(kind, EventData)] == []


@pytest.mark.parametrize("name", sorted(EVENT_MODELS))
def test_an_event_is_found_in_two_steps_from_its_name(name: str) -> None:
    """Its class, in the module of its stream; and from there its owner's room that builds it."""
    kind = EVENT_MODELS[name]
    assert kind.__name__ == name
    assert any(re.search(rf"\b{name}\(|\bfrom_object\({name}\b", text) for text in deciding(kind.OWNER)), f"nobody builds {name}"


@pytest.mark.parametrize(
    "source",
    [
        "from tenuto.schemas.events.search import TrialStopped\nTrialStopped(trial_id='1-1')",
        "from tenuto.schemas.events.search import TrialStopped as Over\ndef f():\n    return Over()",
        "from tenuto.schemas.events import search\nsearch.TrialStopped()",
        "from tenuto.schemas.events import search\nfrom_object(search.TrialStopped, command)",
        "from tenuto.schemas.events.search import TrialStopped\nfrom_object(TrialStopped, command, trial_id='1-1')",
    ],
)
def test_a_built_event_is_noticed(source: str) -> None:
    assert [name for _, name in built(ast.parse(source))] == ["TrialStopped"]
