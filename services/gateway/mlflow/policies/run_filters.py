"""The language in which MLflow's clients filter and order runs and experiments: conditions joined by AND. Parts of it that are
not understood are refused, never ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tenuto.services.gateway.http.refusals import RequestRefused

FILTER_CHARACTERS_MAX = 4_000
CONDITIONS_MAX = 50
"""Most conditions of one filter: each is a subquery."""
ORDERS_MAX = 10
VALUES_MAX = 500
"""Most values in one list of IN."""

Entity = Literal["metric", "parameter", "tag", "attribute"]
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "LIKE", "ILIKE", "IN", "NOT IN", "IS NULL", "IS NOT NULL"]

_ENTITIES: Mapping[str, Entity] = {
    **dict.fromkeys(("metric", "metrics"), "metric"),
    **dict.fromkeys(("parameter", "parameters", "param", "params"), "parameter"),
    **dict.fromkeys(("tag", "tags"), "tag"),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), "attribute"),
}
TEXTS: frozenset[Operator] = frozenset(("=", "!=", "LIKE", "ILIKE"))
NUMBERS: frozenset[Operator] = frozenset(("=", "!=", "<", "<=", ">", ">="))
_OPERATORS: Mapping[Entity, frozenset[Operator]] = {
    "metric": NUMBERS,
    "parameter": TEXTS | {"IS NULL", "IS NOT NULL"},
    "tag": TEXTS | {"IS NULL", "IS NOT NULL"},
}


@dataclass(frozen=True)
class FilterAttributes:
    """Attributes of the item itself that a filter may name, by the names that clients use."""

    texts: Mapping[str, str]
    """Name in a filter -> name of the attribute."""
    numbers: Mapping[str, str]
    entities: frozenset[Entity]
    """Further entities that a filter may name."""
    ordered: frozenset[str] = frozenset()
    """Further attributes that results may be ordered by."""


OF_RUNS = FilterAttributes(
    texts={
        **{name: name for name in ("run_id", "run_name", "status", "user_id", "artifact_uri")},
        "run name": "run_name",
        "Run name": "run_name",
        "Run Name": "run_name",
    },
    numbers={"start_time": "start_time", "end_time": "end_time", "created": "start_time", "Created": "start_time"},
    entities=frozenset(("metric", "parameter", "tag", "attribute")),
)
OF_EXPERIMENTS = FilterAttributes(
    texts={"name": "name"},
    numbers={"creation_time": "creation_time", "last_update_time": "last_update_time"},
    entities=frozenset(("tag", "attribute")),
    ordered=frozenset(("experiment_id",)),
)

_CREATED, _UPDATED = "creation_timestamp", "last_updated_timestamp"
OF_MODELS = FilterAttributes(
    texts={name: name for name in ("name", "model_id", "model_type", "status", "source_run_id")},
    numbers={_CREATED: _CREATED, "creation_time": _CREATED, _UPDATED: _UPDATED, "last_updated_time": _UPDATED},
    entities=frozenset(("metric", "parameter", "tag", "attribute")),
)


@dataclass(frozen=True)
class FilterCondition:
    entity: Entity
    name: str
    operator: Operator
    value: str | float | tuple[str, ...] | None
    """None: the operator takes none."""


@dataclass(frozen=True)
class SortOrder:
    entity: Entity
    name: str
    ascending: bool


class FilterRefused(RequestRefused, ValueError):
    """`str(error)` is one sentence for the user."""


_SPACE = re.compile(r"\s*")
_KEY = re.compile(r"""(?:(?P<entity>[A-Za-z]+)\.)?(?:`(?P<back>[^`]+)`|"(?P<double>[^"]+)"|(?P<plain>[^\s=!<>`"'(),]+))""")
_OPERATOR = re.compile(r"!=|<=|>=|=|<|>|(?:IS\s+NOT\s+NULL|IS\s+NULL|NOT\s+IN|ILIKE|LIKE|IN)(?![A-Za-z0-9_])", re.IGNORECASE)
_TEXT = re.compile(r"""'(?P<single>[^']*)'|"(?P<double>[^"]*)\"""")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])")
_AND = re.compile(r"AND(?!\w)", re.IGNORECASE)


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > FILTER_CHARACTERS_MAX:
            raise FilterRefused(f"The filter is longer than {FILTER_CHARACTERS_MAX} characters.")
        self._text, self._at = text, 0
        self._skip()

    @property
    def ended(self) -> bool:
        return self._at >= len(self._text)

    @property
    def rest(self) -> str:
        return self._text[self._at :][:60]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if (found := pattern.match(self._text, self._at)) is not None:
            self._at = found.end()
            self._skip()
        return found

    def take_mark(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        self._skip()
        return True

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at


def conditions(text: str, known: FilterAttributes) -> list[FilterCondition]:
    """All of them must hold. Raises FilterRefused."""
    reader = _Reader(text)
    found: list[FilterCondition] = []
    while not reader.ended:
        if found and not reader.take(_AND):
            raise FilterRefused(
                f"The filter is not understood at {reader.rest!r}: conditions are joined by AND; OR, NOT and parentheses are not"
                " supported."
            )
        found.append(_condition(reader, known))
        if len(found) > CONDITIONS_MAX:
            raise FilterRefused(f"The filter has more than {CONDITIONS_MAX} conditions.")
    return found


def orders(texts: Sequence[str], known: FilterAttributes) -> list[SortOrder]:
    """Raises FilterRefused."""
    if len(texts) > ORDERS_MAX:
        raise FilterRefused(f"order_by has more than {ORDERS_MAX} parts.")
    return [_order(text, known) for text in texts]


def _order(text: str, known: FilterAttributes) -> SortOrder:
    words = text.split()
    direction = words[-1].upper() if len(words) > 1 else ""
    given = direction in ("ASC", "DESC")
    reader = _Reader(text.rstrip()[: -len(direction)] if given else text)
    key = reader.take(_KEY)
    if key is None or not reader.ended:
        raise FilterRefused(f"order_by is not understood: {text[:60]!r}; write it as `metrics.loss ASC`.")
    entity, name = _key(key, known)
    if entity == "attribute":
        attribute = known.texts.get(name) or known.numbers.get(name) or (name if name in known.ordered else None)
        if attribute is None:
            raise _no_attribute(name, [*known.texts, *known.numbers, *known.ordered])
        name = attribute
    return SortOrder(entity, name, direction != "DESC")


def _condition(reader: _Reader, known: FilterAttributes) -> FilterCondition:
    here = reader.rest
    key, operator = reader.take(_KEY), reader.take(_OPERATOR)
    if key is None or operator is None:
        raise FilterRefused(f"The filter is not understood at {here!r}: a condition is such as `metrics.loss < 0.5`.")
    entity, name = _key(key, known)
    sign: Operator = " ".join(operator[0].upper().split())  # type: ignore[assignment]
    allowed = _OPERATORS.get(entity)
    if allowed is None:
        if name in known.numbers:
            name, allowed = known.numbers[name], NUMBERS
        elif name in known.texts:
            name, allowed = known.texts[name], TEXTS | {"IN", "NOT IN"}
        else:
            raise _no_attribute(name, [*known.texts, *known.numbers])
    if sign not in allowed:
        raise FilterRefused(f"{entity} {name} does not take {sign}; it takes {', '.join(sorted(allowed))}.")
    return FilterCondition(entity, name, sign, _value(reader, sign, allowed is NUMBERS, f"{entity} {name}"))


def _value(reader: _Reader, sign: Operator, number: bool, what: str) -> str | float | tuple[str, ...] | None:
    if sign.endswith("NULL"):
        return None
    if sign.endswith("IN"):
        return _list(reader, what)
    if number:
        if (found := reader.take(_NUMBER)) is None:
            raise FilterRefused(f"{what} is compared with a number (found {reader.rest!r}).")
        return float(found[0])
    return _text(reader, what)


def _text(reader: _Reader, what: str) -> str:
    if (found := reader.take(_TEXT)) is None:
        raise FilterRefused(f"{what} is compared with a text in quotes (found {reader.rest!r}).")
    return found["single"] if found["single"] is not None else found["double"]


def _list(reader: _Reader, what: str) -> tuple[str, ...]:
    if not reader.take_mark("("):
        raise FilterRefused(f"{what} is compared with a list such as ('a', 'b') (found {reader.rest!r}).")
    values = [_text(reader, what)]
    while reader.take_mark(","):
        values.append(_text(reader, what))
        if len(values) > VALUES_MAX:
            raise FilterRefused(f"The list of {what} has more than {VALUES_MAX} values.")
    if not reader.take_mark(")"):
        raise FilterRefused(f"The list of {what} is not closed (found {reader.rest!r}).")
    return tuple(values)


def _key(found: re.Match[str], known: FilterAttributes) -> tuple[Entity, str]:
    name = found["back"] or found["double"] or found["plain"]
    given = found["entity"]
    entity = "attribute" if given is None else _ENTITIES.get(given.lower())
    if entity is None or entity not in known.entities:
        names = ", ".join(sorted(f"{item}s" for item in known.entities))
        raise FilterRefused(f"There is no filter by {given}; there are {names}.")
    return entity, name  # type: ignore[return-value]


def _no_attribute(name: str, names: Sequence[str]) -> FilterRefused:
    return FilterRefused(f"There is no attribute {name[:60]!r} to filter or order by; there are {', '.join(sorted(set(names)))}.")
