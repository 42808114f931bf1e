"""Check that a model is still built as `__init__` built it: a fresh process loads a checkpoint into the model of `__init__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.optim import Optimizer

from tenuto.workers.pytorch import pruning
from tenuto.workers.pytorch.hooks import Hooks

NAMES_SHOWN_MAX = 4
CHANGED = (
    "the structure of {model} changed since __init__ ({what}), which builds it as it was: a restarted trial cannot load this "
    "checkpoint and ends there; make the change in __init__, or again in rebuild(self, state) of your trial, which is called "
    "before a checkpoint is loaded"
)


class Structure:
    """Structure of the wrapped models when this object was made."""

    def __init__(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer] = ()) -> None:
        self.hooks = Hooks(models, optimizers)
        self._models = list(models)
        self._lazy = [{name for name, module in model.named_modules() if isinstance(module, LazyModuleMixin)} for model in models]
        self._begun = self._layouts()

    def _layouts(self) -> list[dict[str, Any]]:
        return [_layout(model, lazy) for model, lazy in zip(self._models, self._lazy, strict=True)]

    def change(self) -> str | None:
        """A sentence for the user if a fresh process could not load the state of the present models; else None."""
        for index, (begun, now) in enumerate(zip(self._begun, self._layouts(), strict=True)):
            if now != begun:
                model = self._models[index]
                name = "the model" if len(self._models) == 1 else f"model {index}"
                return CHANGED.format(model=f"{name} ({type(model).__name__})", what=_difference(begun, now))
        return None


def _layout(model: nn.Module, lazy: set[str]) -> dict[str, Any]:
    """Shapes of the model's state and types of its modules, by name. `lazy`: layers that get their shapes from the first batch
    are left out, because they take any state."""
    found: dict[str, Any] = {
        name: type(module).__qualname__ for name, module in model.named_modules() if name and name not in lazy
    }
    state = model.state_dict(keep_vars=True)
    for name, before in pruning.unpruned(state).items():
        if name.rpartition(".")[0] not in lazy:
            found[before] = tuple(getattr(state[name], "shape", ()))
    return found


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    parts = []
    for what, names in (
        ("new", sorted(now.keys() - before.keys())),
        ("gone", sorted(before.keys() - now.keys())),
        ("other", sorted(name for name in now.keys() & before.keys() if now[name] != before[name])),
    ):
        if names:
            more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
            parts.append(f"{what}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}")
    return "; ".join(parts)
