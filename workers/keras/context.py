"""The context of a Keras trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tenuto.workers.errors import UserError
from tenuto.workers.harness import determined_names
from tenuto.workers.harness.trial_context import TrialContext

BATCH_SIZE = 32
"""Default batch size, that of Keras."""
_NOT_NEEDED = "it is not needed: leave the call out"


class KerasTrialContext(TrialContext):
    """Argument of `KerasTrial.__init__`: hyperparameters, batch size and slots of the trial."""

    _names_elsewhere: ClassVar[Mapping[str, str]] = {
        **determined_names.TRIAL_CONTEXT,
        "wrap_dataset": _NOT_NEEDED,
        "wrap_optimizer": _NOT_NEEDED,
        "wrap_model": _NOT_NEEDED,
        "configure_fit": "set `shuffle` in the class of the trial; class weights go into the data as sample weights",
    }

    @property
    def batch_size(self) -> int:
        """Records per step over all slots: the hyperparameter `global_batch_size`, or Keras's default of 32."""
        return self.get_global_batch_size() if "global_batch_size" in self.get_hparams() else BATCH_SIZE

    def get_per_slot_batch_size(self) -> int:
        """Records per step, on one slot only. Raises UserError on several: the data's batches are divided among the slots."""
        if self.may_have_several_slots:
            raise UserError(
                "the batches of a Keras trial's data are those of all slots, and are divided among them: give the data batches "
                "of context.batch_size instead of get_per_slot_batch_size()."
            )
        return self.batch_size
