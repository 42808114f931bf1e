"""Weighted max-min fair shares over the tree workspace > user > experiment.

Slots are divided by progressive filling (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): the level rises for all
children of a node in proportion to their weights until their demand is met. At the leaves, shares become whole gangs: each is
rounded down, and what is over goes, a gang at a time, to those that lost most by it (ties: the earlier experiment).

What a node cannot give back (work that may not be preempted) is the least it gets; it counts inside its owner's share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tenuto.services.scheduler.policies.rounding import Loser

EPSILON = 1e-9
"""Sums of shares are off by less than this."""


@dataclass(slots=True)
class ShareNode:
    """Node of the tree; `least` and `demand` of an inner node are the sums of its children."""

    key: int
    """Leaf: its experiment."""
    weight: float
    demand: float
    """Slots it holds or wants, and may have."""
    least: float = 0.0
    """Slots it holds and cannot be made to give back."""
    children: list[ShareNode] = field(default_factory=list)
    share: float = 0.0
    gang: int = 1
    """Leaf: least slots of a trial."""
    trials: int = 0
    """Elastic leaf: number of its trials that run or wait; 0: it is not elastic."""
    most: int = 0
    """Elastic leaf: most slots of a trial."""
    order: tuple[float, int] = (0.0, 0)
    owner: str = ""
    """Inner node: owner whose use over time counts."""


def divide(capacity: float, nodes: Sequence[ShareNode]) -> None:
    """Sets `share` of the nodes and of all below them. Shares are at least `least`, at most `demand`, in proportion to the
    weights in between, and use the capacity up as far as there is demand."""
    if sum([node.demand for node in nodes]) <= capacity:
        level = float("inf")
    else:
        level = _level([(node.weight, node.least, node.demand) for node in nodes if node.demand > 0], capacity)
    for node in nodes:
        # Each child's share rises with the level from `least` to `demand`.
        share = node.weight * level if node.demand > 0 else 0.0
        share = share if share < node.demand else node.demand
        node.share = share if share > node.least else node.least
        if node.children:
            divide(node.share, node.children)


def _level(bounds: list[tuple[float, float, float]], capacity: float) -> float:
    """The level at which sum(clamp(weight x level, least, most)) is the capacity; infinite where all demand is met."""
    total = sum([least for _, least, _ in bounds])
    if total >= capacity:
        return 0.0
    if len(bounds) == 1:
        return capacity / bounds[0][0]
    # A share rises between the levels where its least and its demand are reached: there the slope changes.
    points = sorted(
        [(least / weight, weight) for weight, least, _ in bounds] + [(most / weight, -weight) for weight, _, most in bounds]
    )
    slope = level = 0.0
    for point, change in points:
        rise = slope * (point - level)
        if total + rise >= capacity:
            break
        total, level = total + rise, point
        slope += change
    return level + (capacity - total) / slope if slope > EPSILON else level


def rounded(leaves: Sequence[ShareNode]) -> tuple[dict[int, int], int, list[Loser]]:
    """Shares rounded down to whole gangs, their sum, and the leaves that lost by it, sorted."""
    targets: dict[int, int] = {}
    losers: list[Loser] = []
    given = 0
    for leaf in leaves:
        share, gang = leaf.share, leaf.gang
        # A share that is whole gangs but for the error of sums must not lose a gang by it.
        target = int((share + EPSILON) // gang) * gang if not leaf.trials else _fitting(leaf, int(share + EPSILON))
        if target < leaf.least:
            target = int(leaf.least)
        targets[leaf.key] = target
        given += target
        if target < share - EPSILON:
            step = next_step(leaf, target)
            if target + step <= leaf.demand + EPSILON:
                # Negative, so that the experiment that lost most sorts first; rounded, so that errors of sums break no tie.
                losers.append(Loser(round((target - share) / step, 9), leaf.order, leaf.key, step))
    losers.sort()
    return targets, given, losers


def _fitting(leaf: ShareNode, share: int) -> int:
    """Most slots within the share that its elastic trials can use."""
    running = min(leaf.trials, share // leaf.gang)
    return min(share, running * leaf.most)


def next_step(leaf: ShareNode, target: int) -> int:
    """Slots up to its next larger number: a gang; for elastic trials one slot, or the least of another trial."""
    if not leaf.trials:
        return leaf.gang
    running = min(leaf.trials, target // leaf.gang)
    if target < running * leaf.most:
        return 1
    return max(1, (running + 1) * leaf.gang - target)
