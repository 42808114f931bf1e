"""Tables of decisions, read from the functions that decide: a command is named once, where it is decided on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from tenuto.schemas.events import EventData

Decide = Callable[[Any, Any], Sequence[EventData]]
"""`decide(state, command)`. Raises Refused."""
Decisions = Mapping[type, Decide]
"""Command -> what decides on it."""


def decisions(*functions: Decide) -> Decisions:
    """By the class that each function's parameter `command` is annotated with. Raises TypeError for one without such a class, and
    for two functions of one command."""
    table: dict[type, Decide] = {}
    for function in functions:
        kind = get_type_hints(function).get("command")
        if not isinstance(kind, type):
            raise TypeError(f"{function.__qualname__} has no parameter `command` of one class")
        table = joined(table, {kind: function})
    return table


def joined(*tables: Decisions) -> dict[type, Decide]:
    """Raises TypeError for a command that two tables name."""
    found: dict[type, Decide] = {}
    for table in tables:
        if twice := [kind.__name__ for kind in table if kind in found]:
            raise TypeError(f"{twice[0]} is decided on twice")
        found.update(table)
    return found
