"""Kinds of values that a user's objects hold; reading and filling containers without running the user's own methods."""

from __future__ import annotations

import array
import enum
import io
import itertools
import pathlib
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators

SCALARS = (type(None), bool, int, float, complex, str, bytes)
ITEMS_MAX = 100_000
"""Most items of one value: a larger one is data and no state, and would be searched at each checkpoint."""
SAMPLES = 4_096
"""Items compared of a container with more than ITEMS_MAX items, to see whether it changed."""
KIND = "tenuto_kind"
LISTS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
DICTS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
MADE: dict[str, Callable[[Any], Any]] = {name: kind for kind, name in (*LISTS.items(), *DICTS.items())}
FACTORIES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, bool, str, list, dict, set, deque, Counter)}
CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, property)
_CONTAINERS = (list, dict, set, deque)
_ITERATED: tuple[Any, ...] = (list, tuple, set, frozenset, deque)


class NotPlain(Exception):
    """The value cannot be saved."""


def is_tensor(value: Any) -> bool:
    """True for a plain tensor; false for subclasses, such as one that is divided among ranks."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def is_eager(value: Any) -> bool:
    """True for TensorFlow's tensor, which is never changed."""
    return type(value).__module__.startswith("tensorflow.") and hasattr(value, "numpy") and not hasattr(value, "assign")


def is_container(value: Any) -> bool:
    """True for a container that is changed in place."""
    return isinstance(value, _CONTAINERS)


def is_leaf(value: Any) -> bool:
    """True for a value that is changed in place, and holds no object that others hold."""
    if isinstance(value, np.ndarray):  # first: a replay memory holds a hundred thousand, and torch's classes are slow to ask
        return not (value.dtype.hasobject or value.dtype.isbuiltin == 2)
    if is_tensor(value) or generators.is_generator(value):
        return True
    return type(value) in (bytearray, array.array)


def is_constant(value: Any) -> bool:
    """True for a value that is never changed, so that its identity does not matter."""
    return (
        type(value) in SCALARS
        or type(value) is range
        or isinstance(value, (enum.Enum, pathlib.PurePath, np.generic))
        or is_torchs_constant(value)
        or is_eager(value)
    )


def is_torchs_constant(value: Any) -> bool:
    """True for torch's names of a device or a number type."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.device, torch.dtype)


def is_frozen(value: Any) -> bool:
    """True for an instance of a frozen dataclass of the user's: a value like a tuple."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen) and generators.is_users(type(value))


def is_iterator(value: Any) -> bool:
    """True for an iterator, whose position cannot be read."""
    return hasattr(type(value), "__next__") and hasattr(type(value), "__iter__") and not isinstance(value, io.IOBase)


def has_protocol(value: Any) -> bool:
    try:
        return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))
    except Exception:  # a stand-in for an object that does not exist yet
        return False


def name_of_class(kind: Any) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def found_by_name(name: str) -> Any:
    """Class or function that a loaded module has under this name, or None."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, (type, types.FunctionType, types.BuiltinFunctionType)) else None


def pairs(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Stored pairs of a dict, even if the user's subclass overrides `items`."""
    return list(OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value))


def items(value: Any) -> list[Any]:
    """Items of any other container, or tuple."""
    for kind in _ITERATED:
        if isinstance(value, kind):
            return list(kind.__iter__(value))
    raise TypeError


def fill(existing: Any, content: Iterable[Any]) -> None:
    """Replaces the items of a container, or the pairs of a dict. A library's class may need to notice it."""
    if not generators.is_users(type(existing)) and type(existing).__module__.partition(".")[0] not in sys.stdlib_module_names:
        _fill_openly(existing, content)
        return
    if isinstance(existing, dict):
        kind: Any = OrderedDict if isinstance(existing, OrderedDict) else dict
        kind.clear(existing)
        for key, item in content:
            kind.__setitem__(existing, key, item)
    elif isinstance(existing, list):
        list.__setitem__(existing, slice(None), list(content))
    elif isinstance(existing, deque):
        deque.clear(existing)
        deque.extend(existing, content)
    else:
        set.clear(existing)
        set.update(existing, content)


def _fill_openly(existing: Any, content: Iterable[Any]) -> None:
    made = list(content)
    if isinstance(existing, list):
        existing[:] = made
        return
    existing.clear()
    if isinstance(existing, dict):
        for key, item in made:
            existing[key] = item
    elif isinstance(existing, deque):
        existing.extend(made)
    else:
        existing.update(made)


def kind_of_container(value: Any) -> str | None:
    """Kind under which a container is encoded; for a subclass, that of its base."""
    if type(value) in LISTS:
        return LISTS[type(value)]
    if isinstance(value, dict):
        return (
            "defaultdict"
            if isinstance(value, defaultdict)
            else next(DICTS[kind] for kind in type(value).__mro__ if kind in DICTS)
        )
    return next((name for kind, name in ((list, "list"), (set, "set"), (deque, "deque")) if isinstance(value, kind)), None)


def is_large(value: Any) -> bool:
    """True for a container that is too large to be saved, or searched at each checkpoint."""
    container: Any = value if isinstance(value, (*LISTS, deque, dict)) else ()
    return len(container) > ITEMS_MAX


def mark_of_large(container: Any) -> str:
    """Mark of a container with more than ITEMS_MAX items, by some of them: cheap, and valid only in this process."""
    step = max(1, len(container) // SAMPLES)
    content: Any = container.items() if isinstance(container, dict) else container
    last = list(itertools.islice(reversed(container), 8)) if not isinstance(container, (set, frozenset)) else []
    some = [id(item) if type(item) not in SCALARS else item for item in itertools.islice(content, 0, None, step)]
    return f"{len(container)} {hash(repr(some))} {hash(repr([item if type(item) in SCALARS else id(item) for item in last]))}"
