"""Helper processes of data loaders that a run has left."""

from __future__ import annotations

import gc
import multiprocessing

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter


def end_helpers() -> None:
    """Ends helper processes of data loaders in their order. A collection ends the queues to them first, and then waits seconds
    for helpers that were not told."""
    if multiprocessing.active_children():
        for value in gc.get_objects():
            if type(value) is _MultiProcessingDataLoaderIter:
                value._shutdown_workers()  # type: ignore[no-untyped-call]
