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
    """

    deterministic: ClassVar[bool] = True
    """False: like `reproducibility: {exact: false}` in the configuration, for a trial that never needs the same bits twice."""
    batches_per_epoch: int | None = None
    """Batches of an epoch, for training data that is a stream without a length: set it, in the class or in `__init__`, to
    count in epochs."""

    @abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None: ...

    @abstractmethod
    def build_training_data_loader(self) -> DataLoader[Any]: ...

    @abstractmethod
    def build_validation_data_loader(self) -> DataLoader[Any]: ...

    @abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Trains one step on a batch that is on the device already. Returns the loss, or a dict of metrics. `batch_idx` counts
        since the trial began. Arguments are passed by name, so their order is free, and the two numbers may be left out."""

    def evaluate_batch(self, batch: Any) -> Mapping[str, Any]:
        """Metrics of one batch, without gradients and in evaluation mode. `evaluate_batch(self, batch, batch_idx)` also gets
        the batch's position in the validation set."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: DataLoader[Any]) -> Mapping[str, Any]:
        """Metrics of the whole validation set. Its batches are not on the device: use `context.to_device`."""
        raise NotImplementedError

    def evaluation_reducer(self) -> AnyReducer | Mapping[str, AnyReducer]:
        """Reduction of `evaluate_batch`'s results to one number: for all metrics, or by name."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Records in a batch: its weight in averages. Implement it for data sets that make whole batches, or for a `collate_fn`
        that leaves records out or adds some: otherwise the records that the sampler chose are counted. This one looks for the
        first tensor."""
        return batch_length(batch)

    def build_callbacks(self) -> Mapping[str, PyTorchCallback]:
        """Callbacks by name, under which their state is saved. They are called in this order."""
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        """State of your own to save with each checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Gets the result of `state_dict`, after `__init__`."""

    def rebuild(self, state: Mapping[str, Any]) -> None:
        """Called before a checkpoint is loaded, with the saved result of `state_dict`: for models whose structure training
        changes (parametrizations, layers that are replaced or added; not pruning, which is known). Make the same changes again;
        the weights are loaded after it."""

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        return trainer_named("tenuto.workers.pytorch.trainer:PyTorchTrainer", cls, info)
