"""Parameters of each group of an optimizer: training may add groups (gradual unfreezing), and a fresh process makes only those
of `__init__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from tenuto.workers.errors import WillRepeat

Groups = list[list[str | None]]
"""Names of parameters by group, with the model's number; None for one that is in no wrapped model."""


def groups_of(optimizers: Sequence[Optimizer], models: Sequence[nn.Module]) -> list[Groups]:
    names: dict[int, str] = {}
    for name, parameter in _named(models):
        names.setdefault(id(parameter), name)
    return [
        [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]
        for optimizer in optimizers
    ]


def rebuild(optimizers: Sequence[Optimizer], models: Sequence[nn.Module], saved: Sequence[Groups] | None) -> None:
    """Makes the groups that existed at the save, before the optimizers' state is loaded (None: an older checkpoint without
    them). Raises WillRepeat if a parameter is gone."""
    if saved is None:
        return
    known = dict(_named(models))
    for optimizer, groups, now in zip(optimizers, saved, groups_of(optimizers, models), strict=True):
        if groups == now:
            continue
        others = [
            parameter
            for group, names in zip(optimizer.param_groups, now, strict=True)
            for parameter, name in zip(group["params"], names, strict=True)
            if name is None
        ]
        wanted = [[_take(name, known, others) for name in names] for names in groups]
        del optimizer.param_groups[len(wanted) :]
        for group, parameters in zip(optimizer.param_groups, wanted, strict=False):
            group["params"] = parameters
        for parameters in wanted[len(optimizer.param_groups) :]:
            optimizer.add_param_group({"params": parameters})


def _take(name: str | None, known: dict[str, Any], others: list[Any]) -> Any:
    if name is None and others:
        return others.pop(0)
    if name is None or name not in known:
        what = "a parameter that is in no wrapped model" if name is None else f"the parameter {name.partition('.')[2]!r}"
        raise WillRepeat(
            f"the checkpoint's optimizer trains {what}, which is not there after __init__; make it in __init__, or in rebuild, "
            "which is called before a checkpoint is loaded."
        )
    return known[name]


def _named(models: Sequence[nn.Module]) -> list[tuple[str, nn.Parameter]]:
    return [
        (f"{index}.{name}", parameter)
        for index, model in enumerate(models)
        for name, parameter in model.named_parameters(remove_duplicate=False)
    ]
