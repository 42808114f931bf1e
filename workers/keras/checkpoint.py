"""Conversion between a Keras trial in training and the parts of a checkpoint.

`model.safetensors`: weights, under the paths of the model's variables. `state.safetensors`: the variables of optimizers, metrics
and random generators. `state.pickle`: positions, generators, callbacks, and the result of `KerasTrial.state_dict`; it is pickled,
so load it only if you trust its author. `data-*`: a tf.data iterator. `exactness.json`: the machine, and breaks of exactness.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tenuto.workers.checkpoints.exactness import EXACTNESS_FILE
from tenuto.workers.errors import UserError
from tenuto.workers.keras import randomness
from tenuto.workers.keras.batches import BatchesPosition
from tenuto.workers.keras.weights import WEIGHTS_FILE, Arrays, assign, copies_of, read_arrays, write_arrays

STATE_ARRAYS_FILE = "state.safetensors"
STATE_FILE = "state.pickle"
DATA_PREFIX = "data-"
KINDS = ("optimizers", "metrics", "generators", "buffers")


def variables_of(model: Any) -> dict[str, list[Any]]:
    """Variables of a built model that training changes, by kind; each variable once."""
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    generators = randomness.seed_generators(model)
    elsewhere = {id(variable) for variable in (*metrics, *generators)}
    return {
        "weights": _once(variable for variable in model.weights if id(variable) not in elsewhere),
        "optimizers": _once(variable for optimizer in optimizers_of(model) for variable in optimizer.variables),
        "metrics": _once(metrics),
        "generators": _once(generators),
        "buffers": buffers_of(model),
    }


class Buffer:
    """A buffer of a torch module inside a Keras model (statistics of its batch normalisation), which is no variable to Keras."""

    def __init__(self, path: str, value: Any) -> None:
        self.path, self.value, self.shape = path, value, tuple(value.shape)

    def numpy(self) -> Any:
        return self.value.detach().cpu().numpy()

    def assign(self, value: Any) -> None:
        self.value.copy_(keras.ops.convert_to_tensor(value))


def buffers_of(model: Any) -> list[Buffer]:
    if keras.backend.backend() != "torch":
        return []
    found: dict[int, Buffer] = {}
    for layer in model._flatten_layers():  # torch does not see layers that are in lists
        for name, value in layer.named_buffers():
            found.setdefault(id(value), Buffer(f"{layer.path}/{name}", value))
    return list(found.values())


def optimizers_of(model: Any) -> list[Any]:
    """The compiled optimizer, and those that a model with a training step of its own keeps as attributes."""
    found = {id(model.optimizer): model.optimizer} if model.optimizer is not None else {}
    for _, value in sorted(vars(model).items()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, keras.optimizers.Optimizer):
                found[id(item)] = item
    return list(found.values())


def given_rates(model: Any) -> list[float | None]:
    """Learning rate of each optimizer, as `build_model` gave it. None: a schedule, which is no state."""
    return [None if (rate := _rate_of(optimizer)) is None else float(rate.numpy()) for optimizer in optimizers_of(model)]


def take_over_rates(model: Any, now: Sequence[float | None], then: Sequence[float | None] | None) -> list[float]:
    """Adjusts learning rates after the saved state was loaded. `now`: rates that this trial's `build_model` gave; `then`:
    those of the checkpoint's trial (None: an older checkpoint without them). They differ if the trial is a copy in
    population-based training: then its own rate is used, with the factor by which callbacks had changed the other. Returns the
    new rates, for a message."""
    if then is None or len(then) != len(now):
        return []
    changed = []
    for optimizer, new, old in zip(optimizers_of(model), now, then, strict=True):
        rate = _rate_of(optimizer)
        if rate is not None and new is not None and old is not None and new != old:
            changed.append(new * float(rate.numpy()) / old if old else new)
            rate.assign(changed[-1])
    return changed


def built_over(model: Any) -> list[list[int] | None]:
    """Indices among the model's weights that each optimizer was built for. None: it is not built yet."""
    places = {id(variable): place for place, variable in enumerate(variables_of(model)["weights"])}
    found: list[list[int] | None] = []
    for optimizer in optimizers_of(model):
        trained = getattr(_inner(optimizer), "_trainable_variables", ()) if optimizer.built else ()
        own = [places[id(variable)] for variable in trained if id(variable) in places]
        found.append(own if own and len(own) == len(trained) else None)
    return found


