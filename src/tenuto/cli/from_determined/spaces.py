"""Hyperparameters. Ranges mean the same in both (both ends of an int included, log ranges given by exponents), with the exception
of some grid points of whole numbers, which are then written as a list."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tenuto.cli.from_determined.notes import Notes
from tenuto.schemas.config.hyperparameters import DEPTH_MAX

RANGES = ("int", "double", "log")
FIELDS: Mapping[str, frozenset[str]] = {
    "const": frozenset({"type", "val"}),
    "categorical": frozenset({"type", "vals"}),
    "int": frozenset({"type", "minval", "maxval", "count"}),
    "double": frozenset({"type", "minval", "maxval", "count"}),
    "log": frozenset({"type", "minval", "maxval", "count", "base"}),
}
POINTS_MAX = 1_000
"""Most points of an axis that are written as a list."""


def convert_space(
    space: Mapping[str, Any], notes: Notes, grid: bool, where: str = "hyperparameters", depth: int = 0
) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        notes.refused(where, f"is nested deeper than {DEPTH_MAX} levels")
        return {}
    result = {}
    for name, value in space.items():
        path = f"{where}.{name}"
        if not isinstance(value, dict):
            result[str(name)] = value
        elif "type" not in value:
            whole = _is_constant(value) and (not value or _has_dots(value))
            result[str(name)] = _one_value(path, value, notes) if whole else convert_space(value, notes, grid, path, depth + 1)
        else:
            result[str(name)] = _leaf(path, dict(value), notes, grid)
    return result


def _leaf(path: str, leaf: dict[str, Any], notes: Notes, grid: bool) -> Any:
    kind = leaf["type"]
    if not isinstance(kind, str) or kind not in FIELDS:
        notes.refused(f"{path}.type", f"is none of Determined's types: {', '.join(FIELDS)}", kind)
        return None
    for name in sorted(set(leaf) - FIELDS[kind]):
        if leaf.pop(name) is not None:
            notes.refused(f"{path}.{name}", f"Determined's {kind} has no such field")
    if kind == "const" and isinstance(leaf.get("val"), dict):
        return _one_value(path, leaf["val"], notes)
    if leaf.get("count", 0) is None:
        del leaf["count"]
    if kind in RANGES and not (_is_number(leaf.get("minval")) and _is_number(leaf.get("maxval"))):
        notes.refused(path, "needs minval and maxval, which are numbers", leaf)
        return leaf
    if grid and kind in RANGES:
        return _axis(path, leaf, notes)
    return leaf


def _one_value(path: str, value: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """A mapping as it is. A constant may be none, and a group's names have no dots; a list of one value may hold any."""
    notes.changed(path, "is a list with one value, which your code gets as it is")
    return {"type": "categorical", "vals": [dict(value)]}


def _is_constant(group: Mapping[str, Any], depth: int = 0) -> bool:
    """True if nothing in the group is searched, and all of it is written bare."""
    if depth > DEPTH_MAX:
        return False
    return all(
        not isinstance(value, dict) or ("type" not in value and _is_constant(value, depth + 1)) for value in group.values()
    )


def _has_dots(group: Mapping[str, Any]) -> bool:
    return any("." in str(name) or (isinstance(value, dict) and _has_dots(value)) for name, value in group.items())


def _axis(path: str, leaf: dict[str, Any], notes: Notes) -> dict[str, Any]:
    count = leaf.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        notes.refused(f"{path}.count", "is required for a grid: the number of points along this range", count)
        return leaf
    if leaf["type"] != "int":
        return leaf
    low, high = leaf["minval"], leaf["maxval"]
    if not isinstance(low, int) or not isinstance(high, int) or high < low:
        return leaf  # the validation says what is wrong
    count = min(count, high - low + 1)
    if count > POINTS_MAX:
        notes.refused(f"{path}.count", f"a grid of more than {POINTS_MAX} points along one range", count)
        return leaf
    theirs = _points(low, high, count)
    if theirs == _own_points(low, high, count):
        return leaf
    notes.changed(path, f"is the list of points {theirs}: Determined rounds halves away from zero, and Tenuto up")
    return {"type": "categorical", "vals": theirs}


def _points(low: int, high: int, count: int) -> list[int]:
    """Points of Determined's grid: evenly spaced, halves rounded away from zero."""
    if count == 1:
        return [_round((low + high) / 2)]
    return [_round(low + index * (high - low) / (count - 1)) for index in range(count)]


def _own_points(low: int, high: int, count: int) -> list[int]:
    """Points of Tenuto's grid; `services/searcher/methods/grid.py` has the rule."""
    last = count - 1
    return [low + ((2 * index * (high - low) + last) // (2 * last) if last else (high - low) // 2) for index in range(count)]


def _round(value: float) -> int:
    return math.floor(value + 0.5) if value >= 0 else math.ceil(value - 0.5)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
