"""Conditions on hyperparameters, as people write them into a query: `lr>=0.001,lr<0.1,optimizer=adam`."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

CONDITIONS_MAX = 5
_CONDITION = re.compile(r"(?P<name>[^<>=]+)(?P<operator><=|>=|=|<|>)(?P<value>[^<>=]*)")
NAME_CHARACTERS_MAX = 256
TEXT_CHARACTERS_MAX = 200
"""Characters of a name and of a value that the views keep to search for."""


class Condition(NamedTuple):
    name: str
    """Name of the value, with dots for a nested one."""
    operator: str
    """One of = < <= > >=."""
    value: float | str
    """A number, or for = also other text: `true`, `adam`."""


def conditions(text: str) -> tuple[Condition, ...]:
    """All of which must hold for one and the same trial. Raises ValueError with a sentence."""
    parts = text.split(",") if text else []
    if len(parts) > CONDITIONS_MAX:
        raise ValueError(f"has {len(parts)} conditions, but at most {CONDITIONS_MAX} are allowed")
    return tuple(map(_condition, parts))


def _condition(part: str) -> Condition:
    found = _CONDITION.fullmatch(part.strip())
    if found is None:
        raise ValueError(f"must be conditions such as lr>=0.001,lr<0.1,optimizer=adam (found {part!r})")
    name, operator, value = found["name"].strip()[:NAME_CHARACTERS_MAX], found["operator"], found["value"].strip()
    number = _number(value)
    if number is not None:
        return Condition(name, operator, number)
    if operator != "=":
        raise ValueError(f"compares {name} with {value!r}, which is no number; only = takes other values")
    return Condition(name, operator, value[:TEXT_CHARACTERS_MAX])


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
