"""What training changes in objects of the user's: their attributes, and those of the user's objects that they hold.

A checkpoint holds those values that differ from what the constructors made, so that a value that follows from the configuration
is taken from there, and a large one that never changes is not written again and again. A fresh process makes the same
objects, and gets the values back, in place where others may hold them, too.
"""

from __future__ import annotations

import io
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.workers.user_state import generators, values

DEPTH_MAX = 6
OBJECTS_MAX = 10_000
SMALL_BYTES_MAX = 1 << 20
SLOW_SECONDS = 2.0
"""Of one checkpoint: the user is told once."""
Path = tuple[str, ...]
"""Of a value: the root's name, then `.name` of an attribute or `[key]` of an item."""
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property)


_NOTHING = object()


@dataclass(frozen=True)
class Leaf:
    path: Path
    value: Any
    encoded: Any
    """Its own memory, not a copy."""
    set: Callable[[Any], None] | None
    """None: the container takes no other."""
    protocol: bool = False
    """It says and takes its state itself."""


def name_of(path: Path) -> str:
    return "".join(path)


class Attributes:
    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        skip: Callable[[], set[int]] = set,
        skip_types: tuple[type, ...] = (),
        walks: Callable[[Any], bool] = lambda value: generators.is_users(type(value)),
        asks: bool = True,
        adapts: Callable[[Any], Any] = lambda value: None,
    ) -> None:
        """`roots`: objects by names, under which their values are saved. `skip`: ids of what others save, and `skip_types` their
        types. `walks`: objects whose attributes are looked at. `asks`: an object with `state_dict` and `load_state_dict` is
        asked, and not looked at. `adapts`: gives an object with these for one of a library's, else None."""
        self._adapts = adapts
        self.roots, self._skip, self._walks, self._asks = dict(roots), skip, walks, asks
        self._skip_types = (*_CODE, *skip_types)
        self._unknown: dict[Path, Any] = {}
        """Of the last walk: what can neither be saved nor looked into."""
        self._begun_objects: set[Path] = set()
        self._begun = self.marks()
        self._begun_objects = set(self._objects())
        self._begun_unknown = dict(self._unknown)
        self._begun_large = {path: values.mark_of_large(item) for path, item in self._unknown.items() if values.is_large(item)}
        self.seconds: dict[str, float] = {}
        """That the last call of `state` took, by attribute of a root: training waits for it."""

    def marks(self) -> dict[Path, str]:
        """Of all values now, to compare in this process."""
        return {leaf.path: values.mark_of_encoded(leaf.encoded) for leaf in self._leaves()}

    def state(self, small: bool = False) -> list[list[Any]]:
        """[path, encoded value] of what changed since the beginning: copies. `small`: also of what did not change, up to
        SMALL_BYTES_MAX."""
        found: list[list[Any]] = []
        objects: dict[Path, Any] = {}
        nowhere: dict[Path, Any] = {}
        self.seconds, began = {}, time.perf_counter()
        for leaf in self._leaves(objects):
            made = self._made_since(leaf, objects)
            if made is not None:
                nowhere[made] = objects.get(made, leaf.value)
            elif self._is_wanted(leaf, small):
                found.append([list(leaf.path), values.encode(_said(leaf.value, leaf.protocol), copy=True)])
            name, now = name_of(leaf.path[:2]), time.perf_counter()
            self.seconds[name] = self.seconds.get(name, 0.0) + now - began
            began = now
        self._unknown |= nowhere
        return found

    def _is_wanted(self, leaf: Leaf, small: bool) -> bool:
        if small and getattr(leaf.value, "nbytes", 0) <= SMALL_BYTES_MAX:
            return True
        return values.mark_of_encoded(leaf.encoded) != self._begun.get(leaf.path)

    def _made_since(self, leaf: Leaf, objects: Mapping[Path, Any]) -> Path | None:
        """A fresh process has no place for what is in an object that was made after the beginning: the path of that."""
        path = leaf.path
        if path in self._begun:
            return None
        made = next((path[:end] for end in range(2, len(path)) if path[:end] in objects.keys() - self._begun_objects), None)
        return made if made is not None else path if leaf.protocol or not path[-1].startswith(".") else None

    def restore(self, state: Iterable[Any], touched: Iterable[Path] = ()) -> list[str]:
        """Puts values back, but for those at `touched`. Returns the names of those for which there is no place."""
        kept = set(touched)
        leaves = {leaf.path: leaf for leaf in self._leaves()}
        lost = []
        for path, encoded in ((tuple(item[0]), item[1]) for item in state):
            if path in kept:
                continue
            leaf = leaves.get(path)
            done = self._add(path, encoded) if leaf is None else _put(leaf, encoded)
            if not done:
                lost.append(name_of(path))
        return lost

    def slow(self) -> str | None:
        """A sentence for the user, where the last call of `state` took long."""
        if (total := sum(self.seconds.values())) < SLOW_SECONDS:
            return None
        name, most = max(self.seconds.items(), key=lambda item: item[1])
        return (
            f"training stood still for {total:.1f} s at a checkpoint while attributes were looked through and copied, "
            f"{most:.1f} s of them for {name}; keep what training does not change elsewhere, such as in the data set"
        )

    def unsaved(self) -> list[tuple[Path, str, str]]:
        """Path, name and type of what was there when `state` was called and cannot be saved: iterators, and what was put there
        since the beginning."""
        return [
            (path, name_of(path), _kind_of(value))
            for path, value in self._unknown.items()
            if is_iterator(value) or self._begun_unknown.get(path) is not value or self._is_large_and_changed(path, value)
        ]

    def _is_large_and_changed(self, path: Path, value: Any) -> bool:
        return values.is_large(value) and values.mark_of_large(value) != self._begun_large.get(path)

    def _add(self, path: Path, encoded: Any) -> bool:
        """An attribute that was made in training."""
        owner = self._objects().get(path[:-1])
        if owner is None or not path[-1].startswith("."):
            return False
        try:
            setattr(owner, path[-1][1:], values.decode(encoded))
        except (AttributeError, TypeError):
            return False
        return True

    def _objects(self) -> dict[Path, Any]:
        found: dict[Path, Any] = {}
        for _ in self._leaves(found):
            pass
        return found

    def _leaves(self, objects: dict[Path, Any] | None = None) -> Iterator[Leaf]:
        self._unknown = {}
        seen = set(self._skip())
        first = len(seen)
        queue: deque[tuple[Path, Any, Callable[[Any], None] | None, int]] = deque(
            ((name,), root, None, 0) for name, root in self.roots.items()
        )
        while queue and len(seen) < first + OBJECTS_MAX:
            path, value, put, depth = queue.popleft()
            if type(value) not in values.SCALARS:
                if id(value) in seen or isinstance(value, self._skip_types):
                    continue
                seen.add(id(value))
            root = len(path) == 1
            if not root and (adapted := self._adapts(value)) is not None:
                value = adapted
            asked = not root and self._asks and _has_protocol(value)
            encoded = _NOTHING if root else _encoded(value, asked)
            if encoded is not _NOTHING:
                yield Leaf(path, value, encoded, put, asked)
            elif depth < DEPTH_MAX and isinstance(value, (list, tuple, dict)) and len(value) <= values.ITEMS_MAX:
                queue.extend(_items(path, value, depth + 1))
            elif depth < DEPTH_MAX and (root or self._walks(value)) and not is_iterator(value):
                if objects is not None:
                    objects[path] = value
                queue.extend(_attributes(path, value, depth + 1))
            else:
                self._unknown[path] = value


