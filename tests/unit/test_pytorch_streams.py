"""Streams go on where they were, with and without state of their own, read here or in loader workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.streams import StreamBatches

SEED = 5
RECORDS = 22
BATCH = 4


class Stream(IterableDataset[torch.Tensor]):
    """Shuffles through a small buffer, augments, and shares the records among loader workers."""

    length = RECORDS

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        buffer: list[int] = []
        for record in range(first, self.length, step):
            buffer.append(record)
            if len(buffer) > 3:
                yield self.made(buffer.pop(random.randrange(4)))
        for record in buffer:
            yield self.made(record)

    def made(self, record: int) -> torch.Tensor:
        return torch.tensor([record, random.random(), float(torch.rand(()))], dtype=torch.float64)


class Resumable(Stream):
    """All that its records depend on is in its state. The count of records made is the class's: it is no state of a stream."""

    made_records = 0

    def __init__(self) -> None:
        self.next_record, self.epoch = 0, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        while (record := self.next_record * step + first) < self.length:
            self.next_record += 1
            type(self).made_records += 1
            yield torch.cat([self.made(record), torch.tensor([float(self.epoch)], dtype=torch.float64)])
        self.next_record = 0

    def state_dict(self) -> dict[str, Any]:
        return {"next_record": self.next_record}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next_record = state["next_record"]


def loader(kind: type[Stream], num_workers: int) -> DataLoader[Any]:
    return DataLoader(kind(), batch_size=BATCH, num_workers=num_workers)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", [Stream, Resumable])
def test_a_stream_goes_on_where_it_was(kind: type[Stream], num_workers: int) -> None:
    whole = StreamBatches(loader(kind, num_workers), SEED)
    expected, states = [], [whole.state()]
    for batch in islice(whole, 15):  # three passes
        expected.append(batch)
        states.append(whole.state())
    assert len({float(value) for batch in expected for value in batch[:, 1]}) == sum(len(batch) for batch in expected)
    for position in range(len(expected)) if num_workers == 0 else (4, 5, 6, 11):
        random.seed(position)  # whatever happened to the generators before
        resumed = StreamBatches(loader(kind, num_workers), SEED, states[position])
        rest = list(islice(resumed, len(expected) - position))
        for index, (ours, theirs) in enumerate(zip(rest, expected[position:], strict=True)):
            assert torch.equal(ours, theirs), f"from {position}: batch {position + index}"
        assert_same_state(resumed.state(), whole.state())


def assert_same_state(ours: Any, theirs: Any) -> None:
    """A state taken after resuming is as good as one taken before; what the library counts for itself may differ."""
    assert {name: ours[name] for name in ours if name != "loader"} == {name: theirs[name] for name in theirs if name != "loader"}


def test_a_resumable_stream_does_not_read_again_what_was_trained() -> None:
    first = StreamBatches(loader(Resumable, 0), SEED)
    list(islice(first, 4))
    state, Resumable.made_records = first.state(), 0
    next(StreamBatches(loader(Resumable, 0), SEED, state))
    assert Resumable.made_records == BATCH


def test_each_pass_holds_every_record_once_and_tells_its_number() -> None:
    batches = list(islice(StreamBatches(loader(Resumable, 0), SEED), 12))
    first, second = torch.cat(batches[:6]), torch.cat(batches[6:])
    assert first[:, 0].tolist() == second[:, 0].tolist() == [float(record) for record in range(RECORDS)]
    assert first[0, 3] == 0
    assert second[0, 3] == 1


def test_reading_a_stream_leaves_the_training_generators_alone() -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = random.random(), float(torch.rand(()))
    torch.manual_seed(3)
    random.seed(3)
    list(islice(StreamBatches(loader(Stream, 0), SEED), 8))
    assert (random.random(), float(torch.rand(()))) == expected


class Empty(Stream):
    length = 0


def test_what_a_stream_cannot_do_is_told() -> None:
    with pytest.raises(UserError, match="stream gave no batch"):
        next(StreamBatches(loader(Empty, 0), SEED))
    state = StreamBatches(loader(Stream, 0), SEED).state()
    with pytest.raises(UserError, match=r"made with num_workers=0 .*now it is 2"):
        StreamBatches(loader(Stream, 2), SEED, state)
