"""The Keras 3 Trial API, on Keras's TensorFlow and torch back ends: you give a compiled model and its data; the harness owns the
loop, reports, checkpoints, preemption and exact resume. Users import it as `tenuto.keras`.

Importing this package imports neither Keras nor a framework: that is for the user's code to do first, and to choose.
"""

from tenuto.workers.keras.context import KerasTrialContext
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.keras.weights import load_weights

__all__ = ["KerasTrial", "KerasTrialContext", "load_weights"]
