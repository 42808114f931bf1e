"""`determined.keras`: trials of TFKerasTrial's form, on Keras 3."""

from __future__ import annotations

from typing import Any

from tenuto.workers.determined.keras import callbacks
from tenuto.workers.determined.keras.callbacks import TensorBoard
from tenuto.workers.determined.keras.context import TFKerasTrialContext
from tenuto.workers.determined.keras.trial import TFKerasTrial
from tenuto.workers.harness.determined_names import UnknownName

ArrayLike = InputData = Any
INSTEAD = {
    "DeterminedCallback": "model.fit owns its loop, which cannot be left and resumed to the bit; write a KerasTrial",
    "SequenceAdapter": "return the arrays, or a keras.utils.PyDataset, as they are",
    "load_model_from_checkpoint_path": "tenuto.keras.load_weights(model, directory) reads the weights of a downloaded checkpoint",
}
"""Names that are not stood in for, with what to do instead."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    why = INSTEAD.get(name, "docs/from-determined.md lists what there is")
    raise UnknownName(f"determined.keras, which Tenuto stands in for, has no {name!r}: {why}.")


__all__ = ["ArrayLike", "InputData", "TFKerasTrial", "TFKerasTrialContext", "TensorBoard", "callbacks"]
