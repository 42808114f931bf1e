"""The batch size of one slot: a number that can be told from other numbers."""

from __future__ import annotations


class PerSlotBatchSize(int):
    """What `get_per_slot_batch_size` returns where a trial trains on several slots. A loader that holds it asks for batches of
    one slot, as Determined counts them; what is computed from it, or stored, is a plain number."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)
