"""State that modules, optimizers and schedulers hold beside what their `state_dict` returns: plain attributes, such as a counter,
a memory bank, a hidden state, a generator, or the optimizer inside another one."""

from __future__ import annotations

import dis
import functools
from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.hooks import hooks_of
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state import generators, kinds, standard_objects
from tenuto.workers.user_state.graph import Own, Path

_MODULE = frozenset(vars(nn.Module())) - {"training"}
_OPTIMIZER = frozenset(vars(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)))
USERS_MAX = 100
"""Most items of a container of torch's that are looked through for functions of the user's; one for each group of parameters."""
_DEPTH_MAX = 6
"""Deepest nesting of containers in which a scheduler's state is searched for objects."""


def own_state(value: Any) -> Own | None:
    """Attributes of an object that saves itself which its own state leaves out; None: not looked for."""
    if isinstance(value, (PyTorchTrial, PyTorchCallback)):
        return None  # all of their attributes are searched
    if isinstance(value, nn.Module):
        inner: list[tuple[Path, Any]] = [
            ((f".{name}",), part) for name, part in (*value.named_modules(), *value.named_parameters()) if name
        ]
        return Own([*_plain(value, _MODULE), *_unsaved_buffers(value)], inner, hooks_of(value))
    if isinstance(value, nn.Parameter):
        gradient = [] if value.grad is None else [("grad", value.grad)]
        return Own([*gradient, ("requires_grad", value.requires_grad)])
    if isinstance(value, Optimizer):
        return Own(list(_plain(value, _OPTIMIZER)), reached=hooks_of(value))
    kind: Any = type(value)
    if isinstance(value, LRScheduler) and not _is_torchs_alone(kind):
        saved = value.state_dict()
        plain = _plain(value, frozenset(("optimizer",)))
        return Own([(name, item) for name, item in plain if name not in saved or _has_objects(item)])
    if generators.is_users(kind) and kinds.has_protocol(value):
        return Own(list(_plain(value, frozenset())))
    return None


def generators_of(models: list[nn.Module], known: list[Any]) -> list[Any]:
    """Generators that modules hold, without those that are `known`."""
    held = [item for model in models for module in model.modules() for _, item in _plain(module, _MODULE)]
    return generators.own_generators(*(item for item in held if not _is_scalar(item)), skip=[*models, *known])


def _plain(value: Any, skipped: frozenset[str]) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    foreign, users = _is_torchs_alone(kind), any(generators.is_users(base) for base in kind.__mro__)
    torchs = _set_by_torch(kind)
    for name, item in generators.attributes(value):
        if name in skipped or name.startswith("__") or callable(getattr(kind, name, None)):
            continue  # the last: a method that was replaced in this object, which is code
        private = name.startswith("_")
        if foreign or name in torchs:
            if not (_holds_users(item) or (_is_scalar(item) and not private)):
                continue
        elif private and not users and not (_is_scalar(item) or kinds.is_leaf(item)):
            continue  # a library's own cache
        yield name, item


def _unsaved_buffers(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, module._buffers[name]) for name in sorted(module._non_persistent_buffers_set) if name in module._buffers]


def _is_scalar(value: Any) -> bool:
    return type(value) in kinds.SCALARS or (type(value) is tuple and all(type(item) in kinds.SCALARS for item in value))


def _is_torchs(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


@functools.cache
def _is_torchs_alone(kind: Any) -> bool:
    return all(_is_torchs(base) or base.__module__ in ("builtins", "typing", "abc") for base in kind.__mro__)


@functools.cache
def _set_by_torch(kind: Any) -> frozenset[str]:
    """Attributes that torch's classes among the bases set, so that torch keeps what has to be kept of them."""
    found: frozenset[str] = frozenset()
    for base in kind.__mro__:
        if _is_torchs(base) and base not in (nn.Module, Optimizer):
            found |= _set_in(base)
    return found


@functools.cache
def _set_in(kind: Any) -> frozenset[str]:
    codes = [getattr(item, "__code__", None) for item in vars(kind).values()]
    steps = [step for code in codes if code is not None for step in dis.get_instructions(code)]
    return frozenset(str(step.argval) for step in steps if step.opname == "STORE_ATTR")


def names_by_id(optimizer: Optimizer) -> bool:
    """True if the optimizer's own `state_dict` uses ids of its parameters as keys."""
    if type(optimizer).state_dict is Optimizer.state_dict:
        return False
    ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}

    def found(value: Any, depth: int) -> bool:
        if depth > _DEPTH_MAX or not isinstance(value, dict):
            return False
        return any((type(key) is int and key in ids) or found(item, depth + 1) for key, item in value.items())

    return found(optimizer.state_dict(), 0)


class SchedulerState:
    """State of a scheduler. Torch takes all attributes of one for plain values; objects among them (a scheduler inside another
    one, which holds the optimizer) are no part of this state: they stay, and keep their own."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler

    def state_dict(self) -> dict[str, Any]:
        state = self._scheduler.state_dict()
        objects = self._objects(state)
        return {name: value for name, value in state.items() if name not in objects}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        here = self._scheduler.state_dict()
        self._scheduler.load_state_dict(self._objects(here) | dict(state))

    def _objects(self, state: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(self._scheduler, LRScheduler):
            return {}
        own = vars(self._scheduler)
        return {name: value for name, value in state.items() if own.get(name) is value and _has_objects(value)}


def adapted(value: Any) -> Any:
    """An object with `state_dict` and `load_state_dict` for one whose own do not suffice, or are missing; None: there is none."""
    return SchedulerState(value) if isinstance(value, LRScheduler) else standard_objects.adapted(value)


def _holds_users(value: Any) -> bool:
    """True if a value that torch's own code has set is the user's: a function given to it, such as the rate of a LambdaLR or the
    average of an AveragedModel, an object of the user's, or a list, tuple or dict of these."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
    if len(inner) > USERS_MAX:
        return False
    return any(
        isinstance(item, (FunctionType, functools.partial)) or generators.is_users(type(item))
        for item in inner
        if not (kinds.is_constant(item) or isinstance(item, (nn.Module, type)))
    )


def _has_objects(value: Any, depth: int = 0) -> bool:
    """True if the value is, or contains, an object that keeps its own state, one of the user's classes, or code."""
    if isinstance(value, dict):
        items: Any = list(value.values())
    elif isinstance(value, (list, tuple, set, deque)):
        items = list(value)
    else:
        return isinstance(value, kinds.CODE) or kinds.has_protocol(value) or generators.is_users(type(value))
    if len(items) > kinds.ITEMS_MAX or depth > _DEPTH_MAX:
        return False
    return any(_has_objects(item, depth + 1) for item in items)
