"""Lightning's own checkpoint files: how they are read, and what is set before one is written between two epochs."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tenuto.workers.errors import UserError


def whole(loads: Callable[..., Any]) -> dict[str, Any]:
    """Arguments for loading a whole file: the state of loops, optimizers and callbacks, in Lightning's own format."""
    return {"weights_only": False} if "weights_only" in inspect.signature(loads).parameters else {}


def weights(path: Path) -> dict[str, torch.Tensor]:
    """Weights of a checkpoint that another trial made, perhaps another user's: nothing is unpickled. Raises UserError."""
    try:
        found: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    except pickle.UnpicklingError as error:
        raise UserError(
            "searcher.source_checkpoint holds objects besides tensors (hyperparameters or callbacks that Lightning pickled), "
            "which can run anything when they are loaded, so it is not; save plain values with save_hyperparameters there."
        ) from error
    return found


def begin_loops(loop: Any) -> None:
    """Sets Lightning's counts within an epoch back, as it does itself a moment later."""
    loop.batch_progress.reset_on_run()
    loop.scheduler_progress.reset_on_run()
    loop.automatic_optimization.optim_progress.reset_on_run()
    loop.val_loop.batch_progress.total.reset()
