"""Content of a PyTorch trial's checkpoint.

`model.safetensors` (`model_1.safetensors`, ... for further models): weights and buffers, readable without pickle and without
Tenuto. `state.pt`: other state for resuming (optimizers, schedulers, scalers, generators, gradients that were accumulated but not
applied, ...): tensors and plain values, read by torch's loader for those only. `user.pt`, if needed: state of the user's own with
other objects; it is pickled, so load it only if you trust its author. `exactness.json`: the machine, and breaks of exactness.
"""

from __future__ import annotations

import errno
import io
import json
import pickle
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.distributed import fsdp

STATE_FILE = "state.pt"
USER_FILE = "user.pt"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
ALIASES = "tenuto_aliases"
"""Metadata of a weights file: names that share one tensor (tied weights), as JSON from name to stored name."""


MODEL_FILES = "model*.safetensors"


def model_file(index: int) -> str:
    return "model.safetensors" if index == 0 else f"model_{index}.safetensors"


def divided(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Entries of a model's state dict that a weights file contains, and the others."""
    tensors: dict[str, torch.Tensor] = {}
    others: dict[str, Any] = {}
    for name, value in state.items():
        kept = isinstance(value, torch.Tensor) and value.layout is torch.strided
        (tensors if kept else others)[name] = value
    return tensors, others


def save_model(state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Writes the tensors of a state dict. Returns the entries that a weights file cannot contain. Raises OSError."""
    stored: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    tensors, others = divided(state)
    for name, value in tensors.items():
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
        if value.numel() > 0 and key in seen:
            aliases[name] = seen[key]
            continue
        seen[key] = name
        tensor = value.detach().to("cpu")
        # A fresh copy where it is not alone in its memory: weights files hold no overlapping tensors.
        alone = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        stored[name] = tensor if alone and tensor.data_ptr() not in {t.data_ptr() for t in stored.values()} else tensor.clone()
        stored[name] = stored[name].contiguous()
    try:
        safetensors.torch.save_file(stored, path, metadata={ALIASES: json.dumps(aliases, sort_keys=True)})
    except safetensors.SafetensorError as error:  # its way to say that the disk is full
        raise OSError(errno.EIO, str(error), str(path)) from error
    return others


def load_model_state(directory: str | Path, index: int = 0) -> dict[str, torch.Tensor]:
    """Weights of a downloaded checkpoint, for `model.load_state_dict`, on the CPU: tensors by name. `directory`: that of the
    checkpoint. `index`: number of the model in the order of `wrap_model`, from 0. Raises FileNotFoundError if it has no weights
    of that model."""
    whole = fsdp.read_whole(Path(directory))
    if whole is not None:
        model: dict[str, torch.Tensor] = whole["models"][index]
        return model
    path = Path(directory) / model_file(index)
    with safetensors.safe_open(path, framework="pt") as file:
        aliases: dict[str, str] = json.loads((file.metadata() or {}).get(ALIASES, "{}"))
        state: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return state | {name: state[stored] for name, stored in aliases.items()}


def is_plain(value: Any) -> bool:
    """True for a value made only of numbers, strings, tensors and their containers, which is read back without running any
    code."""
    if type(value) in (dict, OrderedDict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple, set):
        return all(is_plain(item) for item in value)
    return type(value) in _PLAIN or type(value) in (torch.Tensor, torch.nn.Parameter)


def _canonical(value: Any, known: dict[int, Any]) -> Any:
    """An equal plain value that is always written as the same bytes, whatever its parts are. Pickle writes an object that
    occurs twice only once, and a string or tuple that was read from a checkpoint is another object than the equal one in the
    code. So equal strings become one object, and tuples one for each place. `known`: by identity, so that one list stays one
    list."""
    kind = type(value)
    if kind is str:
        return sys.intern(value)
    if kind is tuple:
        return tuple([_canonical(item, known) for item in value])
    if kind not in (dict, OrderedDict, list):
        return value
    if id(value) not in known:
        if kind is list:
            made: Any = [_canonical(item, known) for item in value]
        else:
            made = kind((_canonical(key, known), _canonical(item, known)) for key, item in value.items())
        if kind is OrderedDict:
            vars(made).update(_canonical(vars(value), known))  # as a module's state has its versions there
        known[id(value)] = made
    return known[id(value)]


def _unpicklable(error: Exception) -> UserError:
    return UserError(f"the trial's state cannot be saved: {error}; keep only picklable values in state_dict.")


def by_kind(parts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plain parts, and others."""
    plain = {name: value for name, value in parts.items() if is_plain(value)}
    return plain, {name: value for name, value in parts.items() if name not in plain}


def save_parts(parts: Mapping[str, Any], directory: Path) -> None:
    """Writes plain parts and others into their files. Raises OSError, UserError."""
    save_kinds(*by_kind(parts), directory)


def save_kinds(plain: dict[str, Any], others: dict[str, Any] | Pickled, directory: Path) -> None:
    """Writes what `by_kind` returned, as `save_parts` does."""
    save_state(_canonical(plain, {}), directory / STATE_FILE)
    if isinstance(others, Pickled):
        (directory / USER_FILE).write_bytes(others.data)
    elif others:
        save_state(others, directory / USER_FILE)


@dataclass(frozen=True)
class Pickled:
    """Parts as the bytes of their file."""

    data: memoryview

    @classmethod
    def of(cls, parts: dict[str, Any]) -> Pickled:
        """Raises UserError if they cannot be pickled."""
        data = io.BytesIO()
        _write(parts, data)
        return cls(data.getbuffer())


def load_plain(directory: Path) -> dict[str, Any]:
    """Parts of a checkpoint in which no pickle can hide code: another user may have written it. Raises OSError."""
    plain: dict[str, Any] = torch.load(directory / STATE_FILE, map_location="cpu", weights_only=True)
    return plain


def load_parts(directory: Path) -> dict[str, Any]:
    """All parts. Raises OSError, UserError."""
    plain = load_plain(directory)
    return plain | (load_pickled(directory / USER_FILE) if (directory / USER_FILE).exists() else {})


def save_state(state: dict[str, Any], path: Path) -> None:
    """Raises OSError; UserError if the user's own state cannot be pickled."""
    with path.open("wb") as file:
        try:
            _write(state, file)
        except RuntimeError as error:  # torch says something about positions; the disk's own word is behind it
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, cause.strerror, str(path)) from error
            raise OSError(errno.EIO, str(error), str(path)) from error


def _write(state: dict[str, Any], file: Any) -> None:
    try:
        torch.save(state, file)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise _unpicklable(error) from error


def load_pickled(path: Path) -> dict[str, Any]:
    # The user's own state may have any type. The caller knows that the trial itself wrote the file.
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return state
