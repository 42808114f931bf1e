"""Gauges of agents, nodes and reports that wait, and counts of what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.instruments import AGENTS_LOST, NODE_FAILURES
from tenuto.kernel.monitoring.sampling import OTHERS, POOLS_SHOWN_MAX, Sample, by_pool, shown_pools
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.node import NodeFailed
from tenuto.schemas.subjects import LANES
from tenuto.services.launcher.adapters.backlog import Backlogs
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Phase


async def nodes_of(loop: ServiceLoop[State]) -> Sequence[Sample]:
    await loop.wait_ready()
    return samples(loop.state)


def samples(state: State) -> Sequence[Sample]:
    agents, nodes, costs = Counter[tuple[str, ...]](), Counter[tuple[str, ...]](), dict[tuple[str, ...], float]()
    wanted = Counter[tuple[str, ...]]()
    for agent in state.agents.values():
        agents[agent.pool,] += 1
    for name, pool in state.pools.items():
        for phase in get_args(Phase):
            nodes[name, phase] = 0
        for node in pool.nodes.values():
            nodes[name, node.phase] += 1
        costs[name,] = sum(node.cost_per_hour for node in pool.nodes.values())
        wanted[name,] = sum(demand.wanted.count for demand in pool.demands)
        agents[name,] += 0
    shown = shown_pools({name: count for (name,), count in agents.items()})
    return [
        *by_pool(catalogue.AGENTS, agents, shown),
        *by_pool(catalogue.NODES, nodes, shown),
        *by_pool(catalogue.NODES_COST, costs, shown),
        *by_pool(catalogue.POOL_GANGS_WANTED, wanted, shown),
    ]


class Losses:
    """Counts what was lost since the process began, not what it reads of the time before."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._pools: dict[str, str] = {}
        """Pool of each agent, by agent."""

    def note(self, state: State, events: Sequence[Event]) -> None:
        if not events:  # the state was recovered
            self._pools = {name: agent.pool for name, agent in state.agents.items()}
        for event in events:
            match event.data:
                case AgentJoined() as joined:
                    self._pools[joined.agent_id] = joined.pool
                case AgentLost() as lost:
                    pool = self._pools.pop(lost.agent_id, "")
                    if not lost.announced:
                        AGENTS_LOST.labels(self._label(pool)).inc()
                case NodeFailed() as failed:
                    NODE_FAILURES.labels(self._label(failed.pool), failed.failure).inc()

    def _label(self, pool: str) -> str:
        if pool not in self._shown and len(self._shown) >= POOLS_SHOWN_MAX:
            return OTHERS
        self._shown.add(pool)
        return pool


async def backlog_of(backlogs: Backlogs) -> Sequence[Sample]:
    waiting, on_bus = dict.fromkeys(LANES, 0), dict.fromkeys(LANES, 0)
    for item in (await backlogs.look()).lanes:
        waiting[item.lane] += max(item.waiting, item.on_bus)
        on_bus[item.lane] += item.on_bus
    found = [Sample(catalogue.REPORTS_WAITING, waiting[lane], (lane,)) for lane in LANES]
    found += [Sample(catalogue.REPORTS_ON_BUS, on_bus[lane], (lane,)) for lane in LANES]
    if (size := backlogs.stream_bytes) is not None:
        found += [Sample(catalogue.INGRESS_BYTES, size[0]), Sample(catalogue.INGRESS_BYTES_MAX, size[1])]
    return found
