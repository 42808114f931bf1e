"""Capacity of a pool for gangs, busy or not: which gangs can ever start on its present agents, and how many at once.

Every event about an agent makes the pool's agents anew, so what was found for these very ones is true. It is kept in the pool's
memo, which is no part of the state: without it every result is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from tenuto.schemas.sentences.waiting import NoRoom, TooLarge, Waiting
from tenuto.services.scheduler.policies.placement import Ground, for_trial
from tenuto.services.scheduler.policies.reasons import gang
from tenuto.services.scheduler.state import Constraints, Experiment, Pool, State
from tenuto.services.scheduler.state.usable import usable_slots

REMEMBERED_MAX = 10_000
"""Kinds of gangs in one pool; beyond it all are forgotten and found anew."""


class Reach(NamedTuple):
    """Capacity of one pool for gangs of one kind and size, if nothing else ran."""

    gangs: int
    """Gangs that fit at once."""
    largest: int
    """Slots of the largest room."""
    slots: int
    """Slots of all rooms that could hold such a gang."""


NOWHERE = Reach(0, 0, 0)


class _Reaches(NamedTuple):
    agents: tuple[str, ...]
    """Agents of the pool for which these were found."""
    found: dict[tuple[Constraints, int], Reach]


def reach_of(state: State, pool: Pool, constraints: Constraints | None, wanted: int) -> Reach:
    if constraints is None:
        return Reach(pool.capacity // wanted, pool.capacity, pool.capacity) if wanted <= pool.capacity else NOWHERE
    kept = pool.memo.get(_Reaches)
    if kept is None or kept.agents is not pool.agents or len(kept.found) > REMEMBERED_MAX:
        kept = pool.memo.keep(_Reaches(pool.agents, {}))
    known = kept.found
    key = (constraints, wanted)
    if key not in known:
        rooms = Ground(state, pool).rooms(constraints, wanted)
        sizes = [sum([len(usable_slots(pool, state.agents[item])) for item in room]) for room in rooms]
        gangs = sum([size // wanted for size in sizes])
        known[key] = Reach(gangs, max(sizes), sum(sizes)) if gangs else NOWHERE
    return known[key]


def restricted(experiment: Experiment) -> bool:
    """True if any of its trials may not go everywhere in its pool."""
    return experiment.constraints is not None or bool(experiment.kept_away)


def coming(state: State, pool: Pool, experiment: Experiment) -> int:
    """Number of its trials, waiting or about to wait once their workers have left, that the pool could hold one by one."""
    numbers = (*experiment.waiting, *experiment.returning)
    usual = reach_of(state, pool, experiment.constraints, experiment.slots_per_trial).gangs > 0
    if not experiment.kept_away:
        return len(numbers) if usual else 0
    apart = set(numbers).intersection(experiment.kept_away)
    found = (len(numbers) - len(apart)) if usual else 0
    return found + sum([_fits(state, pool, experiment, number) for number in sorted(apart)])


def first_coming(state: State, pool: Pool, experiment: Experiment) -> int | None:
    """The first waiting trial that the pool could hold; None: none of them may ever start there as its agents are now."""
    for number in experiment.waiting:
        if number not in experiment.kept_away:
            usual = reach_of(state, pool, experiment.constraints, experiment.slots_per_trial).gangs > 0
            return number if usual else None
        if _fits(state, pool, experiment, number):
            return number
    return None


def _fits(state: State, pool: Pool, experiment: Experiment, number: int) -> bool:
    asked = for_trial(experiment, number)
    return reach_of(state, pool, asked.constraints, asked.slots_per_trial).gangs > 0


def never(state: State, pool: Pool, experiment: Experiment) -> Waiting | None:
    """Reason why none of the experiment's trials can ever start in its pool as that is now; None if one can."""
    if experiment.slots_per_trial > pool.capacity:
        return TooLarge(**gang(experiment), slots_offered=pool.capacity)
    if first_coming(state, pool, experiment) is not None:
        return None
    first = experiment.waiting[0] if experiment.waiting else None
    return no_room(state, pool, experiment if first is None else for_trial(experiment, first), pool.capacity)


def no_room(state: State, pool: Pool, experiment: Experiment, slots_offered: int = 0) -> NoRoom:
    """Reason why no agents of the pool may run what the experiment asks for."""
    image = experiment.constraints.image if experiment.constraints else ""
    apart = sum([state.agents[item].image not in ("", image) for item in pool.agents])
    return NoRoom(**gang(experiment), slots_offered=slots_offered, agents_apart=apart)
