"""Synchronized batch normalization against torch's own on the whole batch: ranks are threads here that add up for real."""

from __future__ import annotations

import contextlib
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from tenuto.schemas.config import ExperimentConfig
from tenuto.workers.errors import UserError
from tenuto.workers.pytorch.distributed.batch_norm import Link, synchronize


class Threads:
    """Sums over the ranks, each a thread that calls `sum_now` equally often."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.tensors: dict[int, torch.Tensor] = {}

    def of(self, rank: int, size: int) -> Any:
        group = self

        class Rank:
            def __init__(self) -> None:
                self.rank, self.size = rank, size

            def waiting(self) -> contextlib.AbstractContextManager[None]:
                return contextlib.nullcontext()

            def sum_now(self, tensor: torch.Tensor) -> None:
                group.tensors[rank] = tensor.clone()
                group.barrier.wait(60)
                tensor.copy_(sum(group.tensors[index] for index in range(size)))  # type: ignore[arg-type]
                group.barrier.wait(60)

        return Rank()


def layers(kind: str, **options: Any) -> nn.Sequential:
    torch.manual_seed(3)
    if kind == "images":
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, **options), nn.Tanh())
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, **options), nn.Tanh())


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}])
@pytest.mark.parametrize("kind", ["images", "rows"])
@pytest.mark.parametrize("weighed", [True, False])
def test_shares_of_any_size_train_like_the_whole_batch(kind: str, options: dict[str, Any], weighed: bool) -> None:
    """Weighed: losses carry the shares' weights, as with `context.backward`; else gradients do when they are summed."""
    inputs = torch.randn(*((7, 2, 5, 5) if kind == "images" else (7, 4)), generator=torch.Generator().manual_seed(1)) * 3 + 5
    whole = layers(kind, **options)
    parts = [copy.deepcopy(whole) for _ in range(3)]
    shares = [inputs[:5], inputs[5:], inputs]  # the third rank has no record, and computes along
    records, size = [5, 2, 0], 3
    group = Threads(size)

    def train(rank: int) -> list[torch.Tensor]:
        factor = 1 / size if weighed else records[rank] / 7
        synchronize(parts[rank], Link(group.of(rank, size), lambda: records[rank] > 0, lambda: factor, lambda: True))
        for _ in range(2):
            loss = parts[rank](shares[rank]).square().mean()
            (loss * (records[rank] * size / 7) if weighed else loss).backward()
        return [factor * parameter.grad for parameter in parts[rank].parameters()]  # type: ignore[operator]

    with ThreadPoolExecutor(size) as pool:
        gradients = list(pool.map(train, range(size)))
    for _ in range(2):
        whole(inputs).square().mean().backward()
    for index, parameter in enumerate(whole.parameters()):
        found = sum(each[index] for each in gradients)
        torch.testing.assert_close(found, parameter.grad, rtol=1e-5, atol=1e-5)
    for name, value in whole.named_buffers():
        for part in parts:
            torch.testing.assert_close(dict(part.named_buffers())[name], value, rtol=1e-5, atol=1e-6)


def test_outside_of_training_a_layer_is_torchs_own() -> None:
    model = layers("rows")
    plain = copy.deepcopy(model)
    link = Link(Threads(2).of(0, 2), lambda: True, lambda: 1.0, lambda: False)  # a sum would wait for the other rank
    synchronize(model, link)
    assert isinstance(model[1], nn.BatchNorm1d)
    assert type(model[1]).__name__ == "BatchNorm1d"
    inputs = torch.randn(6, 4)
    torch.testing.assert_close(model(inputs), plain(inputs), rtol=0, atol=0)
    torch.testing.assert_close(model.eval()(inputs), plain.eval()(inputs), rtol=0, atol=0)
    assert copy.deepcopy(model).state_dict().keys() == plain.state_dict().keys()


def test_a_layer_without_a_size_is_refused() -> None:
    with pytest.raises(UserError, match="run a batch through the model before wrap_model"):
        synchronize(nn.LazyBatchNorm1d(), Link(Threads(2).of(0, 2), lambda: True, lambda: 1.0, lambda: True))


def test_it_needs_whole_batches() -> None:
    config = {
        "name": "x",
        "entrypoint": "m:C",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 4}},
        "resources": {"slots_per_trial": {"min": 1, "max": 4}},
        "distributed": {"sync_batch_norm": True},
    }
    with pytest.raises(ValueError, match="takes statistics from the whole batch"):
        ExperimentConfig.model_validate(config)
    config["distributed"] = {"sync_batch_norm": True, "micro_batches": False}
    assert ExperimentConfig.model_validate(config).distributed.sync_batch_norm


def test_gradients_of_gradients_are_refused() -> None:
    """They would have to be summed over the ranks, too."""
    model = layers("rows")
    synchronize(model, Link(Threads(1).of(0, 1), lambda: True, lambda: 1.0, lambda: True))
    inputs = torch.randn(6, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()
