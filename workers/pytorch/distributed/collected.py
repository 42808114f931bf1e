"""What a checkpoint keeps of each rank: its generators, its part of the metrics not yet reported, gradients that it has gathered,
and the user's own state where that differs. What is the same on all ranks is rank 0's, and stands in the checkpoint as ever."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tenuto.workers.pytorch.distributed.ranks import Ranks

ALONE = ("random", "metrics", "reducers", "carried", "last_batch")
"""Of a checkpoint that one process saved."""


@dataclass(frozen=True)
class Collected:
    batches: int
    ranks: list[dict[str, Any]]
    """By rank."""


def collect(batches: int, own: dict[str, Any], users: Mapping[str, Any], ranks: Ranks) -> Collected:
    """Called on all ranks. `users`: the user's own state; it may be large, and is the same on all ranks most often, so it is sent
    only where it differs."""
    data = io.BytesIO()
    torch.save(users, data)
    marks = ranks.objects(hashlib.sha256(data.getvalue()).hexdigest())
    if len(set(marks)) > 1:
        own = {**own, "users": dict(users)}
    return Collected(batches, ranks.objects(own))


def of_rank(saved: Mapping[str, Any], rank: int, size: int) -> dict[str, Any]:
    """This rank's own state. With another number of ranks than saved it: the open metrics of all go to rank 0, where their sum is
    the same, and so do the reducers' states of ranks that are no more; gathered gradients are shared out so that their sum is the
    same, and ranks that are new draw from new generators (`random` is None)."""
    before: list[dict[str, Any]] = saved.get("ranks") or [{name: saved.get(name) for name in ALONE}]
    none_carried: list[list[Any]] = [[] for _ in before[0]["reducers"]]
    before = [{**item, "carried": item.get("carried") or none_carried} for item in before]  # older checkpoints have none
    if len(before) == size:
        return before[rank]
    gradients = {"gradients": _mean([item["gradients"] for item in before])} if "gradients" in before[0] else {}
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


def _mean(gathered: list[list[list[torch.Tensor | None]]]) -> list[list[torch.Tensor | None]]:
    """Of gradients that each rank has gathered, by optimizer and parameter: as much for each rank as all had."""

    def mean(items: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
        there = [item for item in items if item is not None]
        return torch.stack(there).sum(0) / len(items) if there else None

    return [[mean(items) for items in zip(*optimizers, strict=True)] for optimizers in zip(*gathered, strict=True)]
