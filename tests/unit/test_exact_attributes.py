"""Attributes of the trial and its callbacks go on as they were, without a word of the user's; what cannot is said."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader

from tenuto.pytorch import PyTorchCallback, PyTorchTrialContext
from tenuto.workers.harness.trainer import TrialInfo
from tenuto.workers.pytorch.state import USER_FILE
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tenuto.workers.user_state import values
from tenuto.workers.user_state.attributes import SLOW_SECONDS, Attributes
from tests.support.exact_trials import INFO, Small, assert_same, trained

END = 15
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Average:
    """Of weights, as many write it: through `.data`, which torch does not count."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.shadow = {name: value.data.clone() for name, value in model.named_parameters()}

    def update(self) -> None:
        for name, value in self.model.named_parameters():
            self.shadow[name].data.mul_(0.9).add_(value.data, alpha=0.1)


@dataclass
class Meter:
    total: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=3))


class Counting(PyTorchCallback):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def on_epoch_start(self, epoch_idx: int) -> None:
        self.epochs.append(epoch_idx)


class Everything(Small):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.python, self.numpy = random.Random(1), np.random.default_rng(2)
        self.legacy = np.random.RandomState(3)
        self.generators = [torch.Generator().manual_seed(4)]
        self.noise = torch.zeros(3)
        self.offset = nn.Parameter(torch.zeros(1))
        self.counts = np.zeros(4, dtype=np.int32)
        self.average = Average(self.model)
        self.copy = copy.deepcopy(self.model)
        self.meters = {"loss": Meter(), "more": [Meter()]}
        self.best, self.name, self.history = float("inf"), "", {"losses": [0.0], "kinds": {"a"}}
        self.unwrapped = torch.optim.Adam(self.copy.parameters(), lr=0.01)
        self.constant = torch.arange(10.0)
        self.counting = Counting()

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"counting": self.counting}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        drawn = self.python.random() + float(self.numpy.normal()) + self.legacy.rand()
        self.noise += torch.rand(3, generator=self.generators[0]) * drawn
        self.counts[batch_idx % 4] += 1
        shift = self.noise.sum() + float(self.counts.sum()) + self.offset.detach() + self.meters["loss"].total  # type: ignore[attr-defined]
        shift = shift + sum(value.sum() for value in self.average.shadow.values()) + len(self.history["kinds"])
        loss = super().train_batch(batch + 0.01 * shift.detach(), epoch_idx, batch_idx).detach()
        self.unwrapped.zero_grad()
        (self.copy(torch.ones(1, 1)) - loss).square().sum().backward()
        self.unwrapped.step()
        with torch.no_grad():
            self.offset += 0.01 * self.copy(torch.ones(1, 1))[0]
        self.average.update()
        self.meters["loss"].total += 0.01  # type: ignore[attr-defined]
        self.meters["more"][0].recent.append(float(loss))  # type: ignore[index]
        self.best, self.name = min(self.best, float(loss)), f"batch {batch_idx}"
        self.history["losses"].append(float(loss))  # type: ignore[attr-defined]
        self.history["kinds"].add(batch_idx % 5)  # type: ignore[attr-defined]
        if not hasattr(self, "late"):
            self.late = torch.zeros(2)
        self.late += 1
        return loss

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:
        return {"loss": self.model(batch).mean() + self.python.random()}


def attributes(trial: Any) -> dict[str, Any]:
    kept = ("noise", "offset", "counts", "best", "name", "history", "late", "constant")
    own = {name: values.mark(getattr(trial, name), versions=False) for name in kept}
    own["copy"] = values.mark(dict(trial.copy.state_dict()), versions=False)
    own["shadow"] = values.mark(trial.average.shadow, versions=False)
    own["meters"] = (trial.meters["loss"], trial.meters["more"][0])
    own["epochs"] = trial.counting.epochs
    own["draws"] = (
        trial.python.random(),
        trial.numpy.random(),
        trial.legacy.rand(),
        float(torch.rand((), generator=trial.generators[0])),
    )
    return own


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    result = trained(Everything, END)
    return result, attributes(result.trial)


@settings(max_examples=12, deadline=None)
@given(stops=st.lists(st.integers(1, END - 2), min_size=1, max_size=3, unique=True))
def test_training_goes_on_with_its_attributes(undisturbed: Any, stops: list[int]) -> None:
    result, expected = undisturbed
    resumed = trained(Everything, END, stops)
    assert resumed.breaks == []
    assert_same(resumed, result)
    assert attributes(resumed.trial) == expected
    assert resumed.trial.average.model is resumed.trial.model


def test_a_validation_leaves_the_trials_own_generators_alone() -> None:
    trainer = PyTorchTrainer(Everything, INFO)
    first = trainer.validate()
    assert trainer.validate() == first


def test_only_what_changed_is_saved_and_no_pickle(tmp_path: Path) -> None:
    trainer = PyTorchTrainer(Everything, INFO)
    trainer.train(2, lambda: False)
    trainer.save(tmp_path)
    assert not (tmp_path / USER_FILE).exists()
    saved = torch.load(tmp_path / "state.pt", weights_only=True)["attributes"]
    names = {"".join(path) for path, _ in saved}
    assert {"self.noise", "self.python", "self.average.shadow['weight']", "self.copy", "callback 'counting'.epochs"} <= names
    assert not names & {"self.constant", "self.model", "self.optimizer", "self.context", "self.average.model"}


