"""Folds what becomes of provisioned pools and their nodes, and what agents and allocations say about these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from tenuto.kernel.folding import Envelope
from tenuto.schemas.events.agent import AgentJoined
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased, NodeRequested, NodeStarted
from tenuto.schemas.events.pool import AllocationGranted, CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import PoolMountsChanged, PoolProvisioned
from tenuto.schemas.events.run import GangPartReported, WorkersExited
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.evolve import allocations
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.nodes import (
    FORMER_MAX,
    Demand,
    Node,
    NodeTypeBackoff,
    Offered,
    ProvisionedPool,
    ProvisioningGeneration,
    image_of_key,
    pool_and_number,
)

SETTINGS = tuple(Provisioning.model_fields)


def put_pool(state: State, pool: ProvisionedPool) -> State:
    return replace(state, pools=state.pools.set(pool.pool, pool))


def put_node(state: State, node: Node) -> State:
    pool = state.pools[node.pool]
    return put_pool(state, replace(pool, nodes=pool.nodes.set(node.node_id, node)))


# People's and the scheduler's words.


def provisioned(state: State, data: PoolProvisioned) -> State:
    settings = Provisioning(**{name: getattr(data, name) for name in SETTINGS})
    pool = state.pools.get(data.pool)
    if pool is None:
        if not settings.starts_nodes:
            return state
        before = max([0, *(number for name, number in map(pool_and_number, _agents(state)) if name == data.pool)])
        return put_pool(state, ProvisionedPool(data.pool, 1, settings, numbers=before, numbers_before=before))
    old = pool.provisioning
    if (old.provisioner, old.settings) != (settings.provisioner, settings.settings):
        former = (ProvisioningGeneration(pool.generation, old), *pool.former) if old.starts_nodes else pool.former
        pool = replace(pool, generation=pool.generation + 1, former=_remembered(pool, former))
    return put_pool(state, replace(pool, provisioning=settings, backoffs=Map(), offered=Map()))


def mounts_changed(state: State, data: PoolMountsChanged) -> State:
    if data.mounts is not None:
        return replace(state, pool_mounts=state.pool_mounts.set(data.pool, data.mounts))
    return replace(state, pool_mounts=state.pool_mounts.delete(data.pool)) if data.pool in state.pool_mounts else state


def _agents(state: State) -> list[str]:
    return sorted({*state.agents, *state.members})


def _remembered(pool: ProvisionedPool, former: tuple[ProvisioningGeneration, ...]) -> tuple[ProvisioningGeneration, ...]:
    used = {node.generation for node in pool.nodes.values()}
    return tuple(place for at, place in enumerate(former) if at < FORMER_MAX or place.generation in used)


def wanted(state: State, data: CapacityWanted, envelope: Envelope) -> State:
    pool = state.pools.get(data.pool)
    if pool is None:
        return state
    since: dict[tuple[object, ...], int] = {}
    for demand in pool.demands:
        since.setdefault(_kind(demand.wanted), demand.since_us)
    demands = tuple(Demand(item, since.get(_kind(item), envelope.time_us)) for item in data.demands)
    images = {item.image for item in data.demands}
    backoffs = pool.backoffs
    for key in sorted(backoffs):
        if image_of_key(key) and image_of_key(key) not in images:
            backoffs = backoffs.delete(key)
    return put_pool(state, replace(pool, demands=demands, demands_at_us=envelope.time_us, backoffs=backoffs))


def _kind(wanted: CapacityDemand) -> tuple[object, ...]:
    return wanted.experiment_id, wanted.slots, wanted.locality, wanted.device, wanted.labels


# Nodes.


def requested(state: State, data: NodeRequested, envelope: Envelope) -> State:
    pool = state.pools.get(data.pool)
    if pool is None:
        return state
    number = pool_and_number(data.node_id)[1]
    known = next((item for item in pool.provisioning.node_types if item.name == data.node_type), None)
    node = Node(
        node_id=data.node_id,
        number=number,
        pool=data.pool,
        node_type=known or NodeType(name=data.node_type, slots=data.slots, cost_per_hour=data.cost_per_hour),
        generation=pool.generation,
        group=data.group,
        slots=data.slots,
        cost_per_hour=data.cost_per_hour,
        requested_at_us=envelope.time_us,
        workspace=data.workspace,
        image=data.image,
    )
    passed = (*pool.numbers_passed, *range(pool.numbers + 1, number))
    pool = replace(pool, numbers=max(pool.numbers, number), numbers_passed=passed)
    return put_node(put_pool(state, pool), node)


def started(state: State, data: NodeStarted, envelope: Envelope) -> State:
    node = node_of(state, data.node_id)
    if node is None:
        return state
    return put_node(state, replace(node, provider_id=data.provider_id, started_at_us=envelope.time_us))


def failed(state: State, data: NodeFailed, envelope: Envelope) -> State:
    node = node_of(state, data.node_id)
    if node is None:
        return state
    state = put_node(state, replace(node, ending="failed", ending_at_us=envelope.time_us))
    state = _backed_off(state, node, node.backoff_key(data.failure), data.retry_at_us)
    return state if node.joined_at_us is not None else _broken(state, node)


def _broken(state: State, node: Node) -> State:
    """Marks the other nodes of its group: they came, or are on their way, in vain."""
    pool = state.pools[node.pool]
    nodes = pool.nodes
    for other in pool.in_order():
        if other.group == node.group and other.joined_at_us is None and not other.ending:
            nodes = nodes.set(other.node_id, replace(other, broken=True))
    return put_pool(state, replace(pool, nodes=nodes))


def released(state: State, data: NodeReleased, envelope: Envelope) -> State:
    node = node_of(state, data.node_id)
    if node is None:
        return state
    state = put_node(state, replace(node, ending="released", ending_at_us=envelope.time_us, drain=data.drain))
    return _backed_off(state, node, node.backoff_key(), data.retry_at_us)


def _backed_off(state: State, node: Node, key: str, until_us: int | None) -> State:
    """State with nodes of that key backed off until `until_us`. Unchanged if it is None or they are backed off as long already:
    nodes that fail together were one attempt, and the first one counts."""
    pool = state.pools[node.pool]
    before = pool.backoffs.get(key)
    if until_us is None or (before is not None and before.until_us >= until_us):
        return state
    backoff = NodeTypeBackoff((before.failures if before else 0) + 1, until_us)
    return put_pool(state, replace(pool, backoffs=pool.backoffs.set(key, backoff)))


def ended(state: State, data: NodeEnded) -> State:
    node = node_of(state, data.node_id)
    if node is None:
        return state
    pool = state.pools[node.pool]
    pool = replace(pool, nodes=pool.nodes.delete(node.node_id))
    state = put_pool(state, replace(pool, former=_remembered(pool, pool.former)))
    # Its name is never used again, so nothing needs to be known of it: the state grows with nodes that exist.
    return replace(state, members=state.members.delete(node.node_id)) if node.node_id in state.members else state


# Agents and what runs on them.


def joined(state: State, data: AgentJoined, envelope: Envelope) -> State:
    state = allocations.joined(state, data)
    node = node_of(state, data.agent_id)
    if node is None or node.ending:
        return state
    # What is found in one image says nothing of the others, or of the type.
    if data.slots and not node.own_image:
        devices = tuple(sorted({slot.device.lower() for slot in data.slots}))
        offered = Offered(len(data.slots), devices, envelope.time_us)
        pool = state.pools[node.pool]
        state = put_pool(state, replace(pool, offered=pool.offered.set(node.node_type.name, offered)))
    if node.joined_at_us is not None:
        return state
    idle_since_us = None if data.agent_id in state.on_agent else envelope.time_us
    return put_node(state, replace(node, joined_at_us=envelope.time_us, idle_since_us=idle_since_us))


def granted(state: State, data: AllocationGranted, envelope: Envelope) -> State:
    state = allocations.granted(state, data, envelope)
    for part in data.slots if state.pools else ():
        node = node_of(state, part.agent_id)
        if node is not None and (not node.used or node.idle_since_us is not None):
            state = put_node(state, replace(node, used=True, idle_since_us=None))
            pool = state.pools[node.pool]
            for key in sorted({node.node_type.name, node.backoff_key()}):
                if key in pool.backoffs:  # Nodes of this kind can be had, and are of use.
                    pool = replace(pool, backoffs=pool.backoffs.delete(key))
                    state = put_pool(state, pool)
    return state


def exited(state: State, data: WorkersExited, envelope: Envelope) -> State:
    allocation = state.allocations.get(data.allocation_id)
    agents = [part.agent_id for part in allocation.parts] if allocation is not None and state.pools else []
    return _idle(allocations.exited(state, data), agents, envelope.time_us)


def part_reported(state: State, data: GangPartReported, envelope: Envelope) -> State:
    return _idle(allocations.part_reported(state, data), [data.agent_id] if state.pools else [], envelope.time_us)


def _idle(state: State, agents: Iterable[str], time_us: int) -> State:
    for agent_id in agents:
        node = node_of(state, agent_id)
        if node is not None and node.idle_since_us is None and node.joined_at_us is not None and agent_id not in state.on_agent:
            state = put_node(state, replace(node, idle_since_us=time_us))
    return state
