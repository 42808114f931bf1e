"""Options of optimizers when a trial begins from another one's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, SequentialLR, StepLR

from tenuto.workers.pytorch import state
from tenuto.workers.pytorch.options import Given, given, take_over


class Built:
    """A trial built from its hyperparameters, and some steps of training."""

    def __init__(self, rate: float, momentum: float = 0.9, schedule: str = "step", steps: int = 0) -> None:
        one, other = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        groups: list[dict[str, Any]] = [{"params": [one]}, {"params": [other], "lr": 0.5}]
        self.optimizer: Optimizer = torch.optim.SGD(groups, lr=rate, momentum=momentum)
        self.schedulers: list[LRScheduler] = []
        if schedule == "step":
            self.schedulers = [StepLR(self.optimizer, step_size=2, gamma=0.5)]
        elif schedule == "sequence":
            parts: list[LRScheduler] = [StepLR(self.optimizer, step_size=2, gamma=0.5) for _ in range(2)]
            self.schedulers = [SequentialLR(self.optimizer, parts, milestones=[4])]
        self.given: Given = given([self.optimizer])
        self.train(steps)

    def train(self, steps: int) -> list[float]:
        rates = []
        for _ in range(steps):
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.ones_like(parameter)
            self.optimizer.step()
            for scheduler in self.schedulers:
                scheduler.step()
            rates.append(self.rate)
        return rates

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def load(self, saved: Built) -> list[str]:
        self.optimizer.load_state_dict(saved.optimizer.state_dict())
        for mine, theirs in zip(self.schedulers, saved.schedulers, strict=True):
            mine.load_state_dict(theirs.state_dict())
        return take_over([self.optimizer], self.schedulers, self.given, saved.given)


@pytest.mark.parametrize("schedule", ["step", "sequence", "none"])
def test_the_same_options_leave_everything_as_it_was_saved(schedule: str) -> None:
    saved, resumed = Built(0.1, schedule=schedule, steps=3), Built(0.1, schedule=schedule)
    saved.optimizer.param_groups[0]["momentum"] = 0.3  # by the user's own code, on the way
    assert resumed.load(saved) == []
    assert resumed.optimizer.state_dict()["param_groups"] == saved.optimizer.state_dict()["param_groups"]
    assert resumed.train(4) == saved.train(4)


@pytest.mark.parametrize("schedule", ["step", "none"])
def test_another_learning_rate_counts_from_the_first_step_and_keeps_its_schedule(schedule: str) -> None:
    copy = Built(0.2, schedule=schedule)
    assert copy.load(Built(0.1, schedule=schedule, steps=3)) == ["lr 0.2"]
    alone = Built(0.2, schedule=schedule, steps=3)
    assert copy.rate == alone.rate
    assert copy.train(4) == alone.train(4)
    assert copy.optimizer.param_groups[1]["lr"] == alone.optimizer.param_groups[1]["lr"], "the group that no one changed"
    state = copy.optimizer.state[copy.optimizer.param_groups[0]["params"][0]]
    assert state["momentum_buffer"].abs().sum() > 0, "the optimizer's memory is the parent's"


def test_schedules_inside_a_schedule_take_the_new_rate() -> None:
    copy = Built(0.2, schedule="sequence")
    copy.load(Built(0.1, schedule="sequence", steps=3))
    assert copy.train(4) == Built(0.2, schedule="sequence", steps=3).train(4)


def test_other_options_count_too_and_what_the_code_changed_on_the_way_stays() -> None:
    parent, copy = Built(0.1, momentum=0.9, schedule="none", steps=1), Built(0.1, momentum=0.5, schedule="none")
    parent.optimizer.param_groups[1]["nesterov"] = True
    assert copy.load(parent) == ["momentum 0.5"]
    assert [group["momentum"] for group in copy.optimizer.param_groups] == [0.5, 0.5]
    assert copy.optimizer.param_groups[1]["nesterov"]


def test_a_checkpoint_that_does_not_say_is_loaded_as_it_is() -> None:
    parent, copy = Built(0.1, schedule="none", steps=1), Built(0.2, schedule="none")
    copy.optimizer.load_state_dict(parent.optimizer.state_dict())
    assert take_over([copy.optimizer], [], copy.given, None) == []
    assert copy.rate == 0.1


def test_what_was_read_from_a_checkpoint_is_written_as_the_same_bytes(tmp_path: Path) -> None:
    """Though its strings and tuples are other objects than those of the code that made it first."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    shared = [1.0]
    first, again = tmp_path / "first", tmp_path / "again"
    for directory in (first, again):
        directory.mkdir()
        parts = {"optimizers": [optimizer.state_dict()], "given": given([optimizer]), "own": [shared, shared]}
        state.save_parts({**parts, "device": "cpu", "rates": ("lr", (0.9, 0.999))}, directory)
        read = state.load_parts(directory)
        assert read["given"] == given([optimizer])
        assert read["own"][0] is read["own"][1]
        before, optimizer = given([optimizer]), torch.optim.AdamW(model.parameters(), lr=0.1)
        optimizer.load_state_dict(read["optimizers"][0])
        assert given([optimizer]) == before
    one, other = ((directory / state.STATE_FILE).read_bytes() for directory in (first, again))
    assert one == other
