"""The identity of an attribute's object is restored, as well as its content: the model's parameters stay those of the
model, one object stays one, and a replaced object is the replacement again."""

from __future__ import annotations

import array
import dataclasses
import enum
import queue
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tenuto.pytorch import PyTorchTrialContext
from tenuto.workers.user_state.attributes import Attributes
from tenuto.workers.user_state.graph import OBJECTS_MAX
from tests.support.exact_trials import Small, assert_same, trained

END = 9
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Averaged:
    """Of weights; as many write it, with lists."""

    def __init__(self, model: nn.Module) -> None:
        self.params = list(model.parameters())
        self.by_parameter = {parameter: torch.zeros_like(parameter) for parameter in self.params}
        self.shadow = [parameter.detach().clone() for parameter in self.params]

    def update(self) -> None:
        for parameter, shadow in zip(self.params, self.shadow, strict=True):
            shadow.mul_(0.9).add_(parameter.detach(), alpha=0.1)
            self.by_parameter[parameter] += parameter.detach()


class OwnLists(Small):
    """Clips, regularizes, averages, and sets its rate by lists of its own."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.params = [value for value in self.model.parameters() if value.requires_grad]
        self.nested = {"weights": [self.model.weight], "rate": 1.0}
        self.chosen: list[Any] = []
        self.groups = self.optimizer.param_groups
        self.first = [self.optimizer.param_groups[0]]
        self.average = Averaged(self.model)
        self.prompts = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
        self.prompter = torch.optim.SGD(self.prompts, lr=0.1)
        self.prompt_groups = self.prompter.param_groups

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 1:
            self.chosen.append(self.model.bias)
        self.groups[0]["lr"] = 1e-3 / (1 + batch_idx)
        self.first[0]["momentum"] = 0.9 - 0.01 * batch_idx
        self.prompt_groups[0]["lr"] = 0.1 / (1 + batch_idx)
        self.prompter.zero_grad()
        sum(((prompt - batch.mean()).square() for prompt in self.prompts), start=torch.zeros(1)).sum().backward()
        self.prompter.step()
        self.nested["rate"] *= 1.01  # type: ignore[operator]
        loss = (self.model(batch) * self.nested["rate"] + sum(self.average.shadow[0]) + self.prompts[0].detach() - batch).square()
        loss = loss.mean() + sum(value.square().sum() for value in (*self.params, *self.chosen, *self.nested["weights"]))  # type: ignore[misc]
        self.context.backward(loss)
        nn.utils.clip_grad_norm_(self.params, 0.1)
        self.context.step_optimizer(self.optimizer)
        self.average.update()
        return loss


@pytest.mark.parametrize("stops", [[1], [4], [2, 5]])
def test_lists_of_the_models_parameters_stay_those_of_the_model(stops: list[int]) -> None:
    whole, resumed = trained(OwnLists, END), trained(OwnLists, END, stops)
    assert resumed.breaks == whole.breaks == []
    trial = resumed.trial
    for found in (trial.params, trial.average.params, list(trial.average.by_parameter)):
        assert all(one is other for one, other in zip(found, trial.model.parameters(), strict=True))
    assert trial.nested["weights"][0] is trial.model.weight
    assert trial.chosen[0] is trial.model.bias
    assert trial.groups is trial.optimizer.param_groups
    assert trial.first[0] is trial.optimizer.param_groups[0]
    assert trial.prompter.param_groups[0]["params"][0] is trial.prompts[0]
    assert_same(resumed, whole)
    assert torch.equal(trial.average.shadow[0], whole.trial.average.shadow[0])
    assert torch.equal(trial.average.by_parameter[trial.model.weight], whole.trial.average.by_parameter[whole.trial.model.weight])


def test_an_old_checkpoints_copies_of_parameters_are_left_out() -> None:
    holder = SimpleNamespace(model=nn.Linear(1, 1))

    class Holds:
        def __init__(self) -> None:
            self.params, self.count = list(holder.model.parameters()), 0

    root = Holds()
    found = Attributes({"self": root}, skip=lambda: dict(holder.model.named_parameters()))
    clone = {"tenuto_kind": "tensor", "value": torch.ones(1), "device": "cpu", "gradient": True}
    old = [[["self", ".params"], {"tenuto_kind": "list", "value": [clone, clone]}], [["self", ".count"], 3]]
    assert found.restore(old) == []
    assert [one is other for one, other in zip(root.params, holder.model.parameters(), strict=True)] == [True, True]
    assert root.count == 3
    assert found.restore([[["self", ".phase", "._value_"], 3]]) == ["self.phase._value_"]


class Phase(enum.Enum):
    WARMUP = 1
    TRAIN = 2


class Choice(enum.Flag):
    ONE = 1
    TWO = 2


class Point(NamedTuple):
    x: int
    y: list[int]


@dataclasses.dataclass(frozen=True)
class Fixed:
    rate: float
    seen: tuple[int, ...] = ()


@dataclasses.dataclass
class Stage:
    rate: float
    past: list[int] = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("count", "items")

    def __init__(self) -> None:
        self.count, self.items = 0, [0]


class Buffer(deque[Any]):
    def append(self, value: Any) -> None:
        raise AssertionError("the user's own method is none of the checkpoint's affair")


class Words(set[str]):
    pass


class Table(dict[str, Any]):
    pass


class Root:
    """Of a trial's kind: what `make` sets."""

    def __init__(self, make: Callable[[Any], None]) -> None:
        make(self)


