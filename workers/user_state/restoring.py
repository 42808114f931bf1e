"""Restores entries into the objects of a fresh process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from tenuto.workers.user_state import kinds
from tenuto.workers.user_state.code_variables import CODE_PREFIX, set_of_function
from tenuto.workers.user_state.decoding import HOLE, Decoder
from tenuto.workers.user_state.entries import GROUPS
from tenuto.workers.user_state.graph import Graph, GraphNode, GraphRules, Path, What, parts_of_optimizer
from tenuto.workers.user_state.kinds import KIND
from tenuto.workers.user_state.object_names import Begun, Names

_MISFITS = (AttributeError, TypeError, LookupError, ValueError)
_GONE = object()
_CONTENTS = frozenset(
    ("tensor", "array", "generator", "list", "dict", "ordered", "counter", "defaultdict", "set", "deque", "bytearray", "numbers")
)


def ask(roots: Mapping[str, Any], rules: GraphRules, begun: Begun, entries: Sequence[tuple[Path, Any]]) -> set[Path]:
    """Gives the objects that load their state themselves theirs; returns their paths."""
    graph = Graph(roots, rules)
    if not any(node.what is What.ASKED for node in graph.nodes.values()):
        return set()
    _point_to_theirs(graph, begun)
    graph = Graph(roots, rules)
    restoring = _Restoring(graph, Names(graph, begun).objects(), {**begun.named, **graph.named})
    grouped = {path for path, encoded in entries if path[-1] == GROUPS and restoring.regroup(path[:-1], encoded)}
    return grouped | {path for path, encoded in entries if restoring.ask(path, encoded)}


def restored(roots: Mapping[str, Any], rules: GraphRules, begun: Begun, entries: Sequence[tuple[Path, Any]]) -> list[Path]:
    """Restores entries; returns the paths for which there is no place."""
    graph = Graph(roots, rules)
    lost: list[Path] = _point_to_theirs(graph, begun)
    graph = Graph(roots, rules)
    names = Names(graph, begun)
    restoring = _Restoring(graph, names.objects(), {**begun.named, **graph.named})
    slots: list[tuple[Path, Any]] = []  # set when all objects have their contents, and each is made once
    for path, encoded in entries:
        kind = encoded[KIND] if isinstance(encoded, dict) else None
        if kind in _CONTENTS:
            if not restoring.put(path, encoded):
                lost.append(path)
        else:
            slots.append((path, restoring.decoded(encoded)))
    lost += [path for path, value in slots if not restoring.set(path, value)]
    return lost + _point_to_theirs(Graph(roots, rules), begun)


def _point_to_theirs(graph: Graph, begun: Begun) -> list[Path]:
    """Updates references to objects that others restore and may have made anew, as an optimizer does with its groups when its
    state is loaded."""
    objects = {node.path: node.value for node in graph.nodes.values()}
    lost = []
    for path, name in begun.theirs.items():
        now, held = graph.theirs.get(name, graph.groups.get(name)), graph.slots.get(path)
        if now is None or held is None or held is now or begun.slots[path] != (id(held), type(held)):
            continue
        if not set_at(objects | graph.slots, path, now):
            lost.append(path)
    return lost


class _Restoring:
    def __init__(self, graph: Graph, objects: dict[Path, Any], named: Mapping[str, Any]) -> None:
        self._graph, self._objects = graph, objects
        theirs = {id(node.value) for node in graph.nodes.values() if node.what is What.THEIRS}
        self._decoder = Decoder(objects, named, frozenset(theirs | graph.names_of_theirs.keys()))

    def ask(self, path: Path, encoded: Any) -> bool:
        """Has an object load its state; False if this is no such object, or it does not take the state. Raises what it raises."""
        existing = self._objects.get(path)
        node = self._graph.nodes.get(id(existing)) if existing is not None else None
        if node is None or node.what is not What.ASKED or not isinstance(encoded, dict) or encoded[KIND] not in _CONTENTS:
            return False
        state = self._decoder.decode(encoded)
        with _same_groups(existing, self._shared(node)):
            try:
                return node.asked.load_state_dict(state) is not False
            except Exception:
                if path[0].startswith(CODE_PREFIX):
                    return False  # which is told; the trial may do without a global
                raise

    def regroup(self, path: Path, encoded: Any) -> bool:
        """Makes the groups of an optimizer that existed at the save; False if a parameter is missing."""
        optimizer, layout = self._objects.get(path), self.decoded(encoded)
        if optimizer is None or layout is HOLE or not all(isinstance(parameters, list) for parameters in layout):
            return False
        del optimizer.param_groups[len(layout) :]
        for group, parameters in zip(optimizer.param_groups, layout, strict=False):
            group["params"] = parameters
        for parameters in layout[len(optimizer.param_groups) :]:
            optimizer.add_param_group({"params": parameters})
        return True

    def _shared(self, node: GraphNode) -> set[int]:
        """Ids of groups that are another optimizer's, too."""
        own = f"{''.join(node.path)}'s "
        named = self._graph.names_of_theirs
        return {id(value) for _, value in parts_of_optimizer(node.value) if not named.get(id(value), own).startswith(own)}

    def put(self, path: Path, encoded: Any) -> bool:
        """Restores the content of an object, in place if possible; False if there is no place."""
        existing = self._objects.get(path)
        node = self._graph.nodes.get(id(existing)) if existing is not None else None
        if node is not None and node.what is What.THEIRS:
            return True  # of a checkpoint that held what others restore
        if node is not None and node.what is What.ASKED:
            return False  # it did not take its state
        try:
            if node is not None and self._decoder.put_into(existing, encoded):
                return True
            made = self._decoder.decode(encoded)
        except _MISFITS:
            return False
        if existing is None:
            return set_at(self._objects, path, made)
        done = True
        for slot in [slot for slot, value in self._graph.slots.items() if value is existing] or [path]:
            done = set_at(self._objects, slot, made) and done
        self._objects[path] = made
        return done

    def decoded(self, encoded: Any) -> Any:
        """The decoded value; HOLE if it needs something that does not exist here."""
        if isinstance(encoded, dict) and encoded[KIND] == "gone":
            return _GONE
        try:
            return self._decoder.decode(encoded)
        except _MISFITS:
            return HOLE

    def set(self, path: Path, value: Any) -> bool:
        if value is _GONE:
            return self._delete(path)
        return value is not HOLE and set_at(self._objects, path, value)

    def _delete(self, path: Path) -> bool:
        owner = self._objects.get(path[:-1])
        if owner is None:
            return False
        try:
            delattr(owner, path[-1][1:])
        except (AttributeError, TypeError):
            return not hasattr(owner, path[-1][1:])
        return True


