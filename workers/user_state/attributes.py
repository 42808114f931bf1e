"""Attributes of the user's objects that training changes, and those of further objects of the user's that these hold.

A checkpoint contains the values that differ from those that the constructors made, so that a value that follows from the
configuration is taken from there, and a large one that never changes is not written again and again. A fresh process makes the
same objects, and gets the values back. The identity of an object matters as much as its content: one that the constructors made
is changed in place, wherever it is held by then, and never replaced by a copy; objects that others save are only referred to.

An entry is [path, encoded]. A path names an object that the constructors made by where it was found first, or an attribute of it.
The entry has the object's content, or (`ref`, `new`, `gone`, numbers, strings, tuples, ...) the new value of the attribute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.code_variables import CODE_PREFIX, WRITTEN_BYTES_MAX, UsersModules, Variables, bytes_of
from tenuto.workers.user_state.entries import ASKED, StateEntry, encoder, entries_of, identity, mark_of, said_by_themselves
from tenuto.workers.user_state.entries import Key as Key
from tenuto.workers.user_state.graph import OBJECTS_MAX, Graph, GraphNode, GraphRules, Own, Path, What
from tenuto.workers.user_state.kinds import KIND
from tenuto.workers.user_state.kinds import is_iterator as is_iterator
from tenuto.workers.user_state.object_names import Begun, Names
from tenuto.workers.user_state.restoring import ask, restored
from tenuto.workers.user_state.standard_objects import is_standard, mark_of_opaque

SMALL_BYTES_MAX = 1 << 20
SLOW_SECONDS = 2.0
"""Duration of one checkpoint's state after which the user is told, once."""
NOT_SEARCHED_MAX = 20
"""Most objects named that are not looked into: more would not be read."""


def name_of(path: Path) -> str:
    return "".join(path)