def build_optimizers(model: Any, over: Sequence[list[int] | None] | None) -> None:
    """Builds optimizers before the state is loaded: those that a step of the user's own builds at its first use would have
    their variables only later. `over`: result of `built_over` at the save (None: an older checkpoint without it)."""
    weights, optimizers = variables_of(model)["weights"], optimizers_of(model)
    if over is None or len(over) != len(optimizers):
        return
    for optimizer, places in zip(optimizers, over, strict=True):
        if places is not None and not optimizer.built and max(places) < len(weights):
            optimizer.build([weights[place] for place in places])


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)


def _rate_of(optimizer: Any) -> Any:
    rate = getattr(_inner(optimizer), "_learning_rate", None)
    return rate if isinstance(rate, keras.Variable) else None


def _once(variables: Iterable[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


class Captured:
    """A copy of the state, which training does not change."""

    def __init__(self, model: Any, values: Mapping[str, Any], place: BatchesPosition, exactness: bytes) -> None:
        """`values`: picklable. Raises UserError if the user's values are not."""
        self._arrays = {kind: copies_of(variables) for kind, variables in variables_of(model).items()}
        self._files = dict(place.files)
        self._exactness = exactness
        content = {**values, "data": dict(place.values), "counts": {kind: len(self._arrays[kind]) for kind in KINDS}}
        try:
            self._state = pickle.dumps(content)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise UserError(
                f"the trial's state cannot be saved: {error}; keep only picklable values in state_dict and in callbacks."
            ) from error

    def write(self, directory: Path) -> None:
        """Writes the copy. Raises OSError."""
        write_arrays(self._arrays["weights"], directory / WEIGHTS_FILE)
        others: Arrays = [(f"{kind}/{name}", array) for kind in KINDS for name, array in self._arrays[kind]]
        write_arrays(others, directory / STATE_ARRAYS_FILE)
        (directory / STATE_FILE).write_bytes(self._state)
        (directory / EXACTNESS_FILE).write_bytes(self._exactness)
        for name, content in self._files.items():
            (directory / f"{DATA_PREFIX}{name}").write_bytes(content)


class Loaded:
    """Content of a checkpoint, to be loaded into a model."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._weights = read_arrays(directory / WEIGHTS_FILE)
        self._others = read_arrays(directory / STATE_ARRAYS_FILE)
        # The user's own state may have any type; unpickling is safe because the trial itself wrote the file.
        self.values: dict[str, Any] = pickle.loads((directory / STATE_FILE).read_bytes())
        files = {path.name.removeprefix(DATA_PREFIX): path.read_bytes() for path in sorted(directory.glob(f"{DATA_PREFIX}*"))}
        self.place = BatchesPosition(self.values["data"], files)
        self.exactness = (directory / EXACTNESS_FILE).read_bytes()

    def into(self, model: Any) -> None:
        """Loads the content into the model. Raises UserError if the model is another one."""
        have = variables_of(model)
        assign(have["weights"], self._weights, "the model's weights")
        start = 0
        for kind in KINDS:
            if kind not in self.values["counts"]:  # an older checkpoint
                continue
            end = start + self.values["counts"][kind]
            assign(have[kind], self._others[start:end], f"the state of {kind}")
            start = end


def load_weights_only(model: Any, directory: Path) -> None:
    """Loads the weights of another trial's checkpoint into a built model. Raises UserError if they do not fit."""
    what = "the weights of searcher.source_checkpoint"
    try:
        arrays = read_arrays(directory / WEIGHTS_FILE)
    except FileNotFoundError as error:
        raise UserError(f"{what} cannot be taken over: its trial was no Keras trial; it has no {WEIGHTS_FILE}.") from error
    assign(variables_of(model)["weights"], arrays, what)


def floats(logs: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as numbers; values that are none are left out, as in Keras's own logs."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        array = np.asarray(keras.ops.convert_to_numpy(value))
        if array.size == 1:
            found[str(name)] = float(array.reshape(()))
        elif isinstance(value, Mapping):
            found |= {f"{name}_{key}": number for key, number in floats(value).items()}
    return found


Writer = Callable[[Path], None]
