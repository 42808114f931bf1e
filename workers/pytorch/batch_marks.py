"""Mark of the batch that was trained last, so that a resumed trial can tell whether it makes the same one again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tenuto.workers.user_state import values

ANOTHER_BATCH = (
    "batch {batch}, made again, is another than the one that was trained: the data set, its transforms or collate_fn depend on "
    "more than index and seed (a count of calls, a cache, the time, files that changed); keep such state out of them"
)


class Seen:
    def __init__(self) -> None:
        self._tensors: list[tuple[torch.Tensor, int]] = []

    def note(self, batch: Any) -> None:
        """Remembers a batch before it is trained. Cheap: called for each."""
        self._tensors = [(tensor, tensor._version) for tensor in _tensors(batch) if not tensor.is_inference()]

    def mark(self) -> str | None:
        """Mark of the batch; None if there is none, or training changed it in place."""
        if not self._tensors or any(tensor._version != version for tensor, version in self._tensors):
            return None
        try:
            return values.mark([tensor for tensor, _ in self._tensors], versions=False)
        except values.NotPlain:
            return None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
