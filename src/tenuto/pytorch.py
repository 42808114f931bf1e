"""The PyTorch Trial API: `from tenuto import pytorch`, then derive your trial from `pytorch.PyTorchTrial`."""

from tenuto.workers.pytorch import (
    DataLoader,
    LRScheduler,
    MetricReducer,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Reducer,
    load_model_state,
)

__all__ = [
    "DataLoader",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "load_model_state",
]
