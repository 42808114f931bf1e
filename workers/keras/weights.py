"""The weights file of a Keras trial's checkpoint: names and arrays, readable without pickle, Keras or Tenuto."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from tenuto.workers.errors import WillRepeat

WEIGHTS_FILE = "model.safetensors"
LAYOUT = "tenuto"
"""Metadata, as JSON (in one entry, because the library writes several in any order). order: the arrays' names in the order of
the variables, which the file itself does not keep. types: names of types that NumPy knows only by an extension (bfloat16), by
array; these are stored as whole numbers of the same size."""
_WHOLE = {1: np.uint8, 2: np.uint16}

Arrays = list[tuple[str, np.ndarray[Any, Any]]]
"""(name, value) of each array; names are unique."""


def names_of(variables: Sequence[Any]) -> list[str]:
    """Path of each variable in the model, with a number if several share it."""
    counts: dict[str, int] = {}
    names = []
    for variable in variables:
        path = str(getattr(variable, "path", None) or getattr(variable, "name", "variable"))
        counts[path] = counts.get(path, 0) + 1
        names.append(path if counts[path] == 1 else f"{path}#{counts[path]}")
    return names


def copies_of(variables: Sequence[Any]) -> Arrays:
    """Present values of the variables, in memory of their own."""
    return [(name, np.array(variable.numpy())) for name, variable in zip(names_of(variables), variables, strict=True)]


def write_arrays(arrays: Arrays, path: Path) -> None:
    """Writes the arrays. Raises OSError."""
    types = {name: array.dtype.name for name, array in arrays if array.dtype.isbuiltin != 1}
    stored = {name: array.view(_WHOLE[array.dtype.itemsize]) if name in types else array for name, array in arrays}
    metadata = {LAYOUT: json.dumps({"order": [name for name, _ in arrays], "types": types})}
    try:
        safetensors.numpy.save_file(stored, path, metadata=metadata)
    except safetensors.SafetensorError as error:  # its way to say that the disk is full
        raise OSError(errno.EIO, str(error), str(path)) from error


def read_arrays(path: Path) -> Arrays:
    """Arrays in the order in which they were written. Raises OSError."""
    try:
        with safetensors.safe_open(path, framework="np") as file:
            layout = json.loads((file.metadata() or {}).get(LAYOUT, '{"order": [], "types": {}}'))
            arrays = [(name, file.get_tensor(name)) for name in layout["order"]]
    except safetensors.SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error
    types = layout["types"]
    if not types:
        return arrays
    import ml_dtypes  # type: ignore[import-untyped]  # Keras needs it, too

    return [(name, array.view(getattr(ml_dtypes, types[name])) if name in types else array) for name, array in arrays]


def load_weights(model: Any, directory: str | Path) -> None:
    """Loads the weights of a downloaded checkpoint into a built Keras `model`: in the model's own order, whatever its layers are
    called. `directory`: that of the checkpoint.

    Raises OSError if it cannot be read; UserError if the architecture differs.
    """
    assign(model.weights, read_arrays(Path(directory) / WEIGHTS_FILE), "the model's weights")


def assign(variables: Sequence[Any], arrays: Arrays, what: str) -> None:
    """Assigns arrays in order. Raises WillRepeat if the variables differ from the saved ones."""
    again = "build the same model, optimizer and metrics each time."
    if len(variables) != len(arrays):
        raise WillRepeat(f"{what}: the checkpoint holds {len(arrays)} arrays, but there are {len(variables)} variables; {again}")
    for variable, (name, array) in zip(variables, arrays, strict=True):
        if tuple(variable.shape) != array.shape:
            raise WillRepeat(
                f"{what}: {getattr(variable, 'path', variable)} has shape {tuple(variable.shape)}, but {name} in the checkpoint "
                f"has {array.shape}; {again}"
            )
        variable.assign(array)
