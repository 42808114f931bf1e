"""State that the trial and its callbacks hold as attributes: saved and restored without code of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.exactness import Exactness
from tenuto.workers.pytorch.reducers import MetricReducer
from tenuto.workers.pytorch.structure import Structure
from tenuto.workers.pytorch.trial import PyTorchTrial
from tenuto.workers.user_state.attributes import Attributes
from tenuto.workers.user_state.graph import groups_of


def note_unsaved(trial: PyTorchTrial, attributes: Attributes, structure: Structure, exactness: Exactness) -> None:
    """Tells the user about unsaved state, at the first checkpoint, after the attributes' state was taken: nothing is lost by
    then."""
    if type(trial).rebuild is PyTorchTrial.rebuild and (sentence := structure.change()):
        exactness.note_lost(sentence)
    if sentence := attributes.slow():
        exactness.tell_once(sentence)
    for (root, *_), name, kind in attributes.unsaved():
        if not _overrides(attributes.roots[root], "state_dict"):  # else its own code may save it
            exactness.note_lost(
                f"{name} is a {kind}, which a checkpoint cannot hold as it is; make it in __init__ if it is made later, give its "
                "state in state_dict and take it in load_state_dict, or keep nothing there that training depends on"
            )


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

    types = (DataLoader, Dataset, Sampler, MetricReducer)
    return Attributes(_roots(trial, callbacks), skip=others, skip_types=types)


def _overrides(owner: Any, name: str) -> bool:
    return getattr(type(owner), name) not in (getattr(PyTorchTrial, name), getattr(PyTorchCallback, name))


def restore(
    trial: PyTorchTrial,
    callbacks: Mapping[str, PyTorchCallback],
    attributes: Attributes,
    saved: Mapping[str, Any],
    exactness: Exactness,
) -> None:
    """Restores attributes. Changes by `load_state_dict` are the user's own; the other attributes get their saved values."""
    before = attributes.marks()
    if saved["trial"]:
        trial.load_state_dict(saved["trial"])
    for name, callback in callbacks.items():
        callback.load_state_dict(saved["callbacks"][name])
    after = attributes.marks()
    touched = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    if lost := attributes.restore(saved.get("attributes") or (), touched):
        exactness.note_lost(
            f"there is no place for {', '.join(lost)} after __init__; make these attributes there, or save them in state_dict"
        )
