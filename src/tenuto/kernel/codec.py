"""The state of a core as bytes and back: for snapshots, and to compare two states byte for byte.

What is stored is read from the classes of the state, so a new field is written once, where it is declared. A record is a row of
its fields in their order, and a snapshot begins with the shape of all rows: one of another shape, or a damaged one, is refused,
and the state is folded from the log. A field with `metadata=DERIVED` follows from the others: it is not stored, and the function
`derive` of the codec finds it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import sha256
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from immutables import Map
from pydantic import BaseModel, TypeAdapter

S = TypeVar("S")
DERIVED = {"derived": True}
"""Metadata of a field that follows from other fields: an index, a count, a memo."""
_SCALARS = (str, int, float, bool)
_DIGEST_CHARACTERS = 16
"""Length of an abbreviated SHA-256 in hexadecimal: enough against accidental changes."""


class SnapshotRefused(Exception):
    """The bytes are no state of this build's classes: of another shape, or damaged."""


class Stored(Protocol):
    """A class of a state that says itself how it is stored: `stored` gives what JSON can hold, `restored` takes it."""

    def stored(self) -> Any: ...

    @classmethod
    def restored(cls, value: Any) -> Any: ...


class _Way(NamedTuple):
    """Encoding of one type's values. A function that is None leaves them as they are."""

    shape: str
    put: Callable[[Any], Any] | None = None
    take: Callable[[Any], Any] | None = None


class Codec(Generic[S]):
    """`Codec(State, derive)`; `derive` fills in what is derived, and is called with a state where all of that has its default."""

    def __init__(self, kind: type[S], derive: Callable[[S], S] | None = None) -> None:
        """Raises TypeError for a field of a type that cannot be stored exactly."""
        way = _of_record(kind)
        assert way.put is not None
        assert way.take is not None
        self._put, self._take, self._derive = way.put, way.take, derive
        self._shape = _digest(way.shape.encode())

    def dump(self, state: S) -> bytes:
        """Canonical: equal states give equal bytes."""
        body = json.dumps(self._put(state), separators=(",", ":"), check_circular=False).encode()
        return self._shape + _digest(body) + body

    def load(self, data: bytes) -> S:
        """Raises SnapshotRefused."""
        head = len(self._shape)
        shape, digest, body = data[:head], data[head : 2 * head], data[2 * head :]
        if shape != self._shape:
            raise SnapshotRefused("it was made by another version")
        if digest != _digest(body):
            raise SnapshotRefused("it is damaged")
        try:
            state: S = self._take(json.loads(body))
            return state if self._derive is None else self._derive(state)
        except Exception as error:
            raise SnapshotRefused(f"it cannot be read ({type(error).__name__}: {error})") from error


def _digest(data: bytes) -> bytes:
    return sha256(data).hexdigest()[:_DIGEST_CHARACTERS].encode()


def _way(kind: Any) -> _Way:
    """Raises TypeError."""
    if get_origin(kind) is Annotated and not _is_of_models(kind):
        kind = get_args(kind)[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS or kind is Any or (origin is dict and arguments == (str, Any)):
        return _Way(str(kind))
    if origin is Literal:
        return _Way(str(kind), None, {value: value for value in arguments}.__getitem__)
    if origin in (Union, UnionType) and type(None) in arguments:
        return _optional(_way(Union[tuple(item for item in arguments if item is not type(None))]))  # noqa: UP007 (a union of a tuple)
    if origin in (Union, UnionType) and all(item in _SCALARS for item in arguments):
        return _Way(str(kind))
    if isinstance(kind, type) and hasattr(kind, "restored"):
        return _Way(kind.__name__, kind.stored, kind.restored)  # type: ignore[attr-defined]
    if _is_of_models(kind):
        return _of_models(kind)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _items(_way(arguments[0]))
    if origin is tuple:
        return _row(f"{kind}", [_way(item) for item in arguments])
    if origin is Map:
        return _map(_way(arguments[0]), _way(arguments[1]))
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, tuple)):
        return _of_record(kind)
    raise TypeError(f"{kind} cannot be stored in a snapshot: use a frozen dataclass, Map, tuple, scalar or model")


