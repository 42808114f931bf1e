"""A mean over the validation set counts each record once, whatever the batches look like; else the user is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

from tenuto.pytorch import Reducer
from tenuto.workers.errors import UserError
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.counting import records_of
from tenuto.workers.pytorch.distributed.shards import Shard
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import INFO, Small

RECORDS, BATCH = 9, 8
"""A whole batch, whose records are wrong, and a last one with a record that is right: 1 of 9."""
ONE_OF_NINE = 1 / 9


@dataclass
class Points:
    weights: torch.Tensor
    places: np.ndarray[Any, Any]


class Graph:
    """Some nodes of several graphs in one array, as libraries for graphs batch them."""

    def __init__(self, graphs: list[int]) -> None:
        self.nodes = torch.zeros(sum(index + 1 for index in graphs), 3)

    def to(self, device: Any) -> Graph:
        return self


COLLATIONS: dict[str, Callable[[list[int]], Any]] = {
    "numpy": lambda items: np.asarray(items),
    "data class": lambda items: Points(torch.ones(2), np.asarray(items)),
    "scalar first": lambda items: {"temperature": torch.tensor(0.5), "x": torch.tensor(items)},
    "class weights first": lambda items: {"weights": torch.ones(5), "x": torch.tensor(items)},
    "detection": lambda items: tuple(zip(*[(torch.zeros(3, 4, 4), {"boxes": torch.zeros(i, 4)}) for i in items], strict=True)),
    "graphs": Graph,
    "texts": lambda items: {"task": ["a", "b"], "text": [str(item) for item in items]},
    "crops": lambda items: torch.tensor(items).repeat_interleave(5),
}


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> int:
        return index


class NumberStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(RECORDS)


class Batches(Dataset[Any]):
    """A data set that makes whole batches."""

    def __init__(self, make: Callable[[list[int]], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.make(list(range(BATCH)) if index == 0 else [BATCH])


def trial_on(validation: Callable[[], DataLoader[Any]], **methods: Any) -> type[Small]:
    class Weighed(Small):
        def build_validation_data_loader(self) -> DataLoader[Any]:
            return validation()

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # type: ignore[override]
            return {"right": float(batch_idx == 1)}

    for name, method in methods.items():
        setattr(Weighed, name, method)
    return Weighed


@pytest.mark.parametrize(("kind", "num_workers"), [*((kind, 0) for kind in COLLATIONS), ("numpy", 1), ("detection", 1)])
def test_each_record_counts_once_whatever_its_batch_looks_like(kind: str, num_workers: int) -> None:
    for dataset in (Numbers(), NumberStream()):
        kwargs: Any = {"batch_size": BATCH, "collate_fn": COLLATIONS[kind], "num_workers": num_workers}
        trial = trial_on(lambda data=dataset, kwargs=kwargs: DataLoader(data, **kwargs))  # type: ignore[misc]
        assert PyTorchTrainer(trial, INFO).validate()["right"] == pytest.approx(ONE_OF_NINE)


def test_lists_of_indices_and_records_that_cannot_be_read_are_counted() -> None:
    class Holes(Numbers):
        def __getitem__(self, index: Any) -> Any:
            return index if isinstance(index, list) or index != 3 else None

    sampler = BatchSampler(SequentialSampler(Numbers()), BATCH, False)
    together = trial_on(lambda: DataLoader(Holes(), batch_size=None, sampler=sampler, collate_fn=Graph))
    assert PyTorchTrainer(together, INFO).validate()["right"] == pytest.approx(ONE_OF_NINE)

    def readable(items: list[Any]) -> Any:
        return Graph([item for item in items if item is not None])

    holes = trial_on(lambda: DataLoader(Holes(), batch_size=BATCH, collate_fn=readable))
    assert PyTorchTrainer(holes, INFO).validate()["right"] == pytest.approx(1 / 8)


def test_where_the_records_of_a_batch_cannot_be_known_the_user_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    certain = trial_on(lambda: DataLoader(Batches(lambda items: {"x": np.asarray(items), "epoch": 3}), batch_size=None))
    assert PyTorchTrainer(certain, INFO).validate()["right"] == pytest.approx(ONE_OF_NINE)
    own = trial_on(lambda: DataLoader(Batches(Graph), batch_size=None), get_batch_length=lambda self, batch: len(batch.nodes))
    assert PyTorchTrainer(own, INFO).validate()["right"] == pytest.approx(9 / 45)
    worst = trial_on(lambda: DataLoader(Batches(Graph), batch_size=None), evaluation_reducer=lambda self: Reducer.MAX)
    assert PyTorchTrainer(worst, INFO).validate()["right"] == 1.0
    assert "get_batch_length" not in capfd.readouterr().err

    trainer = PyTorchTrainer(trial_on(lambda: DataLoader(Batches(Graph), batch_size=None)), INFO)
    assert [trainer.validate()["right"] for _ in range(2)] == [0.5, 0.5]
    said = capfd.readouterr().err
    assert said.count("(Graph), so Reducer.AVG counts each batch once") == 1
    assert "give Weighed a get_batch_length(self, batch)" in said


@pytest.mark.parametrize(
    ("batch", "records"),
    [
        (np.zeros((4, 2)), 4),
        ({"x": torch.zeros(4, 2), "t": torch.tensor(1.0), "y": np.zeros(4)}, 4),
        ([torch.zeros(4, 2), torch.zeros(4)], 4),
        ({"x": torch.zeros(4, 2), "weights": torch.zeros(3)}, None),
        ([torch.zeros(3, 5, 6), torch.zeros(3, 7, 8), torch.zeros(3, 9, 9)], None),
        ([(torch.zeros(3, 8, 8), 1), (torch.zeros(3, 8, 8), 0)], None),
        (["a", "b"], 2),
        (Graph([1, 2]), None),
    ],
)
def test_the_content_of_a_batch_tells_its_records_only_where_it_is_certain(batch: Any, records: int | None) -> None:
    assert records_of(batch) == records


def test_a_whole_batch_is_divided_among_slots_by_what_is_known_of_it_and_else_refused() -> None:
    """By the weights of the classes, each slot would train the whole batch with some of them."""

    def trainer_on_two(make: Callable[[list[int]], Any]) -> PyTorchTrainer:
        class Trained(Small):
            def build_training_data_loader(self) -> DataLoader[Any]:
                return DataLoader(Batches(make), batch_size=None)

            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
                self.seen.append(batch["x"].tolist())
                return torch.tensor(0.0)

        trainer = PyTorchTrainer(Trained, TrialInfo(1, "1-1", 1, 77, {}, {}))
        trainer._shard = Shard(1, 2)
        return trainer

    trainer = trainer_on_two(lambda items: {"scale": torch.tensor(2.0), "x": torch.tensor(items)})
    trainer.train(1, lambda: False)
    assert trainer.trial.seen == [[4, 5, 6, 7]]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"how many records it has cannot be told.*give Trained a get_batch_length"):
        trainer_on_two(lambda items: {"weights": torch.ones(5), "x": torch.tensor(items)}).train(1, lambda: False)
