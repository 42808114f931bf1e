"""State of objects of the standard library that have no way of their own to say it and take it."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import io
import itertools
import sys
import types
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from tenuto.workers.user_state import generators, kinds

STEPS_MAX = 10_000_000
"""Most numbers by which a count is advanced, in a quarter of a second: a larger one is no count of what training did."""
_UNSET = object()
_CACHE = functools._lru_cache_wrapper
_DRAWN = frozenset(
    name
    for names in (
        "rand randn randint randperm rand_like randn_like randint_like random uniform normal standard_normal",
        "choice choices sample shuffle permutation integers multinomial bernoulli poisson exponential gauss",
        "getrandbits default_rng dropout manual_seed seed normal_ uniform_ random_ bernoulli_",
        "time perf_counter monotonic now urandom token_hex uuid4 next",
    )
    for name in names.split()
)
"""Names of functions whose results are others at the next call."""


class CountState:
    """State of `itertools.count`, which can only be advanced."""

    def __init__(self, count: itertools.count[Any]) -> None:
        self._count = count

    def state_dict(self) -> dict[str, Any]:
        first, step = _numbers(self._count) or (repr(self._count), None)
        return {"next": first, "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        first, step = _numbers(self._count) or (None, None)
        if type(first) is not int or type(state["next"]) is not int or step != state["step"] or not step:
            return bool(state["next"] == first)
        steps, rest = divmod(state["next"] - first, step)
        if rest or not 0 <= steps <= STEPS_MAX:
            return False
        deque(itertools.islice(self._count, steps), maxlen=0)
        return True


def _numbers(count: Any) -> tuple[Any, Any] | None:
    """Next number and step, by the words for it."""
    try:
        found = ast.literal_eval(f"[{repr(count).partition('(')[2].removesuffix(')')}]")
    except (ValueError, SyntaxError):
        return None
    return found[0], found[1] if len(found) > 1 else 1


class ContextVariableState:
    def __init__(self, variable: ContextVar[Any]) -> None:
        self._variable = variable

    def state_dict(self) -> dict[str, Any]:
        value = self._variable.get(_UNSET)
        return {} if value is _UNSET else {"value": value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "value" in state:
            self._variable.set(state["value"])


def adapted(value: Any) -> CountState | ContextVariableState | None:
    """An object that says and takes the state of this one; None if there is none."""
    if type(value) is itertools.count:
        return CountState(value) if _numbers(value) is not None else None
    return ContextVariableState(value) if type(value) is ContextVar else None


def mark_of_opaque(value: Any) -> str | None:
    """Mark of an object that cannot be saved, by what is visible from outside; None: nothing is."""
    if isinstance(value, types.GeneratorType):
        return "new" if inspect.getgeneratorstate(value) == inspect.GEN_CREATED else None
    if isinstance(value, io.IOBase):
        return _mark_of_file(value)
    if isinstance(value, _CACHE):
        return _mark_of_cache(value)
    if kinds.is_iterator(value):
        return None
    if kinds.is_large(value):
        return kinds.mark_of_large(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "" if value.is_inference() else str(value._version)
    if is_standard(value):
        size = getattr(value, "qsize", None) or getattr(value, "__len__", None)
        try:
            return str(size()) if size is not None else ""
        except Exception:
            return ""
    return ""


def is_standard(value: Any) -> bool:
    """True for an object of the standard library."""
    module = type(value).__module__
    return module.partition(".")[0] in sys.stdlib_module_names and not generators.is_users_module(module)


def _mark_of_file(file: io.IOBase) -> str | None:
    """Position of a file that is read. Nothing of what training depends on is in one that is only written."""
    if file.closed or file in (sys.stdin, sys.__stdin__):
        return "closed" if file.closed else ""
    try:
        return str(file.tell()) if file.readable() else ""
    except (OSError, ValueError):
        return None


def _mark_of_cache(cache: Any) -> str:
    """Number of results in a function's cache, where another process would not make the same ones."""
    code = getattr(inspect.unwrap(cache), "__code__", None)
    drawn = code is None or bool(generators.names_in_code(code) & _DRAWN)
    return str(cache.cache_info().currsize) if drawn or any(map(_may_change, _results(cache))) else ""


def _results(cache: Any) -> list[Any]:
    """Results in the cache, among other objects that it holds. One without a limit holds a dict of them."""
    found: list[Any] = []
    for item in gc.get_referents(cache):
        if item is not cache.__dict__:
            found += list(item.values()) if type(item) is dict else [item]
    return found


def _may_change(value: Any) -> bool:
    """True for a container or an object that its holders may change; numbers that are computed once are not meant to change."""
    if isinstance(value, kinds.CODE) or kinds.is_constant(value) or kinds.is_leaf(value):
        return False
    return kinds.is_container(value) or generators.is_users(type(value)) or kinds.has_protocol(value)
