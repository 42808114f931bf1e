"""State of each rank in a checkpoint: its generators, its part of the metrics not yet reported, gradients that it has
accumulated, and the user's own state if that differs. State that is equal on all ranks is stored once, as rank 0's."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tenuto.workers.pytorch.distributed.ranks import Ranks

ALONE = ("random", "metrics", "reducers", "carried", "last_batch")
"""Parts of a checkpoint that one process saved."""


@dataclass(frozen=True)
class Collected:
    batches: int
    ranks: list[dict[str, Any]]
    """States by rank."""


def collect(batches: int, own: dict[str, Any], users: Mapping[str, Any], ranks: Ranks) -> Collected:
    """Collects the state; called on all ranks. `users`: the user's own state; it may be large, and is usually the same on all
    ranks, so it is sent only if it differs."""
    data = io.BytesIO()
    torch.save(users, data)
    marks = ranks.objects(hashlib.sha256(data.getvalue()).hexdigest())
    if len(set(marks)) > 1:
        own = {**own, "users": dict(users)}
    return Collected(batches, ranks.objects(own))


def of_rank(saved: Mapping[str, Any], rank: int, size: int) -> dict[str, Any]:
    """This rank's own state. If the number of ranks has changed: the unreported metrics of all go to rank 0, where their sum
    is the same, and so do the reducers' states of removed ranks; accumulated gradients are divided so that their sum is the
    same, and new ranks draw from new generators (`random` is None)."""
    before: list[dict[str, Any]] = saved.get("ranks") or [{name: saved.get(name) for name in ALONE}]
    none_carried: list[list[Any]] = [[] for _ in before[0]["reducers"]]
    before = [{**item, "carried": item.get("carried") or none_carried} for item in before]  # older checkpoints have none
    if len(before) == size:
        return before[rank]
    mean = mean_of_ranks(saved)
    gradients = {} if mean is None else {"gradients": mean}
    if rank > 0:
        none = {name: [0.0] * len(values) for name, values in before[0]["metrics"].items()}
        random = before[rank]["random"] if rank < len(before) else None
        reducers = before[rank]["reducers"] if rank < len(before) else [None for _ in none_carried]
        return {"random": random, "metrics": none, "reducers": reducers, "carried": none_carried, **gradients}
    metrics = {
        name: [sum(values) for values in zip(*(item["metrics"].get(name, []) for item in before), strict=False)]
        for name in before[0]["metrics"]
    }
    carried = [
        [state for item in before for state in item["carried"][index]]
        + [item["reducers"][index] for item in before[size:] if item["reducers"][index] is not None]
        for index in range(len(none_carried))
    ]
    return {
        "random": before[0]["random"],
        "metrics": metrics,
        "reducers": before[0]["reducers"],
        "carried": carried,
        **gradients,
    }


def mean_of_ranks(saved: Mapping[str, Any]) -> list[list[torch.Tensor | None]] | None:
    """Mean of the gradients that ranks with the whole model have accumulated; None if the checkpoint has none of that kind."""
    before: list[dict[str, Any]] = saved.get("ranks") or [{}]
    return _mean([item["gradients"] for item in before]) if "gradients" in before[0] else None


def _mean(gathered: list[list[list[torch.Tensor | None]]]) -> list[list[torch.Tensor | None]]:
    """Mean of the gradients that all ranks have accumulated, by optimizer and parameter, for each rank."""

    def mean(items: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
        there = [item for item in items if item is not None]
        return torch.stack(there).sum(0) / len(items) if there else None

    return [[mean(items) for items in zip(*optimizers, strict=True)] for optimizers in zip(*gathered, strict=True)]
