"""The Keras 3 Trial API, on Keras's TensorFlow and torch back ends: you write a compiled model and its data; the harness owns the
loop, reports, checkpoints, preemption and exact resume. Users import it as `tenuto.keras`.

This package imports neither Keras nor a framework when it is imported: the user's code imports them first, and chooses the back
end.
"""
