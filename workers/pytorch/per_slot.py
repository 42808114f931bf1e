"""Training loaders whose batch size was given as that of one slot.

Tenuto divides a loader's batch among the slots. A trial ported from Determined gives the batch of one slot, from
`context.get_per_slot_batch_size()`; divided again, each slot would train only a part of it. So such a loader is given
the batch of all slots: it then trains the same records per step, on any number of slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from tenuto.workers.errors import WillRepeat
from tenuto.workers.harness.batch_sizes import PerSlotBatchSize
from tenuto.workers.pytorch.context import PyTorchTrialContext

_WHAT_TO_DO = (
    "Give DataLoader(batch_size=...) what get_per_slot_batch_size returned, as it is; or give it get_global_batch_size(), "
    "which is divided among the slots."
)


def with_whole_batches(loader: DataLoader[Any], context: PyTorchTrialContext, build: Any) -> DataLoader[Any]:
    """The training loader with the batch of all slots. `build`: the user's function that made it. Raises WillRepeat if the
    batch of one slot was asked for, and its use in the loader cannot be found."""
    if not context._asked_per_slot:
        return loader
    sampler = loader.batch_sampler
    size = loader.batch_size if loader.batch_size is not None else getattr(sampler, "batch_size", None)
    if isinstance(size, PerSlotBatchSize):
        if sampler is not None and type(sampler) is not BatchSampler:
            raise WillRepeat(
                f"{build.__name__} gives {type(sampler).__name__} the batch size of one slot, but Tenuto divides the batches "
                "that it makes among the slots: give it context.get_global_batch_size().",
                at=build,
            )
        return _again(loader, context._batch_of_all_slots(size))
    elastic = isinstance((context.get_experiment_config().get("resources") or {}).get("slots_per_trial"), Mapping)
    if context.may_have_several_slots and (elastic or size != context.get_global_batch_size()):
        raise WillRepeat(
            f"the batch size of one slot was asked for, but {build.__name__} returned a loader with "
            f"{'batches of its own' if size is None else f'batches of {size}'}, which would be divided among the slots. "
            f"{_WHAT_TO_DO}",
            at=build,
        )
    return loader


def _again(loader: DataLoader[Any], batch_size: int) -> DataLoader[Any]:
    """The same object with another batch size: the user's code may hold it, and its class be the user's."""
    sampler = loader.batch_sampler
    assert isinstance(sampler, BatchSampler)
    # Not by setattr, which torch refuses for a loader that was made.
    vars(loader).update(batch_size=batch_size, batch_sampler=BatchSampler(sampler.sampler, batch_size, sampler.drop_last))
    return loader
