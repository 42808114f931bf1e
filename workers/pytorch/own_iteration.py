"""The user's own loader, in use: the class's `__iter__` may change what torch's iteration gives (move, mix, limit batches), and
code in loader workers may look for its own data set.

A loader is fed: while the harness asks it for a batch, torch's part of its iteration gives the batches that the harness makes;
everything else is the user's own. For this the object has a class for a moment that stands between the user's and torch's in the
order of `super()`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from tenuto.workers.user_state.attributes import Attributes

_BEGIN = "_tenuto_begin"
_LIBRARIES = ("torch.", "torchdata.")
FED_CLASSES_MAX = 64
"""Most classes of loaders kept; a process has one or two."""


def has_own_iteration(loader: DataLoader[Any]) -> bool:
    """True if the loader's class is a user's that changes what its iteration gives."""
    return any(
        name in vars(kind)
        for kind in type(loader).__mro__
        if kind is not DataLoader and not kind.__module__.startswith(_LIBRARIES)
        for name in ("__iter__", "_get_iterator")
        if issubclass(kind, DataLoader)
    )


def attributes_of(loader: DataLoader[Any]) -> Attributes:
    """State that the user's class keeps in the loader, without what torch keeps there."""
    torchs = vars(DataLoader(()))  # type: ignore[arg-type]

    def others() -> dict[str, Any]:
        found = {name: value for name, value in vars(loader).items() if name in torchs}
        return {name: value for name, value in found.items() if not isinstance(value, (bool, int, float, str, type(None)))}

    types_of_others = (Dataset, Sampler, nn.Module, torch.optim.Optimizer)
    return Attributes({type(loader).__name__: loader}, skip=others, skip_types=types_of_others, asks=False)


class Feed:
    """Torch's part of a loader's iteration: one pass."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin, self._batches = begin, begin()

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def _reset(self, *_: Any) -> None:
        """Called by torch in place of making another one, for a loader with persistent_workers."""
        self._batches = self._begin()


class _Fed(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return Feed(vars(self)[_BEGIN])


@functools.lru_cache(FED_CLASSES_MAX)
def _fed_class(kind: Any) -> Any:
    if kind is DataLoader:
        return _Fed
    made = types.new_class(kind.__name__, (kind, _Fed))
    made.__qualname__, made.__module__ = kind.__qualname__, kind.__module__
    return made


@contextmanager
def fed(loader: DataLoader[Any], begin: Callable[[], Iterator[Any]]) -> Iterator[None]:
    """Context in which the user's loader gives the batches of `begin()`, a pass, by way of its own code."""
    own, kind = vars(loader), cast(Any, type(loader))  # a class is hashable, whatever its instances are
    before, own["_iterator"], own[_BEGIN] = own.get("_iterator"), None, begin
    loader.__class__ = _fed_class(kind)
    try:
        yield
    finally:
        loader.__class__ = kind
        own["_iterator"] = before
        del own[_BEGIN]


class UsersPass:
    """One pass of the user's loader."""

    def __init__(self, loader: DataLoader[Any], begin: Callable[[], Iterator[Any]]) -> None:
        self._loader, self._begin = loader, begin
        self._batches: Iterator[Any] | None = None
        self.asked = False
        """True: the loader took its batches from torch's iteration, and not from elsewhere."""

    def __iter__(self) -> UsersPass:
        return self

    def __next__(self) -> Any:
        with fed(self._loader, self._source):
            if self._batches is None:
                self._batches = iter(self._loader)
            return next(self._batches)

    def _source(self) -> Iterator[Any]:
        self.asked = True
        return self._begin()


class WorkerInit:
    """`worker_init_fn` that first puts the user's data set where torch says that a worker finds it."""

    def __init__(self, users: Callable[[int], Any] | None) -> None:
        self._users = users

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.users)  # torch's object refuses changes; workers have one each
        if self._users is not None:
            self._users(worker)