@contextmanager
def _same_groups(optimizer: Any, shared: set[int]) -> Iterator[None]:
    """Context in which an optimizer that makes its groups anew keeps those that it has, which others may hold. `shared`: ids of
    groups that already have their values, from another one."""
    before = dict(parts_of_optimizer(optimizer))
    yield
    groups = before.get((".param_groups",))
    if groups is None or len(optimizer.param_groups) != len(groups):
        return
    for have, now in zip(groups, optimizer.param_groups, strict=True):
        if have is not now and id(have) not in shared:
            have |= now
    optimizer.param_groups = groups
    state = before.get((".state",))
    if state is not None and state is not optimizer.state:
        new = dict(optimizer.state)
        state.clear()
        state.update(new)
        optimizer.state = state


def set_at(objects: Mapping[Path, Any], path: Path, value: Any) -> bool:
    """Sets an attribute, or an item of a container; False if there is no such place."""
    owner, part = objects.get(path[:-1]), path[-1]
    if owner is None and len(path) > 2:  # a function that has no variable yet is not among the objects
        found = getattr(objects.get(path[:-2]), path[-2][1:], None)
        owner = found if isinstance(found, FunctionType) else None
    if owner is None or len(path) < 2:
        return False
    try:
        if part.startswith("."):
            if isinstance(owner, FunctionType):
                set_of_function(owner, part[1:], value)
            elif getattr(owner, "__dict__", {}).get(part[1:], HOLE) is not value:
                setattr(owner, part[1:], value)
            return True
        if isinstance(owner, dict):
            key = next(key for key, _ in kinds.pairs(owner) if f"[{key!r}]" == part)
        else:
            key = int(part[1:-1])
        owner[key] = value
    except (AttributeError, TypeError, LookupError, ValueError, StopIteration):
        return False
    return True
