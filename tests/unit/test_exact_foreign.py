"""Models and losses as research code has them: their state in plain attributes goes on, bit for bit."""

from __future__ import annotations

import copy
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tenuto.pytorch import PyTorchTrialContext
from tenuto.workers.pytorch.trainer import PyTorchTrainer
from tests.support.exact_trials import INFO, Average, Training, trained, whole

END, STOPS = 15, (4, 9)
pytestmark = pytest.mark.usefixtures("torch_as_it_was")


# Modules.


class Counting(nn.Module):
    """Its noise fades with the calls; as bare numbers, a private one among them, and in a layer of torch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(1, 1), nn.Dropout(0.5)
        self.calls, self._scale = 0, 1.0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
            self._scale *= 0.9
            self.drop.p = 0.5 / self.calls
        out: torch.Tensor = self.layer(self.drop(values)) + self._scale / (1 + self.calls)
        return out


class MemoryBank(nn.Module):
    """As in MoCo, but with a queue that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(1, 4)
        self.key = copy.deepcopy(self.query)
        for parameter in self.key.parameters():
            parameter.requires_grad_(False)
        self.queue, self.pointer = torch.zeros(8, 4), 0
        self.recent: deque[torch.Tensor] = deque(maxlen=3)
        self.head = nn.Linear(4, 1)

    @torch.no_grad()
    def _enqueue(self, keys: torch.Tensor) -> None:
        for mine, theirs in zip(self.key.parameters(), self.query.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs, alpha=0.1)
        self.queue[self.pointer] = keys.mean(0)
        self.pointer = (self.pointer + 1) % len(self.queue)
        self.recent.append(keys.detach().mean(0))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.query(values)) + self.queue.sum() * 0.1
        if self.recent:
            out = out + torch.stack(tuple(self.recent)).sum() * 0.1
        if self.training:
            self._enqueue(self.key(values))
        return out


class Carried(nn.Module):
    """A recurrent net with its hidden state carried over the batches; None in the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(1, 3), nn.Linear(3, 1)
        self.hidden: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out, (h, c) = self.rnn(values.reshape(-1, 1, 1), self.hidden)
        self.hidden = (h.detach(), c.detach())
        made: torch.Tensor = self.head(out.reshape(-1, 3))
        return made


class Noisy(nn.Module):
    """Draws from generators of its own, one deep inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.inner = nn.Sequential(nn.Identity(), Drawing())
        self.generators = {"torch": torch.Generator().manual_seed(3), "python": random.Random(5)}

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(1, generator=self.generators["torch"]) + self.generators["python"].random()  # type: ignore[arg-type,union-attr]
        out: torch.Tensor = self.inner(self.layer(values + drawn))
        return out


class Drawing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(7)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + float(self.rng.normal())


class Averaged(nn.Module):
    """Weights averaged in the model itself, with a warm-up that counts; a helper object, and a device that is noted anew."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.average = Average(self.layer)
        self.device: Any = None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.device = values.device
        self.dtype = values.dtype
        if self.training:
            self.average.update(self.layer)
        out: torch.Tensor = self.layer(values) + self.average.shadow["weight"].sum()
        return out


@pytest.mark.parametrize("net", [Counting, MemoryBank, Carried, Noisy, Averaged])
def test_a_module_goes_on_with_its_attributes(net: type[nn.Module]) -> None:
    resumed = whole(type(f"Of{net.__name__}", (Training,), {"net": net}))
    assert resumed.trial.model.training


def test_the_average_of_the_module_itself_is_the_same() -> None:
    kind = type("OfAveraged", (Training,), {"net": Averaged})
    ours, theirs = trained(kind, END, STOPS).trial.model.average, trained(kind, END).trial.model.average
    assert ours.updates == theirs.updates == END
    assert all(torch.equal(ours.shadow[name], theirs.shadow[name]) for name in theirs.shadow)


# What the trial holds without wrapping it.


class Proxies(nn.Module):
    """A metric-learning loss with parameters, and means of which it keeps count; one of them deep inside."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.ones(2))
        self.register_buffer("hidden", torch.zeros(1), persistent=False)
        self.inner = nn.Sequential(Meaning())

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = (output * self.proxies[0] - target).square().mean() + self.proxies[1].square() * self.hidden.sum()
        self.hidden += 0.01
        self.inner(loss)
        return loss * (1 + self.inner[0].mean)


