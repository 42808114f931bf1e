"""`keras.TFKerasTrial`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from tenuto.workers.determined import facts
from tenuto.workers.harness.trainer import Trainer, TrialInfo, trainer_named
from tenuto.workers.keras.trial import KerasTrial


class TFKerasTrial(KerasTrial):
    """A trial written for Determined, in the shape of Tenuto's."""

    @abstractmethod
    def build_training_data_loader(self) -> Any: ...

    @abstractmethod
    def build_validation_data_loader(self) -> Any: ...

    def keras_callbacks(self) -> Sequence[Any]:
        return []

    def build_training_data(self) -> Any:
        return self.build_training_data_loader()

    def build_validation_data(self) -> Any:
        return self.build_validation_data_loader()

    def build_callbacks(self) -> Sequence[Any]:
        return self.keras_callbacks()

    @classmethod
    def make_trainer(cls, info: TrialInfo) -> Trainer:
        return trainer_named("tenuto.workers.determined.keras.trainer:DeterminedKerasTrainer", cls, info)


def epoch_batches(info: TrialInfo) -> int | None:
    """Batches of an epoch by `records_per_epoch`, which counts for data without a length."""
    records, size = facts.carried(info.config).get("records_per_epoch"), info.hyperparameters.get("global_batch_size")
    if isinstance(records, int) and isinstance(size, int) and records > 0 and size > 0:
        return max(1, records // size)
    return None
