"""The base class of a user's PyTorch trial."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch.utils.data import DataLoader

from tenuto.workers.harness.trainer import TrialBase, TrialInfo, trainer_named
from tenuto.workers.pytorch.callbacks import PyTorchCallback
from tenuto.workers.pytorch.metrics import AnyReducer, Reducer, batch_length

if TYPE_CHECKING:
    from tenuto.workers.harness.trainer import Trainer
    from tenuto.workers.pytorch.context import PyTorchTrialContext


class PyTorchTrial(TrialBase):
    """One configuration in training.

    `__init__` builds and wraps model and optimizer; implement one of `evaluate_batch` and `evaluate_full_dataset`. Attributes
    that training changes are saved: tensors, generators, numbers, strings, arrays and their containers, modules, and objects of
    your own made of these. Other state goes through `state_dict` and `load_state_dict`.

        import torch
        from torch import nn

        from tenuto import pytorch

        class Line(pytorch.PyTorchTrial):
            def __init__(self, context):
                self.context = context
                self.model = context.wrap_model(nn.Linear(1, 1))
                self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr")))

            def points(self):
                x = torch.linspace(-1, 1, 64).unsqueeze(1)
                return torch.utils.data.TensorDataset(x, 3 * x + 1)

            def build_training_data_loader(self):
                return pytorch.DataLoader(self.points(), batch_size=8, shuffle=True)

            def build_validation_data_loader(self):
                return pytorch.DataLoader(self.points(), batch_size=64)

            def train_batch(self, batch):
                x, y = batch
                loss = nn.functional.mse_loss(self.model(x), y)
                self.context.backward(loss)
                self.context.step_optimizer(self.optimizer)
                return loss

            def evaluate_batch(self, batch):
                x, y = batch
                return {"error": nn.functional.mse_loss(self.model(x), y)}
    """

    deterministic: ClassVar[bool] = True
    """False: like `reproducibility: {exact: false}` in the configuration, for a trial that never needs the same bits twice."""
    batches_per_epoch: int | None = None
    """Batches of an epoch, for training data that is a stream without a length: set it, in the class or in `__init__`, to
    count in epochs."""

    @abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Builds and wraps the parts of the trial by `context`, which gives its hyperparameters, too."""

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader[Any]:
        """Returns a `DataLoader`, that of torch, over the training data: with the batches of all slots, which are divided among
        them.

        A batch size of `context.get_per_slot_batch_size()` means the same.

            def build_training_data_loader(self):
                return pytorch.DataLoader(self.records, batch_size=self.context.get_global_batch_size(), shuffle=True)
        """

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader[Any]:
        """Returns a `DataLoader` over the validation data. Its batches may be larger: nothing is kept for a backward pass."""

    @abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Trains one step, and returns the loss, or a dict of metrics: numbers, or tensors with one element.

        `batch`: on the device already. `epoch_idx`: number of the epoch, from 0. `batch_idx`: number of the batch since the trial
        began, from 0. Arguments are passed by name, so their order is free, and the two numbers may be left out.
        """

    def evaluate_batch(self, batch: Any) -> Mapping[str, Any]:
        """Returns the metrics of one `batch`, which is on the device already, without gradients and in evaluation mode: numbers,
        or tensors with one element. `evaluate_batch(self, batch, batch_idx)` also gets the batch's position in the validation
        set."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: DataLoader[Any]) -> Mapping[str, Any]:
        """Returns the metrics of the whole validation set. `data_loader`: of `build_validation_data_loader`. Its batches are not
        on the device: use `context.to_device`."""
        raise NotImplementedError

    def evaluation_reducer(self) -> AnyReducer | Mapping[str, AnyReducer]:
        """Returns the reduction of `evaluate_batch`'s results to one number: a Reducer, or a function of the list of values; for
        all metrics, or by name. Metrics that it does not name are averaged."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Returns the number of records in a `batch`: its weight in averages. Implement it for data sets that make whole batches,
        or for a `collate_fn` that leaves records out or adds some: otherwise the records that the sampler chose are counted. This
        one looks for the first tensor."""
        return batch_length(batch)

    def build_callbacks(self) -> Mapping[str, PyTorchCallback]:
        """Returns callbacks by name, under which their state is saved. They are called in this order."""
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        """Returns state of your own to save with each checkpoint; empty: none."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gets the result of `state_dict` (`state`), after `__init__`."""

    def rebuild(self, state: Mapping[str, Any]) -> None:
        """Called before a checkpoint is loaded, with the saved result of `state_dict` as `state`: for models whose structure
        training changes (parametrizations, layers that are replaced or added; not pruning, which is known). Make the same changes
        again; the weights are loaded after it."""

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        """Returns the trainer of this class, with the facts of one trial (`info`): called by the harness."""
        return trainer_named("tenuto.workers.pytorch.trainer:PyTorchTrainer", cls, info)
