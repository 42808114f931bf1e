"""Running gangs that give way: the cheapest set that frees enough, found exactly within a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.services.scheduler.state import Allocation

STEPS_MAX = 60_000
"""Most sums looked at; beyond it a large set is chosen greedily and pruned, which is quick and may cost a few slots more."""


class Candidate(NamedTuple):
    allocation: Allocation
    freed: int
    """Slots that can be used again when it is gone: at least 1."""
    rank: int
    """Rank among the gangs to stay; 0 goes first."""


Cost = tuple[int, int, int, int]
"""(slots interrupted, gangs interrupted, ranks, slot-microseconds since the last checkpoints), compared in this order."""


def cost_of(candidate: Candidate, now_us: int) -> Cost:
    size = candidate.allocation.size
    return (size, 1, candidate.rank, size * max(0, now_us - candidate.allocation.since_us))


def cheapest(candidates: Sequence[Candidate], missing: int, now_us: int) -> list[Candidate]:
    """The candidates that free at least `missing` slots at the least cost, in the order given; empty if none do.

    A knapsack cover by dynamic programming over the freed slots (Martello and Toth, Knapsack Problems, 1990, section 2.6):
    exact while candidates x missing stays within STEPS_MAX. No victim is in vain: without any one of them it would not do.
    """
    if missing <= 0 or sum(candidate.freed for candidate in candidates) < missing:
        return []
    if len(candidates) * missing > STEPS_MAX:
        return _greedy(candidates, missing, now_us)
    best: list[tuple[Cost, tuple[int, ...]] | None] = [None] * (missing + 1)
    best[0] = ((0, 0, 0, 0), ())
    for at, candidate in enumerate(candidates):
        slots, gangs, rank, work = cost_of(candidate, now_us)
        freed = candidate.freed
        # Downwards, so that a sum which contains this candidate is not extended by it again.
        for before in range(missing - 1, -1, -1):
            entry = best[before]
            if entry is None:
                continue
            # All sums beyond `missing` are one entry: freeing more is not better.
            after = min(missing, before + freed)
            known = best[after]
            cost = entry[0]
            total = (cost[0] + slots, cost[1] + gangs, cost[2] + rank, cost[3] + work)
            # Of equal costs the first one stays, so the choice depends on nothing but the order of the candidates.
            if known is None or total < known[0]:
                best[after] = (total, (*entry[1], at))
    found = best[missing]
    assert found is not None
    return [candidates[at] for at in found[1]]


def _greedy(candidates: Sequence[Candidate], missing: int, now_us: int) -> list[Candidate]:
    """Least deserving first until they suffice, then without those that are not needed, the most deserving first."""
    ordered = sorted(candidates, key=lambda item: (item.rank, cost_of(item, now_us), item.allocation.allocation_id))
    chosen: list[Candidate] = []
    total = 0
    for candidate in ordered:
        if total >= missing:
            break
        chosen.append(candidate)
        total += candidate.freed
    needed: list[Candidate] = []
    for candidate in reversed(chosen):
        if total - candidate.freed >= missing:
            total -= candidate.freed
        else:
            needed.append(candidate)
    return needed[::-1]
