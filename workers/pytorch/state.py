"""What a checkpoint of a PyTorch trial holds.

`model.safetensors` (`model_1.safetensors`, ... for further models): weights and buffers, readable without pickle and without
Tenuto. `state.pt`: what only this trial's resumption needs (optimizers, schedulers, scalers, generators, the user's own state,
gradients that were accumulated but not applied); it is pickled, and read by nothing but the trial that wrote it.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from tenuto.workers.harness.errors import UserError

STATE_FILE = "state.pt"
ALIASES = "tenuto_aliases"
"""Metadata of a weights file: names that share one tensor (tied weights), as JSON from name to stored name."""


def model_file(index: int) -> str:
    return "model.safetensors" if index == 0 else f"model_{index}.safetensors"


def save_model(state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Writes the tensors of a state dict. Returns the entries that a weights file cannot hold. Raises OSError."""
    stored: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    others: dict[str, Any] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            others[name] = value
            continue
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
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
    """The weights in a downloaded checkpoint, for `model.load_state_dict`, on the CPU."""
    path = Path(directory) / model_file(index)
    with safetensors.safe_open(path, framework="pt") as file:
        aliases: dict[str, str] = json.loads((file.metadata() or {}).get(ALIASES, "{}"))
        state: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return state | {name: state[stored] for name, stored in aliases.items()}


def save_state(state: dict[str, Any], path: Path) -> None:
    """Raises OSError; UserError where the user's own state cannot be pickled."""
    with path.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # torch says something about positions; the disk's own word is behind it
            cause = error.__context__
            if isinstance(cause, OSError):
                raise OSError(cause.errno, cause.strerror, str(path)) from error
            raise OSError(errno.EIO, str(error), str(path)) from error
        except (AttributeError, TypeError) as error:
            raise UserError(f"the trial's state cannot be saved: {error}; keep only picklable values in state_dict.") from error


def load_state(path: Path) -> dict[str, Any]:
    # Not weights_only: the user's own state and schedulers may hold any type. The file is this trial's own.
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return state
