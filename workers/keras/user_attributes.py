"""State that a KerasTrial and its callbacks hold as attributes: saved and restored without code of the user's. The user is
told about state that cannot be saved, and about a model whose structure training changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from tenuto.workers.checkpoints.exactness import ExactnessRecord
from tenuto.workers.harness.entrypoint import entered_context
from tenuto.workers.keras import callbacks as callback_state
from tenuto.workers.keras import own_state
from tenuto.workers.keras.checkpoint import optimizers_of, variables_of
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.user_state import generators
from tenuto.workers.user_state.attributes import Attributes
from tenuto.workers.user_state.code_variables import UsersModules
from tenuto.workers.user_state.graph import Path
from tenuto.workers.user_state.places import place_of

CHANGED = (
    "the structure of the model changed since build_model ({what}), which builds it as it was: a restarted trial cannot load "
    "this checkpoint and ends there; make the change in build_model, or again in rebuild(self, model, state) of the trial, which "
    "is called before a checkpoint is loaded"
)
NAMES_SHOWN_MAX = 4
_LIBRARIES = ("keras", "tensorflow")


class LibraryVariables:
    """State of a library's object (a variable, a generator, a metric, a layer, an optimizer), by position."""

    def __init__(self, found: Sequence[Any]) -> None:
        self._found = found

    def state_dict(self) -> dict[str, Any]:
        return {"values": [_whole(np.asarray(variable.numpy())) for variable in self._found]}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Loads the state; False if the variables differ from the saved ones."""
        now = [np.asarray(variable.numpy()) for variable in self._found]
        then = state["values"]
        if [(item.shape, item.itemsize) for item in now] != [(item.shape, item.itemsize) for item in then]:
            return False
        for variable, have, value in zip(self._found, now, then, strict=True):
            variable.assign(value.view(have.dtype) if value.dtype != have.dtype else value)
        return True


def _whole(array: Any) -> Any:
    """The array; number types that NumPy does not know, such as bfloat16, by their bits."""
    return array.view(f"u{array.itemsize}") if array.dtype.isbuiltin == 2 else array


def adapted(value: Any) -> LibraryVariables | None:
    if not any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(value).__mro__):
        return None
    if _is_variable(value):
        return LibraryVariables([value])
    if _is_variable(state := getattr(value, "state", None)):
        return LibraryVariables([state])
    found = getattr(value, "variables", None)
    return LibraryVariables(found) if isinstance(found, (list, tuple)) and all(map(_is_variable, found)) else None


def _is_variable(value: Any) -> bool:
    return callable(getattr(value, "assign", None)) and callable(getattr(value, "numpy", None))


def attributes_of(
    trial: KerasTrial, callbacks: Sequence[Any], model: Any, data: Sequence[Any], drawn: Callable[[], list[Any]]
) -> Attributes:
    """Attributes of the trial and its callbacks, without the model and the data, which are saved in other ways. `drawn`:
    generators that the data handles itself."""

    def others() -> dict[str, Any]:
        kinds: dict[str, Iterable[Any]] = {
            "layer": model._flatten_layers(),
            "optimizer": optimizers_of(model),
            "metric": model.metrics,
            "data": data,
            "generator of the data": drawn(),
            **variables_of(model),
        }
        found = {f"{kind} {index}": item for kind, items in kinds.items() for index, item in enumerate(items)}
        # Names by which checkpoints refer to the same objects, too: the first is the object's.
        return {"context": trial.context, **own_state.parts_of(model), **found}

    roots: dict[str, Any] = {"self": trial, "compile": own_state.Compiled(model)}
    for index, item in enumerate(callbacks):
        if generators.is_users(type(item)) and not hasattr(item, "state_dict"):
            roots[f"callback {index} ({type(item).__name__})"] = item
    directory = entered_context()
    types: tuple[type, ...] = (keras.utils.PyDataset,)
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        types += (tensorflow.data.Dataset,)  # a description of the data; only its iterators have a place
    return Attributes(
        roots,
        skip=others,
        skip_types=types,
        adapts=adapted,
        own=own_state.own_state,
        searched=lambda: own_state.parts_of(model),
        modules=None if directory is None else UsersModules(directory),
        code=True,
    )


def state_of(trial: KerasTrial, callbacks: Sequence[Any], attributes: Attributes) -> dict[str, Any]:
    """State of the user's own objects."""
    return {
        "callbacks": [(type(item).__name__, callback_state.state_of(item)) for item in callbacks],
        "trial": dict(trial.state_dict()),
        "attributes": attributes.state(),
    }


