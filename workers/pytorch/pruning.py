"""Pruned parameters (torch.nn.utils.prune): a fresh process builds the model without masks, so they are put there before its
state is loaded. Other changes of a model's structure are the user's own (`rebuild`)."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.utils import prune

_ORIGINAL, _MASK = "_orig", "_mask"


def pruned_names(names: Iterable[str]) -> set[str]:
    """Names of parameters that a state with these names has pruned."""
    known = set(names)
    originals = {name.removesuffix(_ORIGINAL) for name in known if name.endswith(_ORIGINAL)}
    return {name for name in originals if name + _MASK in known and name not in known}


def unpruned(names: Iterable[str]) -> dict[str, str]:
    """The names of a state's values that the model had before it was pruned, by those that it has; masks are left out."""
    known = list(names)
    pruned = pruned_names(known)
    masks, originals = {name + _MASK for name in pruned}, {name + _ORIGINAL: name for name in pruned}
    return {name: originals.get(name, name) for name in known if name not in masks}


def renew(model: nn.Module, names: Iterable[str]) -> None:
    """Gives the model masks, which prune nothing yet, for each parameter that is pruned in a state with these names."""
    parameters = dict(model.named_parameters())
    for name in sorted(pruned_names(names)):
        if name in parameters:
            module, _, parameter = name.rpartition(".")
            prune.identity(model.get_submodule(module), parameter)  # type: ignore[no-untyped-call]
