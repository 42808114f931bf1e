"""State that the trial and its callbacks hold as attributes: saved and restored without code of the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from tenuto.workers.harness.entrypoint import entered_context
from tenuto.workers.pytorch import own_state
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.exactness import Exactness
from tenuto.workers.pytorch.reducers import MetricReducer
from tenuto.workers.pytorch.structure import Structure
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state import generators
from tenuto.workers.user_state.attributes import Attributes, Key, changed, name_of
from tenuto.workers.user_state.code_variables import CODE_PREFIX, UsersModules, names_in
from tenuto.workers.user_state.graph import Path, groups_of
from tenuto.workers.user_state.places import place_of, place_of_method


def note_unsaved(
    context: PyTorchTrialContext,
    trial: PyTorchTrial,
    attributes: Attributes,
    structure: Structure,
    exactness: Exactness,
) -> None:
    """Tells the user about unsaved state, at the first checkpoint, after the attributes' state was taken: nothing is lost by
    then."""
    if type(trial).rebuild is PyTorchTrial.rebuild and (sentence := structure.change()):
        exactness.note_lost(sentence)
    if sentence := structure.hooks.change():
        exactness.note_lost(sentence)
    if sentence := attributes.slow():
        exactness.tell_once(sentence)
    objects = attributes.searched()
    exactness.not_searched = [
        f"{shown(path)} ({kind}{f', set in {place}' if (place := place_of(objects, path)) else ''})"
        for path, kind in attributes.not_searched()
    ]
    for optimizer in context._optimizers:
        if own_state.names_by_id(optimizer):
            place = place_of_method(type(optimizer), "state_dict")
            exactness.note_lost(
                f"{type(optimizer).__name__}.state_dict names parameters by id(), which is another number in each process; "
                + (f"it is in {place}: " if place else "")
                + "name them by their place in param_groups, as torch.optim.Optimizer.state_dict does"
            )
    for path, _, kind in attributes.unsaved():
        if not (_saves_itself(objects.get(path[0])) or _is_taken(trial, path)):
            place = place_of(objects, path)
            exactness.note_lost(
                f"{shown(path)} is a {kind}, which a checkpoint cannot hold as it is; "
                + (f"it is set in {place}: " if place else "")
                + "make it in __init__ if it is made later, give its state in state_dict and take it in load_state_dict, or keep "
                "nothing there that training depends on"
            )


def shown(path: Path) -> str:
    """Name of an attribute for people; that of a module from the model on: `model.encoder.memory`."""
    if path[0].startswith(CODE_PREFIX):
        return name_of(path).removeprefix(CODE_PREFIX)
    module = re.fullmatch(r"module (.*) of model (\d+)", path[0])
    if module is None:
        return name_of(path)
    root = "model" if module[2] == "0" else f"model {module[2]}"
    return name_of((f"{root}.{module[1]}" if module[1] else root, *path[1:]))


def _roots(trial: PyTorchTrial, callbacks: Mapping[str, PyTorchCallback]) -> dict[str, Any]:
    return {"self": trial, **{f"callback {name!r}": callback for name, callback in callbacks.items()}}


def attributes_of(context: PyTorchTrialContext, trial: PyTorchTrial, callbacks: Mapping[str, PyTorchCallback]) -> Attributes:
    """Attributes of the trial and its callbacks, without wrapped objects and the data, which are saved in other ways."""

    def others() -> dict[str, Any]:
        wrapped: dict[str, Any] = {"context": context}
        schedulers, reducers = [item.scheduler for item in context._schedulers], [item.reducer for item in context._reducers]
        for kind, found in (("scaler", context._scalers), ("scheduler", schedulers), ("reducer", reducers)):
            wrapped |= {f"{kind} {index}": item for index, item in enumerate(found)}
        for index, optimizer in enumerate(context._optimizers):
            wrapped |= {f"optimizer {index}": optimizer} | groups_of(f"optimizer {index}", optimizer)
        for index, model in enumerate(context._models):
            for kind, named in (
                ("module", model.named_modules()),
                ("parameter", model.named_parameters()),
                ("buffer", model.named_buffers()),
            ):
                wrapped |= {f"{kind} {name} of model {index}": item for name, item in named}
        return wrapped

    directory = entered_context()
    types = (DataLoader, Dataset, Sampler, MetricReducer)
    return Attributes(
        _roots(trial, callbacks),
        skip=others,
        skip_types=types,
        adapts=own_state.adapted,
        own=own_state.own_state,
        searched=lambda: wrapped_by_name(context),
        modules=None if directory is None else UsersModules(directory),
        code=True,
    )


def wrapped_by_name(context: PyTorchTrialContext) -> dict[str, Any]:
    """Wrapped objects that may have state in attributes that their `state_dict` leaves out."""
    found: dict[str, Any] = {}
    for index, model in enumerate(context._models):
        found |= {f"module {name} of model {index}": module for name, module in model.named_modules()}
    found |= {f"optimizer {index}": optimizer for index, optimizer in enumerate(context._optimizers)}
    return found | {f"scheduler {index}": item.scheduler for index, item in enumerate(context._schedulers)}


_SAVING = ("state_dict", "get_extra_state", "_save_to_state_dict")
_BASES = (PyTorchTrial, PyTorchCallback, nn.Module)


def _saves_itself(owner: Any) -> bool:
    """True if the user's own code may save what a checkpoint cannot hold as it is."""
    defined = [next((kind for kind in type(owner).__mro__ if name in vars(kind)), object) for name in _SAVING]
    return any(generators.is_users(kind) for kind in defined if kind not in _BASES)


def _is_taken(trial: PyTorchTrial, path: Path) -> bool:
    """True if the trial's own code restores a variable of its module."""
    name = path[-1].rpartition(".")[2]
    return path[0].startswith(CODE_PREFIX) and name in names_in(type(trial).load_state_dict)


def restore(
    trial: PyTorchTrial,
    callbacks: Mapping[str, PyTorchCallback],
    attributes: Attributes,
    saved: Mapping[str, Any],
    exactness: Exactness,
    begun: Mapping[Key, str | None],
) -> None:
    """Restores attributes. Changes by `load_state_dict` are the user's own; the other attributes get their saved values.
    `begun`: marks before the wrapped objects were loaded."""
    before = attributes.marks()
    if saved["trial"]:
        trial.load_state_dict(saved["trial"])
    for name, callback in callbacks.items():
        callback.load_state_dict(saved["callbacks"][name])
    touched = changed(before, attributes.marks())
    touched |= {key for key in changed(begun, before, asked=False) if key[0][0] not in attributes.roots}
    if lost := attributes.restore(saved.get("attributes") or (), touched, shown):
        exactness.note_lost(
            f"there is no place for {', '.join(lost)} after __init__; make these attributes there, or save them in state_dict"
        )
