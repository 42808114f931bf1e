"""The base class of a user's Keras trial."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tenuto.workers.harness.trainer import TrialBase, TrialInfo, trainer_named

if TYPE_CHECKING:
    from tenuto.workers.harness.trainer import Trainer
    from tenuto.workers.keras.context import KerasTrialContext


class KerasTrial(TrialBase):
    """One configuration in training.

    Validation metrics are reported under the names that `model.fit` gives them: `val_loss`, `val_accuracy`, ... Attributes of the
    trial, its callbacks and the parts of its model that training changes are saved: arrays, tensors, generators, numbers, strings
    and their containers, Keras's and TensorFlow's variables, metrics and layers, and objects of your own made of these. Other
    state goes through `state_dict` and `load_state_dict`.

        import keras
        import numpy as np

        from tenuto.keras import KerasTrial

        class Line(KerasTrial):
            def build_model(self):
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile(optimizer=keras.optimizers.SGD(self.context.get_hparam("lr")), loss="mean_squared_error")
                return model

            def build_training_data(self):
                x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
                return x, 3 * x + 1

            def build_validation_data(self):
                return self.build_training_data()
    """

    deterministic: ClassVar[bool] = True
    """False: like `reproducibility: {exact: false}` in the configuration, for a trial that never needs the same bits twice."""
    batches_per_epoch: int | None = None
    """Batches of an epoch, for training data without a length (a generator, an endless `repeat()`): set it, in the class or in
    `__init__`, to count in epochs."""
    validation_batches: int | None = None
    """Number of batches of a validation, for data without an end; None: all."""
    shuffle: bool = True
    """True: arrays and PyDatasets are read in an order drawn for each epoch, like `model.fit(shuffle=True)`. tf.data and torch
    loaders shuffle themselves."""

    def __init__(self, context: KerasTrialContext) -> None:
        """Keeps the `context`. Override it to set attributes of your own."""
        self.context = context
        """Hyperparameters, batch size and slots of this trial."""

    @abstractmethod
    def build_model(self) -> Any:
        """Returns a compiled `keras.Model`."""

    @abstractmethod
    def build_training_data(self) -> Any:
        """Returns a `tf.data.Dataset`, a `keras.utils.PyDataset`, a torch `DataLoader`, or arrays as `(x, y)` or `(x, y,
        sample_weight)`, which are cut into batches of `context.batch_size`."""

    @abstractmethod
    def build_validation_data(self) -> Any:
        """Returns validation data, in the forms of `build_training_data`."""

    def build_callbacks(self) -> Sequence[Any]:
        """Returns Keras callbacks. Their plain attributes (numbers, strings, arrays, and lists and dicts of them) are saved
        with each checkpoint; a callback with `state_dict` and `load_state_dict` decides itself what is."""
        return ()

    def state_dict(self) -> Mapping[str, Any]:
        """Returns state of your own to save with each checkpoint; empty: none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gets the result of `state_dict` (`state`), after `__init__` and `build_model`."""

    def rebuild(self, model: Any, state: Mapping[str, Any]) -> None:
        """Called before a checkpoint is loaded, with the built `model` and the saved result of `state_dict` as `state`: for
        models whose structure training changes (layers that are frozen or unfrozen, `enable_lora`, another `compile`). Make the
        same changes again; weights and the optimizer's state are loaded after it."""

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        """Returns the trainer of this class, with the facts of one trial (`info`): called by the harness."""
        return trainer_named("tenuto.workers.keras.trainer:KerasTrainer", cls, info)