def resumed(make: Callable[[Any], None], train: Callable[[Any], None]) -> tuple[Any, list[str], list[str]]:
    """Trained and saved; what a fresh process has then; what is lost; what is said."""
    root = Root(make)
    found = Attributes({"self": root})
    train(root)
    state = found.state()
    said = [f"{name} is a {kind}" for _, name, kind in found.unsaved()]
    fresh = Root(make)
    again = Attributes({"self": fresh})
    return fresh, again.restore(state), said


def exactly(make: Callable[[Any], None], train: Callable[[Any], None]) -> Any:
    fresh, lost, said = resumed(make, train)
    assert (lost, said) == ([], [])
    return fresh


def test_members_of_an_enum_are_chosen_and_not_rewritten() -> None:
    def make(root: Any) -> None:
        root.phase, root.flags, root.by, root.both = Phase.WARMUP, Choice.ONE, {Phase.WARMUP: 0}, (Phase.WARMUP, 1)

    def train(root: Any) -> None:
        root.phase, root.flags, root.both = Phase.TRAIN, Choice.ONE | Choice.TWO, (Phase.TRAIN, 2)
        root.by[Phase.TRAIN] = 3

    fresh = exactly(make, train)
    assert fresh.phase is Phase.TRAIN
    assert (Phase.WARMUP.value, Phase.TRAIN.value, Phase.WARMUP.name) == (1, 2, "WARMUP")
    assert (fresh.flags, fresh.by, fresh.both) == (Choice(3), {Phase.WARMUP: 0, Phase.TRAIN: 3}, (Phase.TRAIN, 2))


@pytest.mark.parametrize(
    "value", [[1, 2], {"a": 1}, {1, 2}, np.ones(2), torch.ones(2), deque([1])], ids=lambda value: type(value).__name__
)
def test_what_is_one_object_stays_one_and_what_was_one_becomes_two(value: Any) -> None:
    def apart(root: Any) -> None:
        root.best, root.current, root.many = [], [], [None]

    def together(root: Any) -> None:
        root.current = root.best = root.many[0] = value

    fresh = exactly(apart, together)
    assert fresh.current is fresh.best is fresh.many[0]
    assert str(fresh.best) == str(value)

    def shared(root: Any) -> None:
        root.best = root.current = type(value)(value) if not isinstance(value, torch.Tensor | np.ndarray) else value * 2

    def parted(root: Any) -> None:
        root.best = value

    before = Root(shared).current
    fresh = exactly(shared, parted)
    assert fresh.best is not fresh.current
    assert (str(fresh.best), str(fresh.current)) == (str(value), str(before))


def test_a_list_inside_another_is_the_same_list_as_the_attribute() -> None:
    def make(root: Any) -> None:
        root.history = {"losses": [], "other": []}
        root.losses = root.history["losses"]

    def train(root: Any) -> None:
        root.losses.append(1)
        root.history["other"].append(2)
        root.other = root.history["other"]

    fresh = exactly(make, train)
    assert fresh.history == {"losses": [1], "other": [2]}
    assert fresh.losses is fresh.history["losses"]
    assert fresh.other is fresh.history["other"]


def test_an_attribute_that_holds_another_object_by_then_holds_that_one() -> None:
    def make(root: Any) -> None:
        root.stages = [Stage(0.1), Stage(0.2)]
        root.current, root.by_name = root.stages[0], {"a": root.stages[0]}
        root.left, root.right = Stage(1), Stage(2)

    def train(root: Any) -> None:
        root.current = root.by_name["b"] = root.stages[1]
        root.current.rate, root.current.past[:] = 0.7, [1]
        root.left, root.right = root.right, root.left
        root.left.rate = 9

    fresh = exactly(make, train)
    assert fresh.current is fresh.stages[1] is fresh.by_name["b"]
    assert [stage.rate for stage in fresh.stages] == [0.1, 0.7]
    assert (fresh.left.rate, fresh.right.rate) == (9, 1)
    assert fresh.current.past == [1]