def _kind_of(value: Any) -> str:
    return f"{type(value).__name__} with {len(value)} items" if values.is_large(value) else type(value).__name__


def is_iterator(value: Any) -> bool:
    """Its place cannot be told."""
    return hasattr(type(value), "__next__") and hasattr(type(value), "__iter__") and not isinstance(value, io.IOBase)


def _items(path: Path, value: Any, depth: int) -> Iterator[tuple[Path, Any, Callable[[Any], None] | None, int]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(pairs):
        put = None if isinstance(value, tuple) else _setter_of_item(value, key)
        yield (*path, f"[{key!r}]"), item, put, depth


def _setter_of_item(owner: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        owner[key] = value

    return put


def _attributes(path: Path, value: Any, depth: int) -> Iterator[tuple[Path, Any, Callable[[Any], None] | None, int]]:
    for name, item in generators.attributes(value):
        if name.startswith("__"):
            continue  # a library's notes about the object, such as the arguments that Lightning keeps
        yield (*path, f".{name}"), item, _setter(value, name), depth


def _setter(owner: Any, name: str) -> Callable[[Any], None]:
    return lambda value: setattr(owner, name, value)


def _has_protocol(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _encoded(value: Any, asked: bool) -> Any:
    try:
        return values.encode(_said(value, asked))
    except values.NotPlain:
        return _NOTHING


def _said(value: Any, asked: bool) -> Any:
    return value.state_dict() if asked else value


def _put(leaf: Leaf, encoded: Any) -> bool:
    if leaf.protocol:
        return leaf.value.load_state_dict(values.decode(encoded)) is not False
    if values.put_into(leaf.value, encoded):
        return True
    if leaf.set is None:
        return False
    try:
        leaf.set(values.decode(encoded))
    except (AttributeError, TypeError):
        return False
    return True
