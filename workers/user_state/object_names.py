"""Names of the objects that the constructors made and that still exist: each object has one name, the same in each process."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection
from types import FunctionType
from typing import Any

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.graph import Graph, GraphNode, Path, What

KEPT_ITEMS_MAX = 64
"""Largest list, dict or set of the beginning that is kept when another replaces it, such as a scheduler's rates. It allows no
weak reference, and one made later at the same address would be taken for it. A larger one would hold memory."""


class Begun:
    def __init__(self, graph: Graph) -> None:
        self.slots: dict[Path, tuple[int, type]] = {}
        self.paths: dict[int, Path] = {}
        self.theirs: dict[Path, str] = {}
        """Slots that hold objects saved by others, with the names of these."""
        self.named: dict[str, Any] = {}
        self.parts: dict[Path, frozenset[str]] = {}
        """Attributes of each object."""
        self.code: set[Path] = set()
        self._alive: dict[int, Any] = {}
        """Objects by id: a weak reference, if possible; the object itself, if its kind is unknown."""
        self.add(graph)

    def add(self, graph: Graph, but: Collection[str] = ()) -> None:
        """Adds what this graph has beside what is known. `but`: names of roots under which nothing is added."""
        self.named = {**graph.named, **self.named}
        slots = {path: value for path, value in graph.slots.items() if path[0] not in but and path not in self.slots}
        for node in graph.nodes.values():
            if node.path[0] in but:
                continue
            if node.looked and node.what in (What.OBJECT, What.ASKED):
                self.parts.setdefault(node.path, frozenset(f".{name}" for name, _ in node.attributes))
            self.code |= {(*node.path, f".{name}") for name, value in node.attributes if isinstance(value, kinds.CODE)}
            if id(node.value) in graph.names_of_theirs or self._knows(node.value):
                continue
            self.paths[id(node.value)] = node.path
            if node.what is What.OPAQUE:
                self._alive[id(node.value)] = lambda value=node.value: value
                continue
            try:
                self._alive[id(node.value)] = weakref.ref(node.value)
            except TypeError:
                if isinstance(node.value, (list, dict, set)) and len(node.value) <= KEPT_ITEMS_MAX:
                    self._alive[id(node.value)] = lambda value=node.value: value
        for path, value in slots.items():
            self.slots[path] = (id(value), type(value))
            if (name := graph.names_of_theirs.get(id(value))) is not None:
                self.theirs[path] = name

    def _knows(self, value: Any) -> bool:
        alive = self._alive.get(id(value))
        return id(value) in self.paths and (alive is None or alive() is value)

    def name_at(self, slot: Path, value: Any) -> Path | None:
        """Name of an object that is certainly one of the beginning: it has lived on, or is in its original slot."""
        path = self.paths.get(id(value))
        if path is None:
            return None
        alive = self._alive.get(id(value))
        if alive is not None:
            return path if alive() is value else None
        return path if self.slots.get(slot) == (id(value), type(value)) else None

    def gone(self, slot: Path, value: Any, graph: Graph) -> Path | None:
        """Name of the object that was in this slot, has the same type, and exists nowhere any more: `value` has replaced it."""
        known = self.slots.get(slot)
        if known is None or known[1] is not type(value):
            return None
        alive = self._alive.get(known[0])
        found = known[0] in graph.nodes and (alive is None or alive() is graph.nodes[known[0]].value)
        is_there = found or known[0] in graph.flat
        return None if is_there else self.paths.get(known[0])


class Names:
    """Names of all objects that a search found."""

    def __init__(self, graph: Graph, begun: Begun) -> None:
        self._graph, self._begun = graph, begun
        self._names: dict[int, Path] = {}
        self._taken: set[Path] = set()
        self.made: dict[int, Path] = {}
        """Objects made since the beginning, and their slots."""
        self.nowhere: dict[Path, Any] = {}
        """Objects made since the beginning for which a fresh process has no place."""
        self._open: deque[tuple[Path, GraphNode]] = deque()
        self._doubtful: deque[tuple[Path, Any]] = deque()
        self._run()

    def of(self, value: Any) -> Path | None:
        """Name of an object; None if a fresh process does not have it."""
        name = self._graph.names_of_theirs.get(id(value))
        return (name,) if name is not None else self._names.get(id(value))

    def objects(self) -> dict[Path, Any]:
        """Objects by name, and by slot."""
        found: dict[Path, Any] = {(name,): value for name, value in self._graph.theirs.items()}
        for node in self._graph.nodes.values():
            found.setdefault(self.of(node.value) or self.made.get(id(node.value), node.path), node.value)
        for path, value in self._graph.slots.items():
            found.setdefault(path, value)
        return found

    def _run(self) -> None:
        for node in self._graph.nodes.values():
            if len(node.path) == 1:
                self._give(node.path, node)
        while self._open or self._doubtful:
            if self._open:
                name, node = self._open.popleft()
                for parts, value in node.children:
                    self._see((*name, *parts), value)
            else:
                self._decide(*self._doubtful.popleft())

    def _give(self, name: Path, node: GraphNode) -> None:
        self._names[id(node.value)] = name
        self._taken.add(name)
        self._open.append((name, node))

    def _see(self, slot: Path, value: Any) -> None:
        if id(value) in self._names or id(value) in self._graph.names_of_theirs:
            return
        name = self._begun.name_at(slot, value)
        if name is not None and name not in self._taken and len(name) > 1:
            self._give(name, self._graph.nodes[id(value)])
        else:
            self._doubtful.append((slot, value))

    def _decide(self, slot: Path, value: Any) -> None:
        """Decides about an object that may be new, after all that certainly are not."""
        if id(value) in self._names or id(value) in self.made:
            return
        node = self._graph.nodes[id(value)]
        name = None if node.what is What.OPAQUE else self._begun.gone(slot, value, self._graph)
        if isinstance(value, FunctionType) and self._begun.named.get(kinds.name_of_class(value)) is value:
            name = slot  # it has got its first attribute
        if name is not None and name not in self._taken:
            self._give(name, node)
            return
        self.made[id(value)] = slot
        if node.what is What.CONTAINER and not generators.is_users(type(value)):
            self._open.append((slot, node))
        elif node.what in (What.ASKED, What.OBJECT, What.CONTAINER) or (node.what is What.THEIRS and slot in self._begun.slots):
            self.nowhere[slot] = value