def test_what_a_configuration_gives_is_not_taken_from_another_trials_checkpoint(tmp_path: Path) -> None:
    class Configured(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.strength = context.get_hparam("strength")

    def info(strength: float) -> TrialInfo:
        return TrialInfo(1, "1-1", 1, 77, {"strength": strength}, {})

    trainer = PyTorchTrainer(Configured, info(1.0))
    trainer.train(2, lambda: False)
    trainer.save(tmp_path)
    other = PyTorchTrainer(Configured, info(2.0))
    other.load(tmp_path)
    assert other.trial.strength == 2.0  # type: ignore[attr-defined]
    assert len(other.trial.seen) == 2  # type: ignore[attr-defined]


def test_load_state_dict_has_the_last_word() -> None:
    class Own(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.losses: list[float] = []
            self.others = 0

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.losses.append(float(batch_idx))
            self.others += 1
            return super().train_batch(batch, epoch_idx, batch_idx)

        def state_dict(self) -> dict[str, Any]:
            return {"losses": list(self.losses)}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            self.losses.extend(state["losses"])  # would come out twice, if the list were put back before or after

    resumed = trained(Own, END, [4, 9])
    assert resumed.trial.losses == [float(batch) for batch in range(END)]
    assert resumed.trial.others == END


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda trial: iter(trial.build_training_data_loader()), "self.thing is a _SingleProcessDataLoaderIter"),
        (lambda trial: cycle([1]), "self.thing is a cycle"),
        (lambda trial: (value for value in range(99)), "self.thing is a generator"),
    ],
    ids=["loader", "cycle", "generator"],
)
def test_what_cannot_be_saved_is_said_at_the_first_checkpoint(make: Any, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Holds(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.thing = make(self)

    [sentence] = trained(Holds, 3).breaks
    assert sentence.startswith(says)
    assert "state_dict" in sentence
    assert capsys.readouterr().err.count(says) == 1


def test_an_object_made_in_training_is_said_and_one_made_before_is_not() -> None:
    class Opaque:
        __slots__ = ("hidden",)

        def __init__(self) -> None:
            self.hidden = object()

    class Late(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.early = object()

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.made = object()
            return super().train_batch(batch, epoch_idx, batch_idx)

    [sentence] = trained(Late, 3).breaks
    assert sentence.startswith("self.made is a object")


def test_what_is_made_in_training_has_no_place_in_a_fresh_process() -> None:
    class Late(Small):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 1:
                self.average, self.meter = copy.deepcopy(self.model), Meter()
            return super().train_batch(batch, epoch_idx, batch_idx)

    assert trained(Late, 1).breaks == []
    first, second = trained(Late, 3).breaks
    assert first.startswith("self.average is a Linear")
    assert second.startswith("self.meter is a Meter")


class LoaderAsAttribute(Small):
    """A trial with a loader as attribute: its state is saved with the data, not with the attributes."""

    def build_training_data_loader(self) -> DataLoader[Any]:
        self.loader = super().build_training_data_loader()
        return self.loader


def test_loaders_and_data_are_no_attributes() -> None:
    assert_same(trained(LoaderAsAttribute, END, [4]), trained(LoaderAsAttribute, END))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


@given(value=PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    assert repr(values.decode(values.encode(value, copy=True))) == repr(value)
    assert values.mark(value) == values.mark(copy.deepcopy(value))


def arrays() -> Iterator[Any]:
    yield np.float32(2.5)
    yield np.array([["a", "bc"]])
    yield np.arange(6, dtype=">u2").reshape(2, 3)[:, ::2]
    yield np.zeros((0, 3))
    yield torch.arange(6).reshape(2, 3).T
    yield torch.zeros(0)
    yield range(2, 9, 3)
    yield Path("a/b")
    yield deque([1, 2], maxlen=2)
    yield np.random.Generator(np.random.Philox(3))


@pytest.mark.parametrize("value", list(arrays()), ids=lambda value: type(value).__name__)
def test_other_values_come_back(value: Any) -> None:
    made = values.decode(values.encode(value, copy=True))
    assert type(made) is type(value)
    assert values.mark(made, versions=False) == values.mark(value, versions=False)


def test_one_element_of_a_large_array_that_changes_is_saved() -> None:
    class Large(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.array, self.tensor = np.zeros(1_000_003, np.float32), torch.zeros(1_000_003)
            self.constant, self.bytes = np.zeros(1_000_003), bytes(1_000_003)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.array[500_001 + batch_idx] = self.tensor.data[500_001 + batch_idx] = batch_idx + 1
            return super().train_batch(batch, epoch_idx, batch_idx)

    resumed, whole = trained(Large, END, [4]).trial, trained(Large, END).trial
    assert resumed.array.sum() == whole.array.sum() == END * (END + 1) / 2
    assert torch.equal(resumed.tensor, whole.tensor)


def test_a_list_that_is_too_large_is_said_once_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    class Long(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.memory, self.words = list(range(values.ITEMS_MAX + 1)), list(range(values.ITEMS_MAX + 1))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.memory.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    [sentence] = trained(Long, 3).breaks
    assert sentence.startswith(f"self.memory is a list with {values.ITEMS_MAX + 4} items, which a checkpoint cannot hold")
    assert capsys.readouterr().err.count("self.memory") == 1


def test_attributes_that_hold_up_the_training_are_named() -> None:
    class Held:
        def __init__(self) -> None:
            self.table = {number: number for number in range(50_000)}

    found = Attributes({"self": Held()})
    found.state()
    assert set(found.seconds) == {"self.table"}
    found.seconds["self.table"] = SLOW_SECONDS / 2
    assert found.slow() is None
    found.seconds["self.table"] = SLOW_SECONDS
    assert "at a checkpoint" in str(found.slow())
    assert "for self.table" in str(found.slow())
