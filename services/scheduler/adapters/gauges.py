"""Gauges of pools: slots and trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.sampling import Sample, by_pool, shown_pools
from tenuto.services.scheduler.state import State


async def pools_of(loop: ServiceLoop[State]) -> Sequence[Sample]:
    await loop.wait_ready()
    return samples(loop.state)


def samples(state: State) -> Sequence[Sample]:
    """Takes a millisecond for thousands of live allocations and waiting experiments."""
    slots, trials = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    offered = Counter[str]()
    for agent in state.agents.values():
        if not agent.lost:
            offered[agent.pool] += len(agent.slots)
    for name, pool in state.pools.items():
        slots[name, "free"] = pool.free
        slots[name, "used"] = pool.capacity - pool.free
        slots[name, "closed"] = max(0, offered[name] - pool.capacity)
        queued = (state.experiments[experiment] for _, _, experiment in (*pool.queue, *pool.auxiliary_queue))
        trials[name, "waiting"] = sum(len(experiment.waiting) for experiment in queued)
        trials[name, "running"] = trials[name, "leaving"] = 0
    for allocation in state.allocations.values():
        trials[allocation.pool, "leaving" if allocation.leaving else "running"] += 1
    sizes = {name: pool.capacity + trials[name, "waiting"] for name, pool in state.pools.items()}
    shown = shown_pools(sizes)
    return [*by_pool(catalogue.POOL_SLOTS, slots, shown), *by_pool(catalogue.POOL_TRIALS, trials, shown)]
