"""The batch size of one slot, as a number that can be distinguished from other numbers."""

from __future__ import annotations


class PerSlotBatchSize(int):
    """Result of `get_per_slot_batch_size` if a trial trains on several slots. A loader that holds it asks for batches of one
    slot, as Determined counts them; numbers computed from it, or stored, are plain integers."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)
