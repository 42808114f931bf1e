"""`determined.pytorch`."""

from __future__ import annotations

from typing import Any

from tenuto.workers.determined.pytorch import samplers
from tenuto.workers.determined.pytorch.callbacks import PyTorchCallback
from tenuto.workers.determined.pytorch.context import PyTorchExperimentalContext, PyTorchTrialContext
from tenuto.workers.determined.pytorch.loaders import DataLoader, TorchData, data_length, to_device
from tenuto.workers.determined.pytorch.reducing import Reducer
from tenuto.workers.determined.pytorch.schedulers import SteppedAsThere as LRScheduler
from tenuto.workers.determined.pytorch.scripts import Trainer, init
from tenuto.workers.determined.pytorch.trial import PyTorchTrial
from tenuto.workers.determined.pytorch.units import Batch, Epoch, TrainUnit
from tenuto.workers.harness.determined_names import UnknownName
from tenuto.workers.pytorch.reducers import MetricReducer

INSTEAD = {
    "CheckpointLoadContext": "tenuto.pytorch.load_model_state(directory) reads the weights of a downloaded checkpoint",
    "load_trial_from_checkpoint_path": "tenuto.pytorch.load_model_state(directory) reads the weights of a downloaded checkpoint",
    "adapt_batch_sampler": "the loader repeats, skips and divides its batches by itself",
}
"""Names that are not stood in for, with what to do instead."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    why = INSTEAD.get(name, "docs/from-determined.md lists what there is")
    raise UnknownName(f"determined.pytorch, which Tenuto stands in for, has no {name!r}: {why}.")


__all__ = [
    "Batch",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchData",
    "TrainUnit",
    "Trainer",
    "data_length",
    "init",
    "samplers",
    "to_device",
]
