"""Folds changes of pools whose nodes a provisioner starts, and of these nodes."""

from __future__ import annotations

from dataclasses import replace

from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeReleased
from tenuto.schemas.events.pool import CapacityWanted
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.services.scheduler.state import State, indexes
from tenuto.services.scheduler.state.settings import ProvisionedSlots
from tenuto.services.scheduler.state.usable import closed_slots


def pool_provisioned(state: State, data: PoolProvisioned) -> State:
    if not data.starts_nodes:
        return replace(state, provisioned=state.provisioned.delete(data.pool)) if data.pool in state.provisioned else state
    before = state.provisioned.get(data.pool)
    slots_most = data.nodes_max * max(node_type.slots for node_type in data.node_types)
    wanted = before.wanted if before is not None else ()
    pool = ProvisionedSlots(
        slots_most, wanted, by_workspace=bool(data.workspace_cost_per_hour_max), by_image=bool(data.node_images)
    )
    return replace(state, provisioned=state.provisioned.set(data.pool, pool))


def capacity_wanted(state: State, data: CapacityWanted) -> State:
    pool = state.provisioned.get(data.pool)
    if pool is None:
        return state
    return replace(state, provisioned=state.provisioned.set(data.pool, replace(pool, wanted=data.demands)))


def ends(state: State, data: NodeReleased | NodeFailed) -> State:
    state = replace(state, nodes_ending=state.nodes_ending.set(data.node_id, data.pool))
    agent = state.agents.get(data.node_id)
    if agent is None or agent.lost or agent.ending:
        return state
    return indexes.put_agent(state, replace(agent, ending=True, closed=closed_slots(state, data.node_id, ending=True)))


def ended(state: State, data: NodeEnded) -> State:
    if data.node_id not in state.nodes_ending:
        return state
    return replace(state, nodes_ending=state.nodes_ending.delete(data.node_id))
