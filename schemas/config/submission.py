"""Checks of a new experiment, beyond those of the fields themselves.

These checks are not part of the models: a configuration that was accepted once is on record, and must stay readable as long as
the record is kept. They ensure that every value that can be drawn is a number that every part can work with, and that a condition
or a starting point can be met.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, log
from typing import Any

from tenuto.schemas.config import constraints
from tenuto.schemas.config.hyperparameters import (
    CategoricalHyperparameter,
    ConstHyperparameter,
    DoubleHyperparameter,
    IntHyperparameter,
    LogHyperparameter,
)
from tenuto.schemas.config.ranges import BITS, exponent_of, stepped, steps, value_at
from tenuto.schemas.config.searchers import Searcher
from tenuto.schemas.config.space import allowed, flat, leaves_by_path, same
from tenuto.schemas.text import ValuePath, path_of, unprintable

WHOLE_MIN, WHOLE_MAX = -(2**63), 2**63 - 1
"""Range of 64-bit integers: all that frameworks, samplers and other languages can hold."""
STEPS_MAX = 2**53
"""Most values of a quantised range; a double cannot count more."""
POWER_MIN, POWER_MAX = 1e-300, 1e300
"""Range of a log hyperparameter's values, in which a double keeps its full precision."""
_SLACK = 1e-9
"""Relative tolerance: a person writes 0.3 where the step is 0.1."""

Found = Iterator[tuple[str, str]]
"""(path of the field, sentence with the problem and what is allowed) of each problem."""


def check_submission(space: Mapping[str, Any], searcher: Searcher) -> list[tuple[str, str]]:
    """(path, sentence) of each wrong field; empty if there is none."""
    found = [*_names(space, "hyperparameters")]
    if found:
        return found  # the paths below would be ambiguous
    known = dict(leaves_by_path(space))
    for path, leaf in known.items():
        found += _range(f"hyperparameters.{path}", leaf)
    if found:
        return found  # what follows calculates with the ranges
    for path, leaf in known.items():
        found += _when(path, leaf, known)
    if found:
        return found
    for index, start in enumerate(searcher.starting_points):
        found += _point(f"searcher.starting_points[{index}]", flat(start, known), known, searcher)
    return found or [*_values(known)]


_FREE_TEXT = ("environment.variables.", "log_policies")
"""Fields that may contain any character but NUL: values for programs, and patterns."""
_LINES = "\n\r\t"