class Meaning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.count = 0.0, 0

    def forward(self, loss: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean += (float(loss) - self.mean) / self.count
        return loss


class Own:
    """Says only a part of its state: the rest is kept, too, and what it says is not saved twice."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: torch.zeros(300, 100) + value.detach().sum() for name, value in model.named_parameters()}
        self.updates = self.loaded = 0

    def update(self) -> float:
        self.updates += 1
        for value in self.shadow.values():
            value.mul_(1 - 1 / (2 + self.updates))
        return float(self.shadow["weight"].sum())

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state["shadow"]
        self.loaded += 1


class Unwrapped(Training):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.criterion = Proxies()
        self.own = Own(self.model)
        self.proxies = torch.optim.SGD(self.criterion.parameters(), lr=0.01, momentum=0.9)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        self.proxies.step()
        self.proxies.zero_grad()
        loss: torch.Tensor = self.criterion(output + 1e-6 * self.own.update(), target)
        return loss


def test_a_loss_that_is_a_module_and_an_object_that_says_a_part_go_on() -> None:
    resumed = whole(Unwrapped)
    assert resumed.trial.criterion.inner[0].count == END
    assert resumed.trial.own.updates == END
    assert resumed.trial.own.loaded == 1  # what its own load_state_dict has set stays


# What cannot be kept is named, with its place.


class Streaming(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.numbers = (float(number) for number in range(100))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(values) + next(self.numbers)
        return out


def test_what_a_module_holds_and_no_checkpoint_can_is_named_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    deep = type("Deep", (Training,), {"net": lambda: nn.Sequential(nn.Linear(1, 1), Streaming())})
    [sentence] = trained(deep, 3).breaks
    line = 1 + next(n for n, text in enumerate(Path(__file__).read_text().splitlines()) if "self.numbers = (" in text)
    assert sentence.startswith("model.1.numbers is a generator, which a checkpoint cannot hold as it is; ")
    assert f"it is set in tests/unit/test_exact_foreign.py:{line}: " in sentence
    assert capsys.readouterr().err.count("model.1.numbers") == 1


def test_an_attribute_that_is_deleted_and_one_that_comes_later_are_as_they_were() -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.warm = nn.Linear(1, 1), 1.0

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            if hasattr(self, "warm"):
                del self.warm
                self.late = torch.zeros(1)
            else:
                self.late += 0.1
            out: torch.Tensor = self.layer(values) + self.late
            return out

    resumed = whole(type("OfChanging", (Training,), {"net": Changing}))
    assert not hasattr(resumed.trial.model, "warm")


def test_a_validation_draws_nothing_from_a_modules_generator() -> None:
    trainer = PyTorchTrainer(type("OfNoisy", (Training,), {"net": Noisy}), INFO)
    first = trainer.validate()
    assert trainer.validate() == first


def test_a_loss_with_a_gradient_that_waits_goes_on() -> None:
    class Late(Training):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.offset = nn.Parameter(torch.zeros(1))
            self.own = torch.optim.SGD([self.offset], lr=0.1)

        def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            self.own.step()  # with the gradient of the batch before
            self.own.zero_grad()
            return (output - target + self.offset).square().mean()

    whole(Late)


def test_what_an_object_says_itself_is_not_saved_twice(tmp_path: Path) -> None:
    trainer = PyTorchTrainer(Unwrapped, INFO)
    trainer.train(3, lambda: False)
    trainer.save(tmp_path)
    saved = torch.load(tmp_path / "state.pt", weights_only=True)["attributes"]
    paths = {"".join(path) for path, _ in saved}
    assert {"self.own", "self.own.updates", "self.criterion.inner.0.count"} <= paths
    assert not [path for path in paths if path.startswith("self.own.shadow")]