@contextmanager
def as_made(attributes: Attributes) -> Iterator[None]:
    """Context at whose end attributes are as before: a step is traced inside, which runs the user's code for no batch."""
    made = attributes.state(small=True)
    yield
    attributes.restore(made)


@contextmanager
def own_generators_aside(model: Any) -> Iterator[None]:
    with generators.aside(own_state.generators_of(list(own_state.parts_of(model).values()))):
        yield


class ModelStructure:
    """Structure of the model when its variables were made."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._begun = self._layout()

    def _layout(self) -> dict[str, Any]:
        found: dict[str, Any] = {layer.path: bool(layer.trainable) for layer in self._model._flatten_layers()}
        return found | {variable.path: tuple(variable.shape) for variable in variables_of(self._model)["weights"]}

    def change(self) -> str | None:
        now, begun = self._layout(), self._begun
        if now == begun:
            return None
        parts = []
        for what, names in (
            ("new", sorted(now.keys() - begun.keys())),
            ("gone", sorted(begun.keys() - now.keys())),
            ("other", sorted(name for name in now.keys() & begun.keys() if now[name] != begun[name])),
        ):
            if names:
                more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
                parts.append(f"{what}: {', '.join(names[:NAMES_SHOWN_MAX])}{more}")
        return CHANGED.format(what="; ".join(parts))


def note_unsaved(trial: KerasTrial, attributes: Attributes, structure: ModelStructure | None, exactness: ExactnessRecord) -> None:
    """Tells the user about unsaved state, after the attributes' state was taken."""
    rebuilds = type(trial).rebuild is not KerasTrial.rebuild
    if structure is not None and not rebuilds and (sentence := structure.change()):
        exactness.note_lost(sentence)
    if sentence := attributes.slow():
        exactness.tell_once(sentence)
    objects = attributes.searched()

    def place(path: Path) -> str:
        return place_of(objects, path)

    exactness.not_searched = [
        f"{own_state.shown(objects, path)} ({kind}{f', set in {where}' if (where := place(path)) else ''})"
        for path, kind in attributes.not_searched()
    ]
    for path, _, kind in attributes.unsaved():
        if path[0] != "self" or type(trial).state_dict is KerasTrial.state_dict:  # else its own code may save it
            exactness.note_lost(
                f"{own_state.shown(objects, path)} is a {kind}, which a checkpoint cannot hold as it is; "
                + (f"it is set in {where}: " if (where := place(path)) else "")
                + "make it in __init__ if it is made later, give its state in state_dict and take it in load_state_dict, or keep "
                "nothing there that training depends on"
            )


def restore(trial: KerasTrial, attributes: Attributes, saved: Mapping[str, Any], exactness: ExactnessRecord) -> None:
    """Restores attributes. Changes by `load_state_dict` are the user's own; the other attributes get their saved values."""
    before = attributes.marks()
    if saved["trial"]:
        trial.load_state_dict(saved["trial"])
    after = attributes.marks()
    touched = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    objects = attributes.searched()
    if lost := attributes.restore(saved.get("attributes") or (), touched, lambda path: own_state.shown(objects, path)):
        exactness.note_lost(
            f"there is no place for {', '.join(lost)} after __init__; make these attributes there, or save them in state_dict"
        )