def test_an_object_in_the_place_of_one_that_is_gone_goes_on_as_that() -> None:
    def make(root: Any) -> None:
        root.stage, root.counts, root.sum = Stage(0.1), defaultdict(lambda: 5), torch.zeros(1)

    def train(root: Any) -> None:
        root.stage, root.counts, root.sum = Stage(0.3, [4]), defaultdict(lambda: 5, a=1), torch.ones(3)

    fresh = exactly(make, train)
    assert (fresh.stage, dict(fresh.counts), fresh.counts["b"]) == (Stage(0.3, [4]), {"a": 1}, 5)
    assert torch.equal(fresh.sum, torch.ones(3))


def test_an_object_of_training_beside_one_of_the_beginning_is_said_and_changes_nothing() -> None:
    def make(root: Any) -> None:
        root.stages = [Stage(0.1)]
        root.current = root.stages[0]

    def train(root: Any) -> None:
        root.current = Stage(0.9)

    fresh, lost, said = resumed(make, train)
    assert (lost, said) == ([], ["self.current is a Stage"])
    assert fresh.stages[0].rate == 0.1


def test_values_of_the_users_own_kinds_come_back() -> None:
    def make(root: Any) -> None:
        root.point, root.fixed, root.slotted = Point(1, [1]), Fixed(0.1), Slotted()
        root.space, root.ordered, root.counter = SimpleNamespace(step=0), OrderedDict(a=1), Counter("a")
        root.buffer, root.words, root.table, root.bytes = Buffer([1], maxlen=3), Words("a"), Table(a=1), bytearray(b"a")
        root.numbers, root.loss, root.warm = array.array("d", [1.0]), functional.l1_loss, 5

    def train(root: Any) -> None:
        root.point, root.fixed, root.slotted.count = Point(2, [1, 2]), Fixed(0.2, (1,)), 3
        root.slotted.items.append(1)
        root.space.step = 4
        root.ordered["b"] = root.counter["b"] = 2
        deque.append(root.buffer, 2)
        root.words.add("b")
        root.table["b"], root.table.extra = 2, 7
        root.bytes += b"b"
        root.numbers.append(2.0)
        root.loss = functional.mse_loss
        del root.warm

    fresh = exactly(make, train)
    assert (fresh.point, fresh.fixed) == (Point(2, [1, 2]), Fixed(0.2, (1,)))
    assert (fresh.slotted.count, fresh.slotted.items, fresh.space.step) == (3, [0, 1], 4)
    assert (fresh.ordered, fresh.counter) == (OrderedDict(a=1, b=2), Counter("abb"))
    assert (list(fresh.buffer), fresh.buffer.maxlen, fresh.words) == ([1, 2], 3, {"a", "b"})
    assert (dict(fresh.table), fresh.table.extra) == ({"a": 1, "b": 2}, 7)
    assert (fresh.bytes, fresh.numbers) == (bytearray(b"ab"), array.array("d", [1.0, 2.0]))
    assert (fresh.loss, hasattr(fresh, "warm")) == (functional.mse_loss, False)


def test_a_queue_that_changed_is_said() -> None:
    def make(root: Any) -> None:
        root.queue, root.still = queue.Queue(), queue.Queue()

    _, lost, said = resumed(make, lambda root: root.queue.put(1))
    assert (lost, said) == ([], ["self.queue is a Queue"])


def test_more_objects_than_are_looked_through_are_said_and_nothing_else_is_lost() -> None:
    def make(root: Any) -> None:
        root.table = {number: Stage(number) for number in range(OBJECTS_MAX + 2_000)}
        root.z = Stage(0.1)

    def train(root: Any) -> None:
        root.z.rate, root.z.past[:] = 7, [3]

    fresh, lost, said = resumed(make, train)
    assert lost == []
    assert said == ["self.table is a dict beyond the 10,000 objects that are looked through, or nested too deep"]
    assert fresh.z == Stage(7, [3])


def test_an_object_that_refers_back_to_itself_and_its_owner_comes_back() -> None:
    def make(root: Any) -> None:
        root.stage = Stage(0.1)
        root.stage.owner = root  # type: ignore[attr-defined]
        root.ring = []
        root.ring.append(root.ring)

    def train(root: Any) -> None:
        root.ring.append(1)
        root.stage.owner.stage.rate = 0.5

    fresh = exactly(make, train)
    assert fresh.ring[0] is fresh.ring
    assert (fresh.ring[1], fresh.stage.rate) == (1, 0.5)
