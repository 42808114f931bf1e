"""Checks of the search space as a whole: references of `when`, constraints and starting points to other hyperparameters."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tenuto.schemas.config import constraints
from tenuto.schemas.config.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
)

_RELATIVE_SLACK = 1e-9
"""Relative tolerance at the ends of a range: a user writes 0.001 where the range ends at 10 ** -3, and the last digits may
differ."""


def leaves_by_path(space: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every hyperparameter, with its dotted path."""
    for name, value in space.items():
        if isinstance(value, Mapping):
            yield from leaves_by_path(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def allowed(condition: Any) -> list[Any]:
    """Values that a condition of `when` lists."""
    return condition if isinstance(condition, list) else [condition]


def same(one: Any, other: Any) -> bool:
    """True if the values are equal and of one kind: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def check_space(space: Mapping[str, Any], searcher: Any) -> None:
    """Checks the search space. Raises ValueError with the path of the wrong field, and the reason."""
    known = dict(leaves_by_path(space))
    for path, leaf in known.items():
        _check_when(path, leaf, known)
    _check_cycles(known)
    for index, text in enumerate(searcher.constraints):
        _check_constraint(f"searcher.constraints[{index}]", text, known)
    for index, point in enumerate(searcher.starting_points):
        check_point(f"searcher.starting_points[{index}]", flat(point, known), known)


def _check_constraint(where: str, text: str, known: Mapping[str, Any]) -> None:
    unspeakable = [path for path in known if path in text and not _is_speakable(path)]
    hint = ""
    if unspeakable:
        hint = (
            f"; a constraint cannot name {unspeakable[0]}: names there have letters, digits and _ only, and are no word of Python"
            " (such as lambda); give the hyperparameter such a name"
        )
    try:
        _, names = constraints.parse(text)
    except ValueError as error:
        raise ValueError(f"{where} {error}{hint}") from None
    for name in sorted(names):
        if name not in known:
            raise ValueError(f"{where} names {name}, which is no hyperparameter{hint or f'; there are: {_some(known)}'}")


def _is_speakable(path: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in path.split("."))


def flat(point: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Starting point by dotted paths, written with dots or nested."""
    found: dict[str, Any] = {}
    for name, value in point.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in known:
            found |= flat(value, known, f"{path}.")
        else:
            found[path] = value
    return found


def _check_when(path: str, leaf: Any, known: Mapping[str, Any]) -> None:
    for name, condition in (leaf.when or {}).items():
        where = f"hyperparameters.{path}.when.{name}"
        if name not in known:
            raise ValueError(f"{where}: there is no hyperparameter {name}; there are: {_some(known)}")
        other = known[name]
        if isinstance(other, CategoricalHyperparameter):
            values = other.vals
        elif isinstance(other, ConstHyperparameter):
            values = [other.val]
        else:
            continue
        for value in allowed(condition):
            if not any(same(value, candidate) for candidate in values):
                raise ValueError(f"{where}: {name} is never {value!r}; it is one of {values}")


def _check_cycles(known: Mapping[str, Any]) -> None:
    settled: set[str] = set()
    # A stack in place of recursion, because a chain of conditions may be as long as there are hyperparameters.
    for start in known:
        path, chain = start, [start]
        stack = [(start, iter(known[start].when or {}))]
        while stack:
            path, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                settled.add(path)
                stack.pop()
                chain = chain[: len(stack)]
            elif following in chain:
                raise ValueError(f"hyperparameters.{start}.when: {' needs '.join([*chain, following])}, in a circle")
            elif following not in settled:
                chain.append(following)
                stack.append((following, iter(known[following].when or {})))


def check_point(where: str, point: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raises ValueError if a value of the flat `point` is not in the space of leaves `known`."""
    for path, value in point.items():
        leaf = known.get(path)
        if leaf is None:
            raise ValueError(f"{where}.{path}: there is no such hyperparameter; there are: {_some(known)}")
        if isinstance(leaf, ConstHyperparameter):
            fits, what = same(value, leaf.val), f"the constant {leaf.val!r}"
        elif isinstance(leaf, CategoricalHyperparameter):
            fits, what = any(same(value, item) for item in leaf.vals), f"one of {leaf.vals}"
        else:
            low, high = leaf.minval, leaf.maxval
            if isinstance(leaf, LogHyperparameter):
                # A base below 1 turns the ends around.
                low, high = sorted((_power(leaf.base, leaf.minval), _power(leaf.base, leaf.maxval)))
            whole = isinstance(leaf, IntHyperparameter)
            # True and false are integers in Python, and no numbers to users.
            number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            slack = 0 if whole else _RELATIVE_SLACK * max(abs(low), abs(high))
            fits = number and low - slack <= value <= high + slack
            what = f"{'a whole number' if whole else 'a number'} from {low:g} to {high:g}"
        if not fits:
            raise ValueError(f"{where}.{path}: {value!r} is not in the search space, which has {what}")


def _power(base: float, exponent: float) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _some(known: Mapping[str, Any]) -> str:
    names = sorted(known)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none"