def unprintable_name(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """First field with control characters, and the reason for refusing them: a name is printed as one piece of a line. Texts
    may have line breaks and tabs."""
    waiting: list[tuple[ValuePath | None, Any]] = [(None, document)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            if unprintable(value) and (why := _refusal(path := path_of(place), value)):
                return path, why
        elif isinstance(value, Mapping):
            for name in value:
                if why := unprintable(str(name)):
                    return path_of(place) or "the configuration", f"a name in it {why}"
            waiting += [(ValuePath(place, str(name)), item) for name, item in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(ValuePath(place, index), item) for index, item in reversed(list(enumerate(value)))]
    return None


def _refusal(path: str, text: str) -> str:
    """Reason why the text cannot be the field's value; empty if it can."""
    one_line = path in ("name", "entrypoint", "searcher.metric") or path.startswith(("labels", "resources"))
    why = unprintable(text if one_line else text.translate(dict.fromkeys(map(ord, _LINES))))
    return "" if path.startswith(_FREE_TEXT) else why


def _names(space: Mapping[str, Any], where: str) -> Found:
    for name, value in space.items():
        if "." in name:
            first, rest = name.split(".", 1)
            yield (
                f"{where}.{name}",
                "a name must not have a dot, which separates the levels of nested hyperparameters; write"
                f" `{first}: {{{rest}: ...}}`",
            )
        elif not name:
            yield where, "a hyperparameter must have a name"
        elif isinstance(value, Mapping):
            yield from _names(value, f"{where}.{name}")


def _range(where: str, leaf: Any) -> Found:
    if isinstance(leaf, IntHyperparameter):
        if leaf.minval < WHOLE_MIN or leaf.maxval > WHOLE_MAX:
            yield (
                where,
                f"minval and maxval must be whole numbers of 64 bits, from {WHOLE_MIN} to {WHOLE_MAX}; use a log range instead",
            )
        return
    if not isinstance(leaf, (DoubleHyperparameter, LogHyperparameter)):
        return
    if isinstance(leaf, LogHyperparameter):
        # Compared as logarithms, because the powers themselves may be too large for a double.
        ends = [leaf.minval * log(leaf.base), leaf.maxval * log(leaf.base)] if isfinite(leaf.base) else [float("inf")]
        if not log(POWER_MIN) <= min(ends) <= max(ends) <= log(POWER_MAX):
            yield (
                where,
                f"minval and maxval are exponents: base ** {leaf.minval:g} to base ** {leaf.maxval:g} has values outside"
                f" {POWER_MIN:g} to {POWER_MAX:g}",
            )
            return
    if leaf.step is not None and steps(leaf) > STEPS_MAX:
        yield (
            f"{where}.step",
            f"is too small for the range, which would have more than {STEPS_MAX:,} values; leave it out, or make it larger",
        )


def _when(path: str, leaf: Any, known: Mapping[str, Any]) -> Found:
    for name, condition in (leaf.when or {}).items():
        other = known[name]
        if isinstance(other, (ConstHyperparameter, CategoricalHyperparameter)):
            continue  # the space's own checks compare them
        for value in allowed(condition):
            if (why := _misfit(other, value)) is not None:
                yield f"hyperparameters.{path}.when.{name}", f"can never hold: {name} is never {value!r}, {why}"


def _misfit(leaf: Any, value: Any) -> str | None:
    """Reason why the range never has this value; None if it may."""
    whole = isinstance(leaf, IntHyperparameter)
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return f"it is {'a whole number' if whole else 'a number'}"
    at = value
    if isinstance(leaf, LogHyperparameter):
        if value <= 0:
            return "it is above 0"
        at = exponent_of(leaf.base, value)
    slack = 0 if whole else _SLACK * max(abs(leaf.minval), abs(leaf.maxval), 1e-300)
    what = f"it is from {leaf.minval:g} to {leaf.maxval:g}"
    if isinstance(leaf, LogHyperparameter):
        what = f"it is base ** x with x from {leaf.minval:g} to {leaf.maxval:g}"
    if not leaf.minval - slack <= at <= leaf.maxval + slack:
        return what
    if leaf.step is None:
        return None
    # The nearest value that is drawn; a range need not end on one.
    if whole:
        fits = (value - leaf.minval) % leaf.step == 0
    else:
        index = min(steps(leaf) - 1, max(0, round((at - leaf.minval) / leaf.step)))
        fits = abs(at - stepped(leaf, index)) <= max(slack, _SLACK * leaf.step)
    return None if fits else f"{what} in steps of {leaf.step:g}"


def _point(where: str, point: Mapping[str, Any], known: Mapping[str, Any], searcher: Searcher) -> Found:
    for path, value in point.items():
        leaf = known[path]
        if isinstance(leaf, (ConstHyperparameter, CategoricalHyperparameter)):
            continue
        if (why := _misfit(leaf, value)) is not None:
            yield f"{where}.{path}", f"{value!r} is not in the search space: {why}"
    values, open_ = _settled(point, known)
    for index, text in enumerate(searcher.constraints):
        _, names = constraints.parse(text)
        if not names & open_ and not constraints.holds(text, values):
            yield where, f"breaks searcher.constraints[{index}], `{text}`; change the point, or leave it out"


def _settled(point: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Values by path that the point alone decides and that are in use; and the paths that a draw decides."""
    given = {path: leaf.val for path, leaf in known.items() if isinstance(leaf, ConstHyperparameter)} | dict(point)
    used: dict[str, bool | None] = {}

    def uses(path: str) -> bool | None:
        """True if the hyperparameter is in use at the point; None if a draw decides."""
        if path not in used:
            parts = []
            for name, condition in (known[path].when or {}).items():
                part = uses(name)
                if part:
                    # In use, but without a value: only the draw decides whether the condition is met.
                    part = any(same(given[name], value) for value in allowed(condition)) if name in given else None
                parts.append(part)
            used[path] = False if False in parts else None if None in parts else True
        return used[path]

    values = {path: given[path] for path in known if uses(path) and path in given}
    return values, {path for path in known if uses(path) is None or (uses(path) and path not in given)}


def _values(known: Mapping[str, Any]) -> Found:
    """Checks the first, the middle and the last value of each range, in case the checks above missed something: the searcher
    would notice too late."""
    for path, leaf in known.items():
        try:
            for bits in (0, 1 << (BITS - 1), (1 << BITS) - 1):
                value_at(leaf, bits)
        except Exception as error:
            yield f"hyperparameters.{path}", f"nothing can be drawn from it ({type(error).__name__}: {error}); change the range"
