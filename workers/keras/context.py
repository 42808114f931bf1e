"""What a Keras trial is given."""

from __future__ import annotations

from tenuto.workers.harness.trial_context import TrialContext

BATCH_SIZE = 32
"""Keras's own default."""


class KerasTrialContext(TrialContext):
    """Given to `KerasTrial.__init__`."""

    @property
    def batch_size(self) -> int:
        """Records per step over all slots: the hyperparameter `global_batch_size`, or Keras's default of 32."""
        return self.get_global_batch_size() if "global_batch_size" in self.get_hparams() else BATCH_SIZE
