"""Turns: under fair share a gang that is larger than its share is entitled to its slots for a part of the time.

Shares are rounded to whole gangs, so one that needs more slots than its share is would wait as long as others have work. So the
share is given in time instead: for a while it waits, and for a while it is entitled to one gang and the others' shares are
smaller. Of both together the second is the part that its share is of its gang; the shorter of them is TURN_US. With a share of
4 slots a gang of 8 waits half an hour and has half an hour, in turn with the others; a gang of 5 waits half an hour and has two.

Whose turn it is must not depend on who holds slots just now: else two gangs would have the turn in turn, while others give way
to one and get their slots back from the other. So an owner that wants more than its quota has none.

One turn begins at a time, the one that is due for longest first; together turns take no more than half of the pool, except for
a single one. The state keeps since when an experiment holds nothing, and until when its turn lasts.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tenuto.services.scheduler.policies.shares import EPSILON
from tenuto.services.scheduler.policies.targets import RememberedTargets
from tenuto.services.scheduler.state import Experiment, Pool, State
from tenuto.services.scheduler.state.giving_way import slots_kept

TURN_US = 30 * 60 * 1_000_000
"""Length of the shorter part of a period: long against saving and starting again (seconds to a minute), short against the hours
for which others' work may last."""
PERIOD_US_MAX = 24 * 3600 * 1_000_000
"""Longest wait, for the smallest of shares; and longest turn."""
LOOKED_AT_MAX = 100
"""Experiments without slots that are looked at in a pass, those that wait for longest first."""


@dataclass(frozen=True)
class Shares:
    """Shares and turns on which a pass is based."""

    targets: Mapping[int, int]
    """Experiment -> slots that it is entitled to now."""
    below: set[int]
    """Experiments that hold less than that."""
    above: set[int]
    """Experiments that hold more than that."""
    turns: Mapping[int, int]
    """Experiment whose turn it is -> slots of its gang."""


def due_us(experiment: Experiment, known: RememberedTargets) -> int | None:
    """Time of its turn if it holds nothing until then; None: its share is none, or as large as its gang."""
    share = _share(experiment, known)
    if share <= EPSILON or known.targets.get(experiment.experiment_id, 0) >= experiment.slots_per_trial:
        return None
    return experiment.unserved_since_us + _period_us(experiment.slots_per_trial - share, share)


def turn_us(experiment: Experiment, known: RememberedTargets) -> int:
    """Length of its turn in microseconds."""
    share = _share(experiment, known)
    return _period_us(share, experiment.slots_per_trial - share)


def _share(experiment: Experiment, known: RememberedTargets) -> float:
    """Share in slots, before it was rounded to whole gangs."""
    group = known.groups.get((experiment.workspace, experiment.user))
    key = experiment.experiment_id
    return group.known[key][2].share if group is not None and key in group.known else 0.0


def _counts(experiment: Experiment, known: RememberedTargets) -> bool:
    """True if it holds slots, or wants some that it could have."""
    group = known.groups.get((experiment.workspace, experiment.user))
    key = experiment.experiment_id
    return group is not None and key in group.known and group.known[key][2].demand > 0


def _period_us(part: float, other: float) -> int:
    times = part / other if other > EPSILON else PERIOD_US_MAX / TURN_US
    return round(min(TURN_US * max(1.0, times), PERIOD_US_MAX))


def quota_binds(state: State, known: RememberedTargets, experiment: Experiment) -> bool:
    """True if one of its owners wants more in this pool than its quota is."""
    for owner in experiment.owners:
        share = state.shares.get(owner)
        if share is None or share.max_slots is None:
            continue
        own = [group.demand for key, group in known.groups.items() if owner in (f"workspace/{key[0]}", f"user/{key[1]}")]
        if sum(own) > share.max_slots:
            return True
    return False


def any_due(pool: Pool, now_us: int) -> bool:
    """True if an experiment has been without slots for so long that it might have a turn."""
    return bool(pool.unserved) and pool.unserved[0][0] + TURN_US <= now_us


def with_turns(
    state: State, pool: Pool, known: RememberedTargets, now_us: int, may_start: Callable[[Experiment], bool]
) -> Shares:
    """Shares with the turns that are due. `may_start`: tells if an experiment's gang could start, if it had the slots."""
    turns = _turns(state, pool, known, now_us, may_start)
    if not turns:
        return Shares(known.targets, known.below, known.above, turns)
    targets = _reduced(state, pool, {**known.targets, **turns}, turns)
    over = {key: pool.held.get(key, 0) - targets.get(key, 0) for key in sorted({*targets, *pool.held})}
    return Shares(
        targets, {key for key, slots in over.items() if slots < 0}, {key for key, slots in over.items() if slots > 0}, turns
    )


def _turns(
    state: State, pool: Pool, known: RememberedTargets, now_us: int, may_start: Callable[[Experiment], bool]
) -> dict[int, int]:
    turns: dict[int, int] = {}
    # Turns that last beyond now: no id of an experiment is above 1 << 62.
    for _, key in pool.turns[bisect_right(pool.turns, (now_us, 1 << 62)) :]:
        gang = state.experiments[key].slots_per_trial
        wants = state.experiments[key].queued or state.experiments[key].returning or key in pool.held
        if wants and known.targets.get(key, 0) < gang <= pool.capacity and _counts(state.experiments[key], known):
            turns[key] = gang
    taken, due = sum(turns.values()), []
    for since_us, key in pool.unserved[:LOOKED_AT_MAX]:
        # The longest waiting come first and no wait is shorter than TURN_US, so all others are too early.
        if since_us + TURN_US > now_us:
            break
        experiment = state.experiments[key]
        gang, at_us = experiment.slots_per_trial, due_us(experiment, known)
        fits = gang <= pool.capacity and (not turns or taken + gang <= pool.capacity // 2)
        if key not in turns and fits and at_us is not None and at_us <= now_us and may_start(experiment):
            due.append((at_us, key, gang))
    if due:
        _, key, gang = min(due)
        turns[key] = gang
    return turns


def _reduced(state: State, pool: Pool, targets: dict[int, int], turns: Mapping[int, int]) -> dict[int, int]:
    """Shares of the others after they give way, those with most for their weight first, a gang at a time; none gives what it
    cannot give back."""
    over = sum(targets.values()) - pool.capacity
    heap: list[tuple[float, float, int]] = []

    def push(key: int) -> None:
        experiment = state.experiments[key]
        if key not in turns and targets[key] > slots_kept(pool, experiment):
            heapq.heappush(heap, (-targets[key] / experiment.weight, -experiment.place, key))

    for key in sorted(targets):
        push(key)
    while over > 0 and heap:
        _, _, key = heapq.heappop(heap)
        experiment = state.experiments[key]
        step = 1 if experiment.elastic and targets[key] > experiment.slots_per_trial else experiment.slots_per_trial
        step = min(step, targets[key] - slots_kept(pool, experiment))
        targets[key] -= step
        over -= step
        push(key)
    return targets