class Attributes:
    def __init__(
        self,
        roots: Mapping[str, Any],
        *,
        skip: Callable[[], Mapping[str, Any]] = dict,
        skip_types: tuple[type, ...] = (),
        walks: Callable[[Any], bool] = lambda value: generators.is_users(type(value)),
        asks: bool = True,
        adapts: Callable[[Any], Any] = lambda value: None,
        own: Callable[[Any], Own | None] = lambda value: None,
        searched: Callable[[], Mapping[str, Any]] = dict,
        modules: UsersModules | None = None,
        code: bool = False,
    ) -> None:
        """`roots`: objects by names, under which their values are saved. `skip`: objects that others save, by names that are
        the same in each process, and `skip_types` their types. `walks`: predicate for objects whose attributes are searched.
        `asks`: predicate for objects with `state_dict` and `load_state_dict` that are asked, and not searched. `adapts`:
        returns an object with these two methods for one of a library's, else None. `own`: returns what is searched of an object
        that saves itself, None for nothing. `searched`: objects of `skip` of which this is searched, too. `code`: also variables
        of code that is reached are searched, and those of `modules`."""
        self._modules = modules
        self.roots = {**roots, **(modules() if modules is not None else {})}
        variables = Variables() if code else None
        self._rules = GraphRules(skip, skip_types, walks, asks, adapts, own, searched, variables)
        graph = Graph(self.roots, self._rules)
        self._begun = Begun(graph)
        self._marks: dict[Key, str | None] = {}
        self._unknown: dict[Path, Any] = {}
        """Objects of the last search that can neither be saved nor searched."""
        self._bad: dict[Path, Any] = {}
        """Names under which the loss of a state was already reported."""
        self._large: dict[Path, tuple[Any, int]] = {}
        """Variables of code that are not written because of their size, and this size."""
        self._cut: dict[Path, Any] = {}
        self._marks = self.marks()
        self._begun_unknown = dict(self._unknown)
        self._begun_opaque = {path: mark_of_opaque(value) for path, value in self._unknown.items()}
        self.seconds: dict[str, float] = {}
        """Seconds that the last call of `state` took, by attribute of a root: training waits for it."""

    def widen(self) -> None:
        """Takes what `searched` has come to hold since the beginning for what each process makes, such as the layers that a model
        makes when it is built."""
        graph = Graph(self.roots, self._rules)
        self._begun.add(graph, but=self.roots)
        self._marks = {key: mark for key, mark in self.marks().items() if key[0][0] not in self.roots} | self._marks
        unknown = {path: value for path, value in self._unknown.items() if path[0] not in self.roots}
        self._begun_unknown = unknown | self._begun_unknown
        opaque = {path: mark_of_opaque(value) for path, value in unknown.items()}
        self._begun_opaque = opaque | self._begun_opaque

    def _take_in(self, names: Iterable[str] = ()) -> None:
        """Takes in modules that were loaded since the beginning: all that they hold counts as changed. `names`: of roots whose
        modules are loaded now."""
        if self._modules is None:
            return
        for name in sorted({name for name in names if name.startswith(CODE_PREFIX)} - self.roots.keys()):
            with suppress(Exception):  # then its values have no place, which is told
                self._modules.load(name)
        known = set(self.roots)
        new = {name: module for name, module in self._modules().items() if name not in known}
        if not new:
            return
        self.roots |= new
        self._begun.add(Graph(self.roots, self._rules), but=known)
        entries = [entry for entry in self._entries() if entry.key[0][0] in new]
        late = {entry.key: mark_of(entry) for entry in entries}
        code = {entry.key for entry in entries if isinstance(entry.value, kinds.CODE)}
        self._marks |= {key: mark for key, mark in late.items() if mark is None or key in code}
        unknown = {path: value for path, value in self._unknown.items() if path[0] in new}
        self._begun_unknown = unknown | self._begun_unknown
        self._begun_opaque = {path: mark_of_opaque(value) for path, value in unknown.items()} | self._begun_opaque

    def marks(self) -> dict[Key, str | None]:
        """Marks of all values now, for comparison in this process."""
        return {entry.key: mark_of(entry) for entry in self._entries()}

    def state(self, small: bool = False) -> list[list[Any]]:
        """[path, encoded value] of each value that changed since the beginning: copies. `small`: also of unchanged values, up
        to SMALL_BYTES_MAX."""
        self._take_in()
        if self._rules.variables is None:
            return self._state(small)
        self._rules.variables.only_changing = not small
        try:
            return self._state(small)
        finally:
            self._rules.variables.only_changing = False

    def _state(self, small: bool) -> list[list[Any]]:
        found: list[list[Any]] = []
        self._large, written = {}, 0
        self.seconds, began = {}, time.perf_counter()
        for entry in self._entries():
            path, sets = entry.key
            mark = mark_of(entry)
            wanted = small and getattr(entry.value, "nbytes", 0) <= SMALL_BYTES_MAX
            if mark is None:
                self._note_unsaved(entry)
            elif wanted or mark != self._marks.get(entry.key):
                encoded = entry.encode(True)
                size = bytes_of(encoded) if self._may_grow(entry) else 0
                if written + size > WRITTEN_BYTES_MAX:
                    self._large[path] = (entry.value, size)
                elif not (sets and self._is_lost_code(entry, encoded)):
                    found.append([list(path), encoded])
                    written += size
            name, now = name_of(path[:2]), time.perf_counter()
            self.seconds[name] = self.seconds.get(name, 0.0) + now - began
            began = now
        return found

    def _may_grow(self, entry: StateEntry) -> bool:
        """True for a variable of code that is no tensor or module of the beginning."""
        known = entry.asked or (entry.key in self._marks and kinds.is_leaf(entry.value))
        return entry.key[0][0].startswith(CODE_PREFIX) and not known

    def _note_unsaved(self, entry: StateEntry) -> None:
        path, _ = entry.key
        if entry.asked:
            self._bad[path] = entry.value
        elif self._marks.get(entry.key, "") is not None and not self._is_said(path):
            self._unknown[path] = entry.value

    def _is_said(self, path: Path) -> bool:
        """True if this path, or one that contains it, is already reported."""
        return any(other[: len(path)] == path for other in self._unknown)

    def _is_lost_code(self, entry: StateEntry, encoded: Any) -> bool:
        """True for a function that a fresh process cannot find by its name, such as a lambda; reported if it replaces another
        one."""
        if not isinstance(encoded, dict) or encoded[KIND] != "code":
            return False
        name = encoded["value"]
        if kinds.found_by_name(name) is entry.value or self._begun.named.get(name) is not None:
            return False
        if entry.key[0] in self._begun.code:
            self._unknown[entry.key[0]] = entry.value
        return True

    def searched(self) -> dict[str, Any]:
        """All objects by the names with which paths begin."""
        return {**self._rules.searched(), **self.roots}

    def restore(self, state: Iterable[Any], touched: Iterable[Key] = (), named: Callable[[Path], str] = name_of) -> list[str]:
        """Restores values, except those at `touched`. Returns the names of values for which there is no place."""
        entries = _untouched([(tuple(item[0]), item[1]) for item in state], touched)
        self._take_in(path[0] for path, _ in entries)
        before = self.marks() if entries else {}
        asked = ask(self.roots, self._rules, self._begun, entries)
        if asked:  # what these have set themselves stays
            touched = changed(before, self.marks())
            entries = _untouched([entry for entry in entries if entry[0] not in asked], touched)
        return list(dict.fromkeys(map(named, restored(self.roots, self._rules, self._begun, entries))))

    def slow(self) -> str | None:
        """A sentence for the user if the last call of `state` took long."""
        if (total := sum(self.seconds.values())) < SLOW_SECONDS:
            return None
        name, most = max(self.seconds.items(), key=lambda item: item[1])
        return (
            f"training stood still for {total:.1f} s at a checkpoint while attributes were looked through and copied, "
            f"{most:.1f} s of them for {name}; keep what training does not change elsewhere, such as in the data set"
        )

    def unsaved(self) -> list[tuple[Path, str, str]]:
        """Path, name and type of objects that existed when `state` was called and cannot be saved: iterators, objects added
        since the beginning, and objects that were not searched."""
        found = [
            (path, name_of(path), _kind_of(value))
            for path, value in self._unknown.items()
            if self._begun_unknown.get(path) is not value or self._is_changed(path, value)
        ]
        beyond = f"beyond the {OBJECTS_MAX:,} objects that are looked through, or nested too deep"
        found += [
            (path, name_of(path), f"{_kind_of(value)} of {size >> 20} MiB, over the {WRITTEN_BYTES_MAX >> 20} MiB for globals")
            for path, (value, size) in self._large.items()
        ]
        bad = "whose state_dict holds more than plain values"
        found += [(path, name_of(path), f"{_kind_of(value)} {bad}") for path, value in self._bad.items()]
        return found + [(path, name_of(path), f"{_kind_of(value)} {beyond}") for path, value in self._cut.items()]

    def not_searched(self) -> list[tuple[Path, str]]:
        """Path and type of objects that a checkpoint neither holds nor looks into: those of other libraries."""
        found = [
            (path, _kind_of(value))
            for path, value in self._unknown.items()
            if not kinds.is_iterator(value) and not (path[0].startswith(CODE_PREFIX) and (callable(value) or is_standard(value)))
        ]
        return found[:NOT_SEARCHED_MAX]

    def _is_changed(self, path: Path, value: Any) -> bool:
        if kinds.is_iterator(value) and not path[0].startswith(CODE_PREFIX):
            return True
        mark = mark_of_opaque(value)
        return mark is None or mark != self._begun_opaque.get(path)

    def _entries(self) -> Iterator[StateEntry]:
        graph = Graph(self.roots, self._rules)
        names = Names(graph, self._begun)
        self._cut = graph.cut
        self._unknown, self._bad = {}, {}
        for node in graph.nodes.values():
            if node.what is What.OPAQUE:
                path = names.of(node.value) or names.made.get(id(node.value))
                if path is not None:
                    self._unknown[path] = node.value
        self._unknown |= names.nowhere
        probing, copying = encoder(graph, names, False), encoder(graph, names, True)
        said = said_by_themselves(graph)
        for node in graph.nodes.values():
            name = names.of(node.value)
            if node.what is What.LEAF and identity(node.value) in said:
                continue
            if name is not None and node.what not in (What.OPAQUE, What.THEIRS):
                yield from entries_of(node, name, graph, names, (probing, copying))
                if node.looked and node.what in (What.OBJECT, What.ASKED):
                    yield from self._gone(node, name)

    def _gone(self, node: GraphNode, name: Path) -> Iterator[StateEntry]:
        """Entries of attributes that the constructors made and that the object no longer has."""
        have = {f".{key}" for key, _ in node.attributes}
        for part in sorted(self._begun.parts.get(name, frozenset()) - have):
            if part[1:] in getattr(node.value, "__dict__", ()):
                continue  # it is no longer searched
            yield StateEntry(((*name, part), True), None, lambda copy: {KIND: "gone", "value": None})


def changed(before: Mapping[Key, str | None], after: Mapping[Key, str | None], asked: bool = True) -> set[Key]:
    """Keys of values that other code has changed, by their marks. `asked`: also of objects that load their state themselves; not
    where loading another one may show in their state, as with optimizers that share groups, and is not all of it."""
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return keys if asked else {key for key in keys if not (after.get(key) or before.get(key) or "").startswith(ASKED)}


def _untouched(entries: list[tuple[Path, Any]], touched: Iterable[Key]) -> list[tuple[Path, Any]]:
    changed = set(touched)
    paths = {path for path, _ in changed}
    anew = {path for path, sets in changed if sets}
    return [
        (path, encoded)
        for path, encoded in entries
        if path not in paths and not any(path[:end] in anew for end in range(2, len(path)))
    ]


def _kind_of(value: Any) -> str:
    return f"{type(value).__name__} with {len(value)} items" if kinds.is_large(value) else type(value).__name__
