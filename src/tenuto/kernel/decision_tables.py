"""Tables of decisions, read from the functions that decide: what is decided on is named once, where it is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

from tenuto.schemas.events import EventData

Decide = Callable[..., Sequence[EventData]]
"""`decide(state, cause)`, and in a table of events where one of them needs it `decide(state, data, time_us)`. On a command it may
raise Refused."""
Decisions = Mapping[type, Decide]
"""Class of a cause (a command, a report, the data of an event) -> what decides on it."""


def decisions(*functions: Decide, parameter: str = "command") -> Decisions:
    """Table of decide functions by the class, or each class of a union, that their `parameter` is annotated with. Raises
    TypeError for a function without such a class, and for two functions of one class."""
    table: dict[type, Decide] = {}
    for function in functions:
        found = get_type_hints(function).get(parameter)
        kinds = get_args(found) if get_origin(found) in (Union, UnionType) else (found,)
        if not all(isinstance(kind, type) for kind in kinds):
            raise TypeError(f"{function.__qualname__} has no parameter `{parameter}` of a class")
        table = joined(table, dict.fromkeys(kinds, function))
    return table


def nothing(*_: object) -> Sequence[EventData]:
    """The decision on what a table does not name."""
    return ()


def joined(*tables: Decisions) -> dict[type, Decide]:
    """Raises TypeError for a class that two tables name."""
    found: dict[type, Decide] = {}
    for table in tables:
        if twice := [kind.__name__ for kind in table if kind in found]:
            raise TypeError(f"{twice[0]} is decided on twice")
        found.update(table)
    return found
