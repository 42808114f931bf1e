"""Masks experiments that the user may not see: what remains is that slots are taken, and that an experiment waits for some."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from tenuto.schemas.ids import experiment_of
from tenuto.schemas.queue import PastAgent, PoolQueue, QueueAnswer, QueueRow
from tenuto.services.gateway.cluster.views import AgentView
from tenuto.services.gateway.rights.access import Sight

HIDDEN = "hidden"
"""Text in place of an allocation's id."""
WAITS = "An experiment of a workspace that you do not see waits for slots."


def as_seen(found: QueueAnswer, seen: Sight) -> QueueAnswer:
    if seen.everything:
        return found
    shares = tuple(item for item in found.shares if item.owner == "user" or seen.sees(item.name))
    return found.model_copy(update={"pools": tuple(_pool(pool, seen) for pool in found.pools), "shares": shares})


def _pool(pool: PoolQueue, seen: Sight) -> PoolQueue:
    rows = tuple(row if seen.sees(row.workspace) else _anonymous(row) for row in pool.rows)
    return pool.model_copy(update={"rows": rows})


def _anonymous(row: QueueRow) -> QueueRow:
    """Its place in the queue, its slots, and whether it waits."""
    return QueueRow(
        position=row.position,
        experiment_id=0,
        pool=row.pool,
        priority=row.priority,
        place=row.place,
        weight=row.weight,
        workspace="",
        user="",
        max_slots=None,
        slots_per_trial=row.slots_per_trial,
        slots=row.slots,
        slots_leaving=row.slots_leaving,
        auxiliary_trials=row.auxiliary_trials,
        share=row.share,
        trials_waiting=row.trials_waiting,
        trials_leaving=row.trials_leaving,
        rule="",
        text=WAITS if row.rule else "",
        expected_us=None,
        numbers={},
    )


def experiments_on(agents: Sequence[AgentView | PastAgent]) -> list[int]:
    """Ids of the experiments that hold slots of the agents."""
    held = (slot.allocation_id for agent in agents for slot in agent.slots if slot.allocation_id is not None)
    auxiliary = (allocation for agent in agents for allocation in agent.auxiliary)
    return sorted({experiment_of(allocation) for allocation in (*held, *auxiliary)})


def agents_as_seen(agents: Sequence[AgentView], hidden: Collection[int] | None) -> list[AgentView]:
    """`hidden`: experiments whose allocations are not named. None: all."""
    return [_agent_as_seen(agent, hidden) for agent in agents]


def past_agents_as_seen(agents: Sequence[PastAgent], hidden: Collection[int] | None) -> tuple[PastAgent, ...]:
    """Same as `agents_as_seen`, but for an earlier moment: experiments that are hidden now are hidden there, too."""
    return tuple(_agent_as_seen(agent, hidden) for agent in agents)


A = TypeVar("A", AgentView, PastAgent)


def _agent_as_seen(agent: A, hidden: Collection[int] | None) -> A:
    def named(allocation: str) -> str:
        return HIDDEN if hidden is None or experiment_of(allocation) in hidden else allocation

    slots = tuple(
        slot if slot.allocation_id is None else slot.model_copy(update={"allocation_id": named(slot.allocation_id)})
        for slot in agent.slots
    )
    return agent.model_copy(update={"slots": slots, "auxiliary": tuple(map(named, agent.auxiliary))})
