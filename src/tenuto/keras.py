"""The Keras 3 Trial API: `from tenuto.keras import KerasTrial`, then derive your trial from it."""

from tenuto.workers.keras.context import KerasTrialContext
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.keras.weights import load_weights

__all__ = ["KerasTrial", "KerasTrialContext", "load_weights"]
