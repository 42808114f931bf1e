"""Each rank's share of the data: no record twice, none left out, whatever the sizes.

The loader's batch size is that of the whole trial, or a step trains several batches as if they were one. Rank r of N takes the
records n*r//N up to n*(r+1)//N of a batch of n, so shares differ by one record at most. A rank whose share is empty (fewer
records than ranks) trains on the whole batch instead, with weight 0: it must take part in the exchanges of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tenuto.workers.errors import UserError


class Sharded(NamedTuple):
    """A batch, made by a loader worker, with the size of the share and of the whole."""

    batch: Any
    records: int
    total: int


@dataclass(frozen=True)
class Shard:
    rank: int
    size: int

    def bounds(self, total: int) -> tuple[int, int]:
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def cut(self, batch: Any, total: int) -> Sharded:
        """Share of a complete batch. Raises UserError if it cannot be cut."""
        low, high = self.bounds(total)
        if low == high:
            return Sharded(batch, 0, total)
        found, cut = _cut(batch, total, low, high)
        if not found:
            raise UserError(
                f"a batch of {total} records cannot be divided among {self.size} slots: nothing in it has {total} as its first "
                "dimension. Give get_batch_length, or batches of tensors, lists and dicts of them."
            )
        return Sharded(cut, high - low, total)


def _cut(value: Any, total: int, low: int, high: int) -> tuple[bool, Any]:
    """(something was cut, the share)"""
    if isinstance(value, torch.Tensor):
        return (True, value[low:high]) if value.dim() > 0 and value.shape[0] == total else (False, value)
    if isinstance(value, Mapping):
        parts = {key: _cut(item, total, low, high) for key, item in value.items()}
        return any(found for found, _ in parts.values()), {key: item for key, (_, item) in parts.items()}
    if isinstance(value, (list, tuple)):
        if len(value) == total and not any(isinstance(item, (torch.Tensor, Mapping, list, tuple)) for item in value):
            return True, value[low:high]
        cut = [_cut(item, total, low, high) for item in value]
        items = [item for _, item in cut]
        made = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return any(found for found, _ in cut), made
    return False, value
