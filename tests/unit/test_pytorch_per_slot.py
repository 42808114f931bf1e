"""A training loader that was given the batch of one slot trains that of all, or is refused."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from tenuto.pytorch import PyTorchTrialContext
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.per_slot import with_whole_batches
from tests.unit.test_pytorch_signatures import refusal, trial_with
from tests.unit.test_pytorch_trial import INFO, Linear

pytestmark = pytest.mark.usefixtures("torch_as_it_was")


def two_slots(**changes: Any) -> TrialInfo:
    """Configured for two, though this process trains alone."""
    return dataclasses.replace(INFO, config={**INFO.config, "resources": {"slots_per_trial": 2}, **changes})


def loading(make: Callable[[Linear], DataLoader[Any]]) -> type[Linear]:
    def build_training_data_loader(self: Linear) -> DataLoader[Any]:
        return make(self)

    return trial_with(build_training_data_loader=build_training_data_loader)


RECORDS = TensorDataset(torch.arange(40.0).reshape(10, 4), torch.arange(10) % 2)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(RECORDS)


class OnTwo(PyTorchTrialContext):
    slots = 2


@pytest.mark.parametrize(
    "make",
    [
        lambda size: DataLoader(RECORDS, batch_size=size, shuffle=True, drop_last=True),
        lambda size: DataLoader(RECORDS, batch_sampler=BatchSampler(RandomSampler(RECORDS), size, drop_last=True)),
        lambda size: DataLoader(Stream(), batch_size=size, drop_last=True),
    ],
)
def test_a_loader_with_the_batch_of_one_slot_is_made_again_with_that_of_all(make: Callable[[int], DataLoader[Any]]) -> None:
    context = OnTwo(two_slots(), torch.device("cpu"))
    asked = make(context.get_per_slot_batch_size())
    batches = [len(labels) for _, labels in with_whole_batches(asked, context, make)]
    assert context.get_per_slot_batch_size() == 4
    assert batches == [8]


def test_where_nobody_can_tell_what_became_of_the_batch_of_one_slot_the_loader_is_refused() -> None:
    context = OnTwo(two_slots(), torch.device("cpu"))

    class Buckets(BatchSampler):
        pass

    own = DataLoader(RECORDS, batch_sampler=Buckets(RandomSampler(RECORDS), context.get_per_slot_batch_size(), False))
    with pytest.raises(UserError, match=r"gives Buckets the batch size of one slot"):
        with_whole_batches(own, context, Linear.loader)
    halved = DataLoader(RECORDS, batch_size=context.get_per_slot_batch_size() // 2)
    with pytest.raises(UserError, match="loader returned a loader with batches of 2, which would be divided among the slots"):
        with_whole_batches(halved, context, Linear.loader)
    whole = DataLoader(RECORDS, batch_size=8)
    assert with_whole_batches(whole, context, Linear.loader) is whole, "asked for something else"
    elastic = PyTorchTrialContext(two_slots(resources={"slots_per_trial": {"min": 1, "max": 2}}), torch.device("cpu"))
    elastic.get_per_slot_batch_size()
    with pytest.raises(UserError, match="batches of 8"):
        with_whole_batches(whole, elastic, Linear.loader)
    said = refusal(
        loading(lambda trial: DataLoader(RECORDS, batch_size=trial.context.get_per_slot_batch_size() // 2)), two_slots()
    )
    assert "the batch size of one slot was asked for" in said


def test_on_one_slot_the_batch_of_one_slot_is_a_plain_number() -> None:
    context = PyTorchTrialContext(INFO, torch.device("cpu"))
    size = context.get_per_slot_batch_size()
    assert type(size) is int
    halved = DataLoader(RECORDS, batch_size=size // 2)
    assert with_whole_batches(halved, context, Linear.loader) is halved
    marked = OnTwo(two_slots(), torch.device("cpu")).get_per_slot_batch_size()
    assert (marked, type(pickle.loads(pickle.dumps(marked)))) == (4, int)
