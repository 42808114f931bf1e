"""Graph of the objects that are reachable from some roots: each object once, with the path at which it is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.code_variables import Variables

Path = tuple[str, ...]
"""Path of a value: the root's name, then `.name` of an attribute or `[key]` of an item."""
DEPTH_MAX = 12
OBJECTS_MAX = 10_000
"""Most objects that are searched, or left to others: each checkpoint waits for that."""
NODES_MAX = 500_000
MANY = 1_000
"""Items above which a container is searched last, so that it does not use up the limit."""
_ALSO_WALKED = ("SimpleNamespace", "Namespace", "UserDict", "UserList", "_local")
_THEIR_MODULES = ("types", "argparse", "collections", "_thread")


class What(Enum):
    LEAF = auto()
    """Saved with its content."""
    CONTAINER = auto()
    ASKED = auto()
    """Saves and loads its state itself."""
    OBJECT = auto()
    """Its attributes are searched."""
    THEIRS = auto()
    """Saved by others."""
    OPAQUE = auto()
    """Can neither be saved nor searched."""


@dataclass(slots=True)
class GraphNode:
    value: Any
    what: What
    path: Path
    """Path at which it was found first."""
    asked: Any = None
    own: Own | None = None
    """State to search besides its `state_dict`, if the object saves itself; None if there is none."""
    held: int = 1
    """Number of holders."""
    inner: bool = False
    """True: found as an item of a container."""
    looked: bool = False
    """True: it was searched."""
    children: list[tuple[Path, Any]] = field(default_factory=list)
    attributes: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Own:
    """State of an object beside that which its `state_dict` returns."""

    attributes: list[tuple[str, Any]]
    inner: list[tuple[Path, Any]] = field(default_factory=list)
    """Objects that are saved with it, and whose attributes are searched, too; by their paths from it."""
    reached: list[tuple[Path, Any]] = field(default_factory=list)
    """Objects that it holds elsewhere than in attributes, such as hooks; by their paths from it."""


@dataclass
class GraphRules:
    skip: Callable[[], Mapping[str, Any]]
    skip_types: tuple[type, ...]
    walks: Callable[[Any], bool]
    asks: bool
    adapts: Callable[[Any], Any]
    own: Callable[[Any], Own | None]
    searched: Callable[[], Mapping[str, Any]]
    """Objects of `skip`, by the same names, whose own attributes are searched."""
    variables: Variables | None = None
    """Variables of code that is reached; None: code is not searched."""


