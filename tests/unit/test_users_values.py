"""What users change, keep at length, or prune: the record stays as it is, checkpoints stay quick, and a pause ends nothing."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import deque
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from tenuto.pytorch import PyTorchTrialContext
from tenuto.workers.user_state.attributes import Attributes
from tenuto.workers.user_state.marks import PLAIN_ITEMS_MIN, mark_of_plain
from tests.support.exact_trials import INFO, Small, assert_same, trained


def test_hyperparameters_and_configuration_are_the_users_to_change() -> None:
    info = dataclasses.replace(INFO, hyperparameters={"optimizer": {"betas": [0.9]}}, config={"data": {"paths": ["a"]}})
    context = PyTorchTrialContext(info, torch.device("cpu"))
    context.get_hparams()["optimizer"]["betas"].append(1)
    context.get_hparam("optimizer")["momentum"] = 2
    context.get_hparam("optimizer.betas").clear()
    context.get_experiment_config()["data"]["paths"].clear()
    assert (info.hyperparameters, info.config) == ({"optimizer": {"betas": [0.9]}}, {"data": {"paths": ["a"]}})
    assert context.get_hparams() == {"optimizer": {"betas": [0.9]}}


class Pruned(Small):
    """Prunes twice while it trains, as torch's tutorial does."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context, self.seen = context, []
        self.model = context.wrap_model(nn.Sequential(nn.Linear(1, 6), nn.Linear(6, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=1e-3))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx in (3, 9):
            prune.l1_unstructured(self.model[0], "weight", amount=2)
            prune.random_unstructured(self.model[1], "weight", amount=1)
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_model_that_is_pruned_in_training_goes_on_after_a_pause() -> None:
    whole = trained(Pruned, 14)
    assert int((whole.trial.model[0].weight == 0).sum()) == 4
    for stops in ([2], [5], [5, 11]):
        resumed = trained(Pruned, 14, stops)
        assert resumed.breaks == []
        assert resumed.seen == whole.seen[stops[-1] :] or resumed.seen == whole.seen
        assert all(torch.equal(one, other) for one, other in zip(resumed.weights, whole.weights, strict=True))
        assert torch.equal(resumed.trial.model[0].weight, whole.trial.model[0].weight)
    assert_same(trained(Pruned, 14), whole)


ITEMS = st.one_of(
    st.integers(), st.floats(), st.text(max_size=3), st.none(), st.booleans(), st.tuples(st.integers(), st.floats())
)


@given(st.lists(ITEMS, min_size=1, max_size=5), ITEMS, st.booleans())
def test_a_long_plain_container_is_marked_by_its_values_and_their_types(items: list[Any], other: Any, queue: bool) -> None:
    made: Any = deque if queue else list
    whole = [items[at % len(items)] for at in range(PLAIN_ITEMS_MIN)]
    mark = mark_of_plain(made(whole))
    assert mark is not None
    assert mark == mark_of_plain(made([(*item,) if type(item) is tuple else item for item in whole]))
    changed = [*whole[:-1], other]
    if repr(changed[-1]) != repr(whole[-1]) and not (type(other) is float and math.isnan(other)):
        assert mark != mark_of_plain(made(changed))
    assert mark_of_plain(made([*whole, object()])) is None
    assert mark_of_plain(made([*whole, [1]])) is None, "a list that others may hold"


@pytest.mark.parametrize("kind", ["numbers", "tuples"])
def test_a_long_replay_memory_is_kept(kind: str) -> None:
    class Agent:
        def __init__(self) -> None:
            self.memory: deque[Any] = deque(maxlen=5_000)

    drawn = random.Random(3)
    agent, fresh = Agent(), Agent()
    attributes, anew = Attributes({"self": agent}), Attributes({"self": fresh})
    for index in range(7_000):
        agent.memory.append(drawn.random() if kind == "numbers" else (index, drawn.random(), "left", None, bool(index % 2)))
    state = attributes.state()
    assert anew.restore(state) == []
    assert fresh.memory == agent.memory
    assert fresh.memory.maxlen == 5_000
    assert list(map(type, fresh.memory)) == list(map(type, agent.memory))
    agent.memory[17] = (0, 0.0, "right", None, True) if kind == "tuples" else 2.0
    assert attributes.state() != state