def _optional(way: _Way) -> _Way:
    put, take = way.put, way.take
    return _Way(
        f"{way.shape}?",
        put and (lambda value: None if value is None else put(value)),
        take and (lambda value: None if value is None else take(value)),
    )


def _items(way: _Way) -> _Way:
    put, take = way.put, way.take
    return _Way(
        f"[{way.shape}]",
        put and (lambda values: [put(value) for value in values]),
        tuple if take is None else (lambda values: tuple([take(value) for value in values]) if values else ()),
    )


def _map(key: _Way, value: _Way) -> _Way:
    """Two lists, the sorted keys and the values, because a Map has no order of its own."""
    put, take, take_key = value.put, value.take, key.take

    def put_all(items: Map[Any, Any]) -> Any:
        keys = sorted(items)
        values = map(items.__getitem__, keys)
        return [keys, list(values if put is None else map(put, values))]

    def take_all(stored: Any) -> Map[Any, Any]:
        keys, values = stored
        keys = keys if take_key is None else map(take_key, keys)
        return Map(zip(keys, values if take is None else map(take, values), strict=True))

    return _Way(f"{{{key.shape}:{value.shape}}}", put_all, take_all)


def _is_of_models(kind: Any) -> bool:
    """True if pydantic can store the type: a model, or models in a union, tuple or dict."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return issubclass(kind, BaseModel)
    return get_origin(kind) is not Map and any(_is_of_models(item) for item in get_args(kind))


def _of_models(kind: Any) -> _Way:
    """Codec of models as text within the text, which keeps the order of keys in a configuration; pydantic is fast at it."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    dump, load = adapter.dump_json, adapter.validate_json
    return _Way(str(getattr(kind, "__name__", kind)), lambda value: dump(value).decode(), load)


def _of_record(kind: type[Any]) -> _Way:
    """A frozen dataclass or a NamedTuple."""
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        every = fields(kind)
        names = [item.name for item in every if not item.metadata.get("derived")]
        derived = [(at, _default(item)) for at, item in enumerate(every) if item.metadata.get("derived")]
    else:
        names, derived = list(kind._fields), []  # type: ignore[attr-defined]
    ways = [_way(hints[name]) for name in names]
    shape = ",".join(f"{name}:{way.shape}" for name, way in zip(names, ways, strict=True))
    get = attrgetter(*names) if len(names) > 1 else lambda item: (getattr(item, names[0]),)
    row = _row(f"{kind.__name__}({shape})", ways, get)
    take, make = row.take, _maker(kind)
    assert take is not None

    def take_record(values: list[Any]) -> Any:
        values = take(values)
        for at, default in derived:
            values.insert(at, default())
        return make(values)

    return row._replace(take=take_record)


def _default(item: Field[Any]) -> Callable[[], Any]:
    if item.default_factory is not MISSING:
        return item.default_factory
    assert item.default is not MISSING, f"{item.name} is derived and has no default"
    return lambda: item.default


def _maker(kind: type[Any]) -> Callable[[list[Any]], Any]:
    """A function that makes a record of the values of all its fields."""
    if not is_dataclass(kind) or hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
        return lambda values: kind(*values)
    names = [item.name for item in fields(kind)]

    def make(values: list[Any]) -> Any:
        # As the constructor does it, which sets each field of a frozen class by a call of its own.
        record = object.__new__(kind)
        record.__dict__.update(zip(names, values, strict=True))
        return record

    return make


def _row(shape: str, ways: list[_Way], get: Callable[[Any], tuple[Any, ...]] | None = None) -> _Way:
    """Values of different types in a fixed order, of a tuple or of a record's fields."""
    puts = [(at, way.put) for at, way in enumerate(ways) if way.put is not None]
    takes = [(at, way.take) for at, way in enumerate(ways) if way.take is not None]
    count = len(ways)

    def put_all(item: Any) -> list[Any]:
        row = list(item if get is None else get(item))
        for at, put in puts:
            row[at] = put(row[at])
        return row

    def take_all(row: list[Any]) -> Any:
        if len(row) != count:
            raise ValueError(f"{len(row)} values where {count} are stored")
        for at, take in takes:
            row[at] = take(row[at])
        return row if get is not None else tuple(row)

    return _Way(shape, put_all if puts else get, take_all)