class Graph:
    """The graph at this moment. Holds references to the objects found."""

    def __init__(self, roots: Mapping[str, Any], rules: GraphRules) -> None:
        self._rules = rules
        self.theirs = dict(rules.skip())
        self._look(roots)
        self.groups = self._groups_of_asked()
        if any(id(value) in self.nodes and self.nodes[id(value)].what is not What.THEIRS for value in self.groups.values()):
            self.theirs |= self.groups
            self._look(roots)

    def _look(self, roots: Mapping[str, Any]) -> None:
        self.names_of_theirs = {id(value): name for name, value in reversed(self.theirs.items())}
        self.nodes: dict[int, GraphNode] = {}
        self.slots: dict[Path, Any] = {}
        """Objects that may have several holders, by each path."""
        self.named: dict[str, Any] = {}
        """Classes and functions."""
        self.flat: dict[int, tuple[GraphNode, str]] = {}
        """Lists and dicts of scalars that only one container holds; they are no nodes."""
        self.cut: dict[Path, Any] = {}
        """Path of the first object that was not searched because of a limit. None: all were."""
        self._objects = 0
        queue: deque[tuple[GraphNode, int]] = deque()
        late: deque[tuple[GraphNode, int]] = deque()
        for name, root in (*roots.items(), *self._rules.searched().items()):
            if id(root) in self.nodes or self.names_of_theirs.get(id(root), name) != name:
                continue  # known under another name
            node = self.nodes[id(root)] = GraphNode(root, What.OBJECT, (name,))
            self.slots[(name,)] = root
            queue.append((node, 0))
        while queue or late:
            node, depth = (queue or late).popleft()
            if self._objects >= OBJECTS_MAX or len(self.nodes) >= NODES_MAX or depth > DEPTH_MAX:
                if not self.cut and self._holds_more(node):
                    self.cut[node.path[:2]] = self.slots.get(node.path[:2], node.value)
                continue
            node.looked = True
            for parts, value in self._parts(node):
                new = self._note(node, parts, value)
                if new is not None:
                    many = kinds.is_container(new.value) and len(new.value) > MANY
                    (late if many else queue).append((new, depth + 1))
            if node.what is What.ASKED and node.own is not None:
                queue.extend((new, depth) for new in self._inner(node, node.own.inner))

    def _holds_more(self, node: GraphNode) -> bool:
        values = [value for _, value in generators.attributes(node.value)]
        if node.what is What.CONTAINER:
            values += [item for _, item in kinds.pairs(node.value)] if isinstance(node.value, dict) else kinds.items(node.value)
        return any(not isinstance(value, kinds.CODE) and not kinds.is_constant(value) for value in values)

    def _parts(self, node: GraphNode) -> Iterator[tuple[Path, Any]]:
        """Parts of the node; tuples and frozen dataclasses are passed through."""
        if node.what is What.CONTAINER:
            for part, value in _items(node.value):
                if _is_flat(value) and id(value) not in self.names_of_theirs and self._is_flat_still(node, part, value):
                    continue
                yield from self._through((part,), value, 0)
        if node.what in (What.OBJECT, What.ASKED) or (node.what is What.CONTAINER and generators.is_users(type(node.value))):
            for name, value in self._attributes(node):
                if name.startswith("__"):
                    continue  # a library's notes about the object, such as the arguments that Lightning keeps
                node.attributes.append((name, value))
                yield from self._through((f".{name}",), value, 0)
        for parts, value in node.own.reached if node.own is not None else ():
            yield from self._through(parts, value, 0)
        if node.what is What.ASKED:
            yield from parts_of_optimizer(node.value)
        if node.what in (What.OBJECT, What.ASKED) and self._rules.variables is not None:
            for place, kind in self._rules.variables.local_classes(type(node.value)):
                yield (".__class__", f"[{place}]"), kind

    def _attributes(self, node: GraphNode) -> list[tuple[str, Any]]:
        if node.what is What.OBJECT and self._rules.variables is not None:
            variables = self._rules.variables.of(node.value)
            if variables is not None:
                return variables
        own = node.own = self._rules.own(node.value) if node.what is What.OBJECT else node.own
        return generators.attributes(node.value) if own is None else own.attributes

    def _is_flat_still(self, owner: GraphNode, part: str, value: Any) -> bool:
        if id(value) in self.nodes or id(value) in self.flat:
            return False
        self.flat[id(value)] = (owner, part)
        return True

    def _through(self, parts: Path, value: Any, depth: int) -> Iterator[tuple[Path, Any]]:
        if type(value) in kinds.SCALARS:
            return
        if isinstance(value, kinds.CODE):
            if hasattr(value, "__qualname__"):
                self.named.setdefault(kinds.name_of_class(value), value)
            yield from self._through_code(parts, value, depth)
            return
        if kinds.is_constant(value):
            self.named.setdefault(kinds.name_of_class(type(value)), type(value))
        elif depth < DEPTH_MAX and kinds.is_frozen(value):
            self.named.setdefault(kinds.name_of_class(type(value)), type(value))
            for name, item in generators.attributes(value):
                yield from self._through((*parts, f".{name}"), item, depth + 1)
        elif depth < DEPTH_MAX and isinstance(value, (tuple, frozenset)) and len(value) <= kinds.ITEMS_MAX:
            self.named.setdefault(kinds.name_of_class(type(value)), type(value))
            for part, item in _items(value):
                yield from self._through((*parts, part), item, depth + 1)
        else:
            yield parts, value

    def _through_code(self, parts: Path, value: Any, depth: int) -> Iterator[tuple[Path, Any]]:
        if self._rules.variables is None:
            return
        if isinstance(value, MethodType):
            if depth < DEPTH_MAX and generators.is_users(type(value.__self__)):
                yield from self._through((*parts, ".__self__"), value.__self__, depth + 1)
        elif self._rules.variables.has(value):
            yield parts, value

    def _note(self, owner: GraphNode, parts: Path, value: Any) -> GraphNode | None:
        """Adds a part; returns the node if it is still to be searched."""
        path = (*owner.path, *parts)
        owner.children.append((parts, value))
        self.slots[path] = value
        if (first := self.flat.pop(id(value), None)) is not None:
            self._add_flat(*first, value)
        known = self.nodes.get(id(value))
        if known is not None:
            known.held += 1
            return None
        what, asked = self._what(value)
        inner = owner.what is What.CONTAINER or len(parts) > 1
        own = self._rules.own(value) if what is What.ASKED else None
        node = self.nodes[id(value)] = GraphNode(value, what, path, asked, own, inner=inner)
        self._objects += what not in (What.LEAF, What.CONTAINER)
        if what is What.ASKED:
            self._name_groups(node)
        return node if what in (What.CONTAINER, What.OBJECT) or own is not None else None

    def _name_groups(self, node: GraphNode) -> None:
        if isinstance(getattr(node.value, "param_groups", None), list):
            for name, value in groups_of("".join(node.path), node.value).items():
                if self.names_of_theirs.setdefault(id(value), name) == name:
                    self.theirs[name] = value

    def _inner(self, owner: GraphNode, inner: list[tuple[Path, Any]]) -> Iterator[GraphNode]:
        """Nodes of objects that are saved with their owner, and only searched."""
        for parts, value in inner:
            if self.is_theirs(value) or id(value) in self.nodes:
                continue
            path = (*owner.path, *parts)
            owner.children.append((parts, value))
            self.slots[path] = value
            self.nodes[id(value)] = node = GraphNode(value, What.OBJECT, path)
            yield node

    def _add_flat(self, owner: GraphNode, part: str, value: Any) -> None:
        path = (*owner.path, part)
        owner.children.append(((part,), value))
        self.slots[path] = value
        self.nodes[id(value)] = GraphNode(value, What.CONTAINER, path, inner=True, looked=True)

    def _what(self, value: Any) -> tuple[What, Any]:
        rules = self._rules
        if self.is_theirs(value):
            return What.THEIRS, None
        if rules.variables is not None and isinstance(value, (*kinds.CODE, partial)):
            return What.OBJECT, None
        adapted = rules.adapts(value)
        asked = value if adapted is None else adapted
        if rules.asks and kinds.has_protocol(asked):
            return What.ASKED, asked
        if kinds.is_large(value) or isinstance(value, (tuple, frozenset)):
            return What.OPAQUE, None
        if kinds.is_leaf(value):
            return What.LEAF, None
        if kinds.is_container(value):
            return What.CONTAINER, None
        if kinds.is_iterator(value):
            return What.OPAQUE, None
        module = type(value).__module__
        also = type(value).__name__ in _ALSO_WALKED and module in _THEIR_MODULES
        if also or rules.walks(value) or (module == SimpleNamespace.__module__ and hasattr(type(value), "__dataclass_params__")):
            return What.OBJECT, None
        return What.OPAQUE, None

    def is_theirs(self, value: Any) -> bool:
        return id(value) in self.names_of_theirs or isinstance(value, self._rules.skip_types)

    def _groups_of_asked(self) -> dict[str, Any]:
        """Groups of optimizers, which make them anew when their state is loaded."""
        found: dict[str, Any] = {}
        for node in self.nodes.values():
            if node.what is What.ASKED and isinstance(getattr(node.value, "param_groups", None), list):
                found |= groups_of("".join(node.path), node.value)
        return found


