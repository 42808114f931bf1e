"""Groups of an optimizer, and layers of a model, that training adds, replaces or prunes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune

from tenuto.pytorch import LRScheduler, PyTorchTrialContext
from tenuto.workers.errors import WillRepeat, describe
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import INFO, Small, assert_same, trained

END = 15
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class Unfreezing(Small):
    """The head first; then the body with a rate of its own; then both in one group, and a parameter that is in no model."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.model = context.wrap_model(nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1)))
        for parameter in self.model[0].parameters():
            parameter.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(1))
        groups = [{"params": [*self.model[1].parameters(), self.scale]}]
        self.optimizer = context.wrap_optimizer(torch.optim.AdamW(groups, lr=0.01))
        self.schedule = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9), LRScheduler.StepMode.STEP_EVERY_BATCH
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        first, second = self.model[0], self.optimizer
        if batch_idx == 4:
            first.bias.requires_grad_(True)
            second.add_param_group({"params": [first.bias], "lr": 0.005, "weight_decay": 0.1})
        if batch_idx == 8:
            first.weight.requires_grad_(True)
            second.param_groups[1]["params"].insert(0, first.weight)
        self.seen.append(batch[:, 0].tolist())
        loss = (self.model(batch / 22) * self.scale - batch / 10).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return loss


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(Unfreezing, END)


@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, END - 2), min_size=1, max_size=3, unique=True))
def test_groups_that_training_added_are_made_again(undisturbed: Any, stops: list[int]) -> None:
    resumed = trained(Unfreezing, END, stops)
    assert resumed.breaks == []
    assert_same(resumed, undisturbed)
    ours, theirs = resumed.trial.optimizer.state_dict(), undisturbed.trial.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert torch.equal(resumed.trial.scale, undisturbed.trial.scale)


class Adapter(nn.Module):
    """A layer with a small one beside it."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner, self.beside = inner, nn.Linear(1, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.inner(values) + 0.1 * self.beside(values)
        return added


def pruned(model: Any) -> None:
    prune.l1_unstructured(model[0], "weight", amount=1)


def masked(model: Any) -> None:
    """Like a pruned one, but not torch's."""
    model[0].register_buffer("weight_mask", torch.ones(1, 1))


def parametrized(model: Any) -> None:
    parametrizations.weight_norm(model[1])


def replaced(model: Any) -> None:
    model[0] = Adapter(model[0])


def other_activation(model: Any) -> None:
    model[2] = nn.Tanh()


CHANGES = {
    "masked": (masked, "0.weight_mask"),
    "parametrized": (parametrized, "1.parametrizations.weight.original0"),
    "replaced": (replaced, "0.beside.weight"),
    "activation": (other_activation, "other: 2"),
}


def changing(change: Any, at: int = 4) -> type[Small]:
    class Changing(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.model = context.wrap_model(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU()))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1e-3))
            self.changed = False

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == at:
                change(self.model)
                self.changed = True
            return super().train_batch(batch, epoch_idx, batch_idx)

    return Changing


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_a_changed_structure_is_said_at_the_first_checkpoint(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, name = CHANGES[kind]
    assert trained(changing(change), 3).breaks == []
    [sentence] = trained(changing(change), 6).breaks
    assert sentence.startswith("the structure of model 1 (Sequential) changed since __init__")
    assert name in sentence
    assert "rebuild(self, state)" in sentence
    assert capsys.readouterr().err.count("changed since __init__") == 1


@pytest.mark.parametrize("kind", ["masked", "parametrized", "replaced"])
def test_a_checkpoint_that_does_not_fit_fails_in_a_way_that_would_repeat(kind: str, tmp_path: Path) -> None:
    kind_of_trial = changing(CHANGES[kind][0])
    trainer = PyTorchTrainer(kind_of_trial, INFO)
    trainer.train(6, lambda: False)
    trainer.save(tmp_path)
    with pytest.raises(WillRepeat, match="does not fit the model") as raised:
        PyTorchTrainer(kind_of_trial, INFO).load(tmp_path)
    text = describe(raised.value, Path(__file__).parent)
    assert "rebuild(self, state)" in text.splitlines()[0]
    assert "key(s) in state_dict" in text
    assert kind == "masked" or "Missing key(s) in state_dict" in text


@pytest.mark.parametrize("kind", [*sorted(CHANGES), "pruned"])
def test_rebuild_makes_the_structure_again(kind: str) -> None:
    change = CHANGES[kind][0] if kind != "pruned" else pruned

    class Rebuilding(changing(change)):  # type: ignore[misc]
        def state_dict(self) -> dict[str, Any]:
            return {"changed": self.changed}

        def rebuild(self, state: Mapping[str, Any]) -> None:
            if state["changed"]:
                change(self.model)

    resumed = trained(Rebuilding, END, [2, 6, 9])
    assert resumed.breaks == []
    assert_same(resumed, trained(Rebuilding, END))


def test_layers_that_learn_their_shapes_are_no_change() -> None:
    class Lazy(Small):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.lazy = context.wrap_model(nn.LazyLinear(3))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.lazy(batch)
            return super().train_batch(batch, epoch_idx, batch_idx)

    assert trained(Lazy, 5).breaks == []


def test_a_parameter_that_is_gone_fails_with_its_name(tmp_path: Path) -> None:
    class Shrinking(Small):
        parts = 2

        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            extra = [nn.Parameter(torch.zeros(1)) for _ in range(self.parts)]
            self.optimizer = context.wrap_optimizer(torch.optim.SGD([*self.model.parameters(), *extra], lr=1e-3))

    trainer = PyTorchTrainer(Shrinking, INFO)
    trainer.train(2, lambda: False)
    trainer.save(tmp_path)
    Shrinking.parts = 1
    with pytest.raises(WillRepeat, match="a parameter that is in no wrapped model, which is not there after __init__"):
        PyTorchTrainer(Shrinking, INFO).load(tmp_path)
