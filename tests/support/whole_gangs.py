"""Rounding of shares to whole gangs at one go: as the scheduler's `Remainder`, which keeps up with changes, must come out."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.services.scheduler.policies.rounding import Loser
from tenuto.services.scheduler.policies.shares import ShareNode, rounded


def whole_gangs(capacity: int, leaves: Sequence[ShareNode]) -> dict[int, int]:
    """Slots of each leaf as whole gangs, within one gang of its share where its demand allows."""
    targets, given, losers = rounded(leaves)
    give(targets, capacity - given, losers)
    return targets


def give(targets: dict[int, int], left: int, losers: Sequence[Loser]) -> None:
    """Each in its turn gets its step if it is not more than what is left. `losers`: sorted."""
    for _, _, key, step in losers:
        if left <= 0:
            return
        if step <= left:
            targets[key] += step
            left -= step