def parts_of_optimizer(value: Any) -> Iterator[tuple[Path, Any]]:
    """Objects of an optimizer that another one may share."""
    if isinstance(groups := getattr(value, "param_groups", None), list):
        yield (".param_groups",), groups
        yield from (((".param_groups", f"[{index}]"), group) for index, group in enumerate(groups))
        if isinstance(state := getattr(value, "state", None), dict):
            yield (".state",), state


def groups_of(name: str, optimizer: Any) -> dict[str, Any]:
    """Objects that an optimizer makes anew when its state is loaded, by name."""
    found: dict[str, Any] = {
        f"{name}'s param_groups": optimizer.param_groups,
        f"{name}'s state": getattr(optimizer, "state", None),
    }
    for index, group in enumerate(optimizer.param_groups):
        found[f"{name}'s group {index}"] = group
        if isinstance(group, dict) and isinstance(group.get("params"), list):
            found[f"{name}'s parameters of group {index}"] = group["params"]
    return {name: value for name, value in found.items() if value is not None}


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Items with their paths. Items of a set have none; other keys are constants of a plain kind."""
    if isinstance(value, dict):
        for index, (key, item) in enumerate(kinds.pairs(value)):
            if type(key) in kinds.SCALARS:
                if not _is_scalar(item):
                    yield f"[{key!r}]", item
                continue
            plain = kinds.is_constant(key) or (type(key) is tuple and all(type(part) in kinds.SCALARS for part in key))
            yield f"[{key!r}]" if plain else f"[key {index}]", item
            yield f"[key {index} itself]", key
    elif not isinstance(value, (set, frozenset)):
        for index, item in enumerate(kinds.items(value)):
            if not _is_scalar(item):
                yield f"[{index}]", item


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    return kind in kinds.SCALARS or (kind is tuple and all(type(item) in kinds.SCALARS for item in value))


def _is_flat(value: Any) -> bool:
    kind = type(value)
    if kind is list or kind is set:
        return len(value) <= MANY and all(type(item) in kinds.SCALARS for item in value)
    return kind is dict and len(value) <= MANY and all(type(item) in kinds.SCALARS for pair in value.items() for item in pair)
