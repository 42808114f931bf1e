"""Trains a TFKerasTrial written for Determined."""

from __future__ import annotations

from typing import Any

from tenuto.workers.determined.keras.context import TFKerasTrialContext
from tenuto.workers.determined.keras.trial import epoch_batches
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.keras.trainer import KerasTrainer
from tenuto.workers.keras.trial import KerasTrial


class DeterminedKerasTrainer(KerasTrainer):
    context: TFKerasTrialContext

    def __init__(self, trial_class: type[KerasTrial], info: TrialInfo) -> None:
        self._epoch_by_records = epoch_batches(info)
        super().__init__(trial_class, info)

    def _make_context(self, info: TrialInfo) -> TFKerasTrialContext:
        return TFKerasTrialContext(info)

    def _make_trial(self, trial_class: Any) -> Any:
        trial = super()._make_trial(trial_class)
        fit = self.context._fit
        if trial.batches_per_epoch is None:
            trial.batches_per_epoch = self._epoch_by_records
        if "shuffle" in fit:
            trial.shuffle = bool(fit["shuffle"])
        if "validation_steps" in fit:
            trial.validation_batches = fit["validation_steps"]
        return trial
