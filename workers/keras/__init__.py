"""The Keras 3 Trial API, on Keras's TensorFlow and torch back ends: you write a compiled model and its data; the harness owns the
loop, reports, checkpoints, preemption and exact resume. Users import it as `tenuto.keras`.

This package imports neither Keras nor a framework when it is imported: the user's code imports them first, and chooses the back
end.
"""

from tenuto.workers.keras.context import KerasTrialContext
from tenuto.workers.keras.trial import KerasTrial
from tenuto.workers.keras.weights import load_weights

__all__ = ["KerasTrial", "KerasTrialContext", "load_weights"]
