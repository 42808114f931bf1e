"""The batch size of one slot, as a number that can be distinguished from other numbers; and the settings about it, where a
framework does not follow them."""

from __future__ import annotations

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.experiment import Distributed
from tenuto.workers.errors import UserError


class PerSlotBatchSize(int):
    """Result of `get_per_slot_batch_size` if a trial trains on several slots. A loader that holds it asks for batches of one
    slot, as Determined counts them; numbers computed from it, or stored, are plain integers."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def refuse_batch_rules(assignment: Assignment) -> None:
    """Raises UserError for settings that only a PyTorch trial follows."""
    distributed = assignment.config.distributed
    for name in ("global_batch_size", "learning_rate_scaling", "sync_batch_norm"):
        if name in distributed.model_fields_set and getattr(distributed, name) != Distributed.model_fields[name].default:
            raise UserError(
                f"distributed.{name}: {str(getattr(distributed, name)).lower()} is for PyTorch trials; leave it out, and say it "
                "in the model's own code."
            )
