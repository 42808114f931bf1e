"""Optimizers and schedulers as research code has them, with others inside: their state goes on, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.lr_scheduler import LRScheduler as TorchScheduler

from tenuto.pytorch import LRScheduler, PyTorchTrialContext
from tests.support.exact_trials import Average, Training, trained, whole

END = 15
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


class SAM(torch.optim.Optimizer):
    """Sharpness-aware minimization, as it is mostly copied: with an optimizer inside that shares the groups."""

    def __init__(self, params: Any, rho: float = 0.05) -> None:
        super().__init__(params, {"rho": rho, "lr": 0.05, "momentum": 0.9})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.05, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups
        self.steps = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["before"] = parameter.data.clone()
                parameter.add_(parameter.grad, alpha=group["rho"] / (1 + self.steps))
                parameter.data = self.state[parameter]["before"]
        self.base_optimizer.step()

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


class OlderSAM(SAM):
    """Before its authors noticed that the groups are to be shared after a load, too."""

    def load_state_dict(self, state_dict: Any) -> None:
        torch.optim.Optimizer.load_state_dict(self, state_dict)


class Lookahead(torch.optim.Optimizer):
    """Slow weights in lists, a counter, and no word about either in the state."""

    def __init__(self, params: Any) -> None:
        self.optimizer = torch.optim.Adam(params, lr=0.01)
        super().__init__(self.optimizer.param_groups, {})
        self.param_groups = self.optimizer.param_groups
        self.slow_weights = [[p.clone().detach() for p in group["params"]] for group in self.param_groups]
        self.step_counter = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.optimizer.step()
        self.step_counter += 1
        if self.step_counter % 5:
            return
        for group, slow in zip(self.param_groups, self.slow_weights, strict=True):
            for parameter, kept in zip(group["params"], slow, strict=True):
                kept += 0.5 * (parameter - kept)
                parameter.copy_(kept)


class Wrapping(Lookahead):
    """Gives the inner optimizer's state for its own, and shares its state as well."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.fast_state = self.optimizer.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        assert self.fast_state is self.optimizer.state
        for parameter, state in self.fast_state.items():
            parameter.add_(state["exp_avg"], alpha=1e-3)

    def state_dict(self) -> Any:
        return {"fast": self.optimizer.state_dict(), "counter": self.step_counter}

    def load_state_dict(self, state_dict: Any) -> None:
        self.optimizer.load_state_dict(state_dict["fast"])
        self.step_counter = state_dict["counter"]
        self.param_groups, self.fast_state = self.optimizer.param_groups, self.optimizer.state


@pytest.mark.parametrize("kind", [SAM, OlderSAM, Lookahead, Wrapping])
def test_an_optimizer_goes_on_with_the_one_inside_and_its_attributes(kind: type[torch.optim.Optimizer]) -> None:
    class Scheduled(Training):
        make = kind

        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            context.wrap_lr_scheduler(
                torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9), LRScheduler.StepMode.STEP_EVERY_BATCH
            )

    optimizer: Any = whole(Scheduled).trial.optimizer
    inner = getattr(optimizer, "base_optimizer", None) or optimizer.optimizer
    assert inner.param_groups is optimizer.param_groups


class WarmUp(TorchScheduler):
    """Hands over to another scheduler after some steps, as is often copied; with an object and a function of its own."""

    def __init__(self, optimizer: Any) -> None:
        self.after = CosineAnnealingLR(optimizer, T_max=20)
        self.handed_over, self.average = False, Average(nn.Linear(1, 1))
        self.shape = lambda step: step / 5
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base * self.shape(self.last_epoch + 1) for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        if getattr(self, "last_epoch", -1) >= 5:
            self.handed_over = True
            self.average.updates += 1
            self.after.step()
            self.optimizer.param_groups[0]["lr"] += 1e-3 * self.average.updates
        else:
            super().step()


def test_a_scheduler_goes_on_with_the_one_inside() -> None:
    class Warmed(Training):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.scheduler = context.wrap_lr_scheduler(WarmUp(self.optimizer), LRScheduler.StepMode.STEP_EVERY_BATCH)

    resumed, alone = whole(Warmed), trained(Warmed, END)
    assert resumed.trial.scheduler.after.optimizer is resumed.trial.optimizer
    assert resumed.trial.optimizer.param_groups[0]["lr"] == alone.trial.optimizer.param_groups[0]["lr"]
    assert resumed.trial.scheduler.average.updates == alone.trial.scheduler.average.updates > 0


class ById(torch.optim.SGD):
    """As a much copied Lookahead does."""

    def state_dict(self) -> Any:
        return {"slow": {id(parameter): torch.zeros(1) for group in self.param_groups for parameter in group["params"]}}

    def load_state_dict(self, state_dict: Any) -> None:
        self.slow = state_dict["slow"]


def test_an_optimizer_that_names_parameters_by_id_is_named() -> None:
    kind = type("OfById", (Training,), {"make": staticmethod(lambda parameters: ById(parameters, lr=1e-3))})
    [sentence] = trained(kind, 3).breaks
    assert sentence.startswith("ById.state_dict names parameters by id()")
    assert "tests/unit/test_exact_optimizers.py:" in sentence
