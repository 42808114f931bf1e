"""Hooks of the user's in modules, parameters and optimizers: the functions and objects that they call may have a state, and a
fresh process has those that `__init__` registers."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.graph import Path

_OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_PARAMETERS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OF_OPTIMIZERS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
NAMES_SHOWN_MAX = 4


def hooks_of(value: nn.Module | Optimizer) -> list[tuple[Path, Any]]:
    """Hooks of a module and its own parameters, or of an optimizer, by their paths from it."""
    if isinstance(value, Optimizer):
        return list(_users(value, _OF_OPTIMIZERS, ""))
    found = list(_users(value, _OF_MODULES, ""))
    for name, parameter in value._parameters.items():
        if parameter is not None and (parameter._backward_hooks or parameter._post_accumulate_grad_hooks):
            found += _users(parameter, _OF_PARAMETERS, f"{name}.")
    return found


def _users(owner: Any, kinds_of: Sequence[str], prefix: str) -> Iterator[tuple[Path, Any]]:
    for kind in kinds_of:
        hooks = getattr(owner, kind, None)
        for place, hook in enumerate([hook for hook in hooks.values() if _is_users(hook)] if hooks else ()):
            yield (f".{prefix}{kind.strip('_')}", f"[{place}]"), hook


def _is_users(hook: Any) -> bool:
    if isinstance(hook, functools.partial):
        return _is_users(hook.func)
    if isinstance(hook, types.MethodType):
        return generators.is_users(type(hook.__self__))
    return generators.is_users(hook if isinstance(hook, kinds.CODE) else type(hook))


class Hooks:
    """Hooks of wrapped objects when this object was made."""

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        self._models, self._optimizers = list(models), list(optimizers)
        self._begun = self._names()

    def _names(self) -> dict[str, str]:
        owners: list[tuple[str, nn.Module | Optimizer]] = [
            (f"{'model' if index == 0 else f'model {index}'}{f'.{name}' if name else ''}", module)
            for index, model in enumerate(self._models)
            for name, module in model.named_modules()
        ]
        owners += [(f"optimizer {index}", optimizer) for index, optimizer in enumerate(self._optimizers)]
        return {
            f"{name}{''.join(path)}": kinds.name_of_class(hook if hasattr(hook, "__qualname__") else type(hook))
            for name, owner in owners
            for path, hook in hooks_of(owner)
        }

    def change(self) -> str | None:
        """A sentence for the user if a fresh process would have other hooks; else None."""
        now = self._names()
        names = sorted({name for name, _ in now.items() ^ self._begun.items()})
        if not names:
            return None
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        return (
            f"hooks were added or removed since __init__ ({', '.join(names[:NAMES_SHOWN_MAX])}{more}), and a restarted trial has "
            "those of __init__; register them there, and let them do nothing until they are wanted"
        )
