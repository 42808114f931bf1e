"""The PyTorch Trial API: `from tenuto import pytorch`, then derive your trial from `pytorch.PyTorchTrial`."""

from torch.utils.data import DataLoader

from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.context import PyTorchTrialContext
from tenuto.workers.pytorch.lr_scheduler import LRScheduler
from tenuto.workers.pytorch.metrics import Reducer
from tenuto.workers.pytorch.reducers import MetricReducer
from tenuto.workers.pytorch.state import load_model_state
from tenuto.workers.pytorch.trial import PyTorchTrial

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
