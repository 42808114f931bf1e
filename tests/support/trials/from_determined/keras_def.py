"""A trial in the form of Determined's TFKerasTrial."""

from typing import Any

import keras
import numpy as np
from determined.keras import InputData, TensorBoard, TFKerasTrial, TFKerasTrialContext


class Circles(TFKerasTrial):
    def __init__(self, context: TFKerasTrialContext) -> None:
        self.context = context
        self.context.configure_fit(shuffle=False)
        sizes = context.get_per_slot_batch_size(), context.get_global_batch_size()
        print("HOOK facts", context.get_data_config(), context.get_trial_id(), *sizes, flush=True)

    def build_model(self) -> Any:
        model = self.context.wrap_model(keras.Sequential([keras.layers.Dense(1)]))
        optimizer = self.context.wrap_optimizer(keras.optimizers.SGD(self.context.get_hparam("lr")))
        model.compile(optimizer=optimizer, loss="mse", metrics=["mean_absolute_error"])
        return model

    def keras_callbacks(self) -> list[Any]:
        return [TensorBoard(update_freq="batch")]

    def data(self, count: int) -> InputData:
        x = np.arange(count, dtype="float32").reshape(-1, 1) / count
        return x, 2 * x

    def build_training_data_loader(self) -> InputData:
        return self.context.wrap_dataset(self.data(40))

    def build_validation_data_loader(self) -> InputData:
        return self.data(20)
