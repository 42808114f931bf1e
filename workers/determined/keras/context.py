"""`keras.TFKerasTrialContext`: Tenuto's, with the names of Determined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tenuto.workers.determined import facts
from tenuto.workers.determined.distributed import DistributedContext
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras.context import KerasTrialContext


class TFKerasTrialContext(KerasTrialContext):
    _names_elsewhere: ClassVar[Mapping[str, str]] = {
        **KerasTrialContext._names_elsewhere,
        "env": "use get_experiment_config and get_hparams",
        "get_tensorboard_path": "metrics are recorded by the cluster; report numbers among the metrics",
    }

    def __init__(self, info: TrialInfo) -> None:
        super().__init__(info)
        self.distributed = DistributedContext.of_environment() if self.slots > 1 else DistributedContext()
        self._fit: dict[str, Any] = {}

    def wrap_model(self, model: Any) -> Any:
        return model

    def wrap_optimizer(self, optimizer: Any) -> Any:
        return optimizer

    def wrap_dataset(self, dataset: Any, shard: bool = True) -> Any:
        return dataset

    def configure_fit(self, **settings: Any) -> None:
        """`shuffle` and `validation_steps` count. Raises UserError for class weights."""
        if settings.get("class_weight") is not None:
            raise UserError("context.configure_fit(class_weight=...): give the data sample weights, (x, y, sample_weight).")
        self._fit |= {name: value for name, value in settings.items() if value is not None}

    def get_data_config(self) -> dict[str, Any]:
        found = facts.carried(self._info.config).get("data")
        return dict(found) if isinstance(found, Mapping) else {}

    def get_experiment_config(self) -> dict[str, Any]:
        return facts.experiment_config(self._info.config)

    def get_trial_id(self) -> int:  # type: ignore[override]
        """Number of the trial in the whole cluster."""
        return self._info.experiment_id * facts.TRIALS_MAX + self._info.trial_number

    def get_initial_batch(self) -> int:
        found = facts.current()
        return 0 if found is None else found.steps_completed
