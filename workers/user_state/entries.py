"""Entries of a checkpoint's attributes: values that may have changed, with their encoding and their marks."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators, kinds, values
from tenuto.workers.user_state.code_variables import CODE_PREFIX
from tenuto.workers.user_state.graph import DEPTH_MAX, Graph, GraphNode, Path, What
from tenuto.workers.user_state.kinds import KIND, NotPlain
from tenuto.workers.user_state.marks import mark_of_encoded, mark_of_plain
from tenuto.workers.user_state.object_names import Names

ASKED = "asked "
_SHORT = (type(None), bool, int, float)
Key = tuple[Path, bool]
"""Key of an entry: its path, and whether it is the value of an attribute."""


GROUPS = ".parameters of groups"
"""Last part of the path of an optimizer's parameters: training may add groups, which a fresh process has not."""


@dataclass(frozen=True, slots=True)
class StateEntry:
    key: Key
    value: Any
    encode: Callable[[bool], Any]
    """Function that encodes the value. `copy`: into memory of its own. Raises NotPlain."""
    asked: bool = False


def identity(value: Any) -> Any:
    """Identity of a value's memory, if it is a tensor or an array, else None."""
    if kinds.is_tensor(value):
        return (value.data_ptr() or id(value), tuple(value.shape), str(value.dtype))
    return id(value) if isinstance(value, np.ndarray) else None


def said_by_themselves(graph: Graph) -> set[Any]:
    """Identities of tensors and arrays that their owners' `state_dict` contains, so that they are not saved twice."""
    found: set[Any] = set()
    for node in graph.nodes.values():
        if node.what is What.ASKED and node.own is not None and node.own.attributes:
            with suppress(NotPlain):
                _collect(_said(node), found, 0)
    return found - {None}


def _said(node: GraphNode) -> Any:
    """State that an object says. Raises NotPlain for one that a global holds and that has none now, as it may be a library's."""
    try:
        return node.asked.state_dict()
    except Exception as error:
        if node.path[0].startswith(CODE_PREFIX):
            raise NotPlain from error
        raise


def _collect(state: Any, found: set[Any], depth: int) -> None:
    if depth > DEPTH_MAX:
        return
    if isinstance(state, (dict, list, tuple, deque)):
        for item in list(state.values()) if isinstance(state, dict) else list(state):
            _collect(item, found, depth + 1)
    else:
        found.add(identity(state))


def entries_of(
    node: GraphNode, name: Path, graph: Graph, names: Names, encoders: tuple[values.Encoder, values.Encoder]
) -> Iterator[StateEntry]:
    """Entries of an object. `encoders`: one that copies nothing, and one that copies."""
    if node.what is What.ASKED:
        yield StateEntry((name, False), node.value, lambda copy: values.encode(_said(node), copy), True)
    elif node.what is not What.OBJECT and not is_inlined(node):
        yield StateEntry((name, False), node.value, lambda copy: encoders[copy].content(node.value, holes=True))
    if node.what is What.ASKED and (layout := _layout(node.value)) is not None:
        yield StateEntry(((*name, GROUPS), True), layout, _set_to(encoders, layout))
    for key, value in node.attributes:
        if isinstance(value, (types.ModuleType, property)) or (graph.is_theirs(value) and names.of(value) is None):
            continue
        yield StateEntry(((*name, f".{key}"), True), value, _set_to(encoders, value))


def _set_to(encoders: tuple[values.Encoder, values.Encoder], value: Any) -> Callable[[bool], Any]:
    return lambda copy: encoders[copy].encode(value)


def _layout(optimizer: Any) -> list[list[Any]] | None:
    """Parameters of each group of an optimizer; None for another object."""
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list) or not all(isinstance(group, dict) and "params" in group for group in groups):
        return None
    return [list(group["params"]) for group in groups]


def is_inlined(node: GraphNode) -> bool:
    """True for an object that is saved as a part of the only container that holds it."""
    return node.what is What.CONTAINER and node.inner and node.held == 1 and not generators.is_users(type(node.value))


def encoder(graph: Graph, names: Names, copy: bool) -> values.Encoder:
    numbers: dict[int, int] = {}

    def refer(value: Any) -> Any:
        if isinstance(value, (tuple, frozenset)) or kinds.is_frozen(value):
            return None
        node = graph.nodes.get(id(value))
        name = names.of(value)
        if name is None and graph.is_theirs(value):
            raise NotPlain
        if name is not None:
            return None if node is not None and is_inlined(node) else {KIND: "ref", "value": list(name)}
        if node is None:
            return None
        if node.what not in (What.LEAF, What.CONTAINER) or generators.is_users(type(value)):
            raise NotPlain
        if (number := numbers.get(id(value))) is not None:
            return {KIND: "again", "value": number}
        if node.held == 1:
            return None if is_inlined(node) else {KIND: "new", "value": made.content(value)}
        content = made.content(value)
        number = numbers[id(value)] = len(numbers)
        return {KIND: "new", "value": content, "number": number}

    made = values.Encoder(copy, refer)
    return made


def mark_of(entry: StateEntry) -> str | None:
    """Mark of an entry; None if it cannot be saved."""
    if not entry.key[1] and (mark := mark_of_plain(entry.value)) is not None:
        return mark
    try:
        encoded = entry.encode(False)
    except NotPlain:
        return None
    if isinstance(encoded, dict) and encoded[KIND] == "ref":
        return f"ref {encoded['value']}"
    mark = repr(encoded) if type(encoded) in _SHORT else mark_of_encoded(encoded)
    return f"{ASKED}{mark}" if entry.asked else mark
