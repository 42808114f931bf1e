"""The Keras 3 Trial API: `from tenuto.keras import KerasTrial`, then derive your trial from it."""

from tenuto.workers.keras import KerasTrial, KerasTrialContext, load_weights

__all__ = ["KerasTrial", "KerasTrialContext", "load_weights"]
