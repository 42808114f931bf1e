"""Settings of the training data: plain attributes of the data set, its transforms and its collate_fn, which training may change
to make records harder, larger or less mixed from some epoch on.

Loader workers have copies, of the time when they are started. As with torch's own loader, what training changes reaches them when
an epoch begins: they are started again then, if anything has changed.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Sampler

from tenuto.workers.harness.trial_context import TrialContext
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state import kinds
from tenuto.workers.user_state.generators import attributes, is_generator, is_users

Path = tuple[str | int, ...]
SAMPLES = 100_000
"""Most numbers of an array that are looked at: some 0.1 ms."""
OBJECTS_MAX = 1_000
"""Most objects that are looked through when an epoch begins and at each checkpoint. A data set may hold millions of records."""
ITEMS_MAX = 100
"""Most items of a list, tuple or dict that is looked into: a longer one is data."""
_OTHERS = (PyTorchTrial, PyTorchCallback, TrialContext, nn.Module, Optimizer, DataLoader, Sampler)
"""Types of objects that are saved in other ways, or hold the data themselves."""
_WALKED = ("torch.utils.data.dataset", "torchvision.")
"""Modules of libraries' objects that hold the user's: parts of a data set, and chains of transforms."""


class _Object:
    """Stands for an object: equal only for the same one, as long as its content is."""

    def __init__(self, value: Any) -> None:
        self.value, self._mark = value, _mark(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and other.value is self.value and other._mark == self._mark

    __hash__ = None  # type: ignore[assignment]


def _mark(value: Any) -> object:
    """Mark of what an object that is not looked into contains, where that is cheap to see; valid in this process."""
    if isinstance(value, torch.Tensor):
        return None if value.is_inference() else value._version
    if isinstance(value, np.ndarray):
        step = max(1, value.size // SAMPLES)
        return (
            (value.shape, zlib.crc32(np.ascontiguousarray(value.reshape(-1)[::step]).tobytes()))
            if value.flags.c_contiguous
            else None
        )
    if isinstance(value, (list, tuple, dict, set, deque)) and len(value) > ITEMS_MAX:
        return kinds.mark_of_large(value)
    return None


class DataSettings:
    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._first = self.now()

    def now(self) -> dict[Path, Any]:
        """Scalars by their paths; in the place of other attributes, the objects."""
        found: dict[Path, Any] = {}
        queue: deque[tuple[Path, Any]] = deque(_roots(self._loader))
        seen: set[int] = set()
        while queue and len(seen) < OBJECTS_MAX:
            path, value = queue.popleft()
            if id(value) in seen:
                continue
            seen.add(id(value))
            for name, part in _parts(value):
                if type(part) in kinds.SCALARS:
                    found[*path, name] = part
                elif is_generator(part) or isinstance(part, _OTHERS):
                    continue
                else:
                    found[*path, name] = _Object(part)
                    queue.append(((*path, name), part))
        return found

    def state(self, settings: Mapping[Path, Any]) -> list[list[Any]]:
        """[path, value] of each scalar that is another than in the beginning, for a checkpoint."""
        return [
            [list(path), value]
            for path, value in scalars(settings).items()
            if path not in self._first or self._first[path] != value
        ]

    def others(self, settings: Mapping[Path, Any]) -> list[str]:
        """Names of attributes that hold another object than in the beginning, or one with another content: no checkpoint has
        them."""
        return [
            "".join(f"[{part!r}]" if index and isinstance(part, int) else f".{part}" for index, part in enumerate(path))[1:]
            for path, value in settings.items()
            if isinstance(value, _Object) and self._first.get(path) != value
        ]

    def put(self, state: list[list[Any]]) -> None:
        """Sets the scalars of a checkpoint; all others are those of the beginning."""
        saved = {tuple(path): value for path, value in state}
        now = self.now()
        for path, value in (scalars(self._first) | saved).items():
            if path not in now or now[path] != value or type(now[path]) is not type(value):
                _set(self._loader, path, value)


def scalars(settings: Mapping[Path, Any]) -> dict[Path, Any]:
    """Settings that a checkpoint can hold."""
    return {path: value for path, value in settings.items() if not isinstance(value, _Object)}


def _roots(loader: DataLoader[Any]) -> Iterator[tuple[Path, Any]]:
    yield ("dataset",), loader.dataset
    collate: Any = loader.collate_fn
    yield ("collate_fn",), collate.__self__ if isinstance(collate, MethodType) else collate


def _parts(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, (list, tuple)):
        return list(enumerate(value)) if len(value) <= ITEMS_MAX else []
    if isinstance(value, dict):
        return [pair for pair in value.items() if type(pair[0]) in (str, int)] if len(value) <= ITEMS_MAX else []
    if isinstance(value, (*_OTHERS, type)) or not (_is_users_own(value) or _is_walked(value)):
        return []
    return [(name, part) for name, part in attributes(value) if not name.startswith("__")]


def _is_users_own(value: Any) -> bool:
    return is_users(type(value)) and not isinstance(value, type)


def _is_walked(value: Any) -> bool:
    return type(value).__module__.startswith(_WALKED)


def _set(loader: DataLoader[Any], path: Path, value: Any) -> None:
    """Sets one scalar, where the objects on the way to it are there."""
    owner: Any = next((root for begin, root in _roots(loader) if begin == path[:1]), None)
    try:
        for part in path[1:-1]:
            key: Any = part
            owner = owner[key] if isinstance(owner, (list, tuple, dict)) else getattr(owner, str(part))
        last = path[-1]
        if isinstance(owner, list) and isinstance(last, int):
            owner[last : last + 1] = [value]
        elif isinstance(owner, dict):
            owner[last] = value
        elif not isinstance(owner, tuple):
            object.__setattr__(owner, str(last), value)
    except (AttributeError, LookupError, TypeError):
        return  # an object that training made, whose owner is named as replaced
