"""Decisions about nodes: on the queue, on people's words, on what providers have, and on time that passes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeRequested
from tenuto.schemas.events.pool import CapacityWanted
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolProvisioned
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.provisioning import NodeType
from tenuto.schemas.sentences.nodes import (
    NodeForDemand,
    NodeForMinimum,
    NodeGivenBack,
    NodeGroupFailed,
    NodeIdle,
    NodeImageNotAllowed,
    NodeMakesRoom,
    NodeNotNeeded,
    NodeOverLimit,
    NodeProvisionerChanged,
)
from tenuto.services.launcher.commands import LookAtNodes, TickNodes
from tenuto.services.launcher.policies.provisioning.coming_slots import fits, of_type
from tenuto.services.launcher.policies.provisioning.limits import (
    RemainingLimits,
    WorkspaceCosts,
    next_try,
    payer_of,
    retry_of,
    within,
)
from tenuto.services.launcher.policies.provisioning.nodes import DecisionSteps, late_joins, look
from tenuto.services.launcher.policies.provisioning.requests import Packing, pack
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool


def on_look(state: State, command: LookAtNodes) -> list[EventData]:
    course = DecisionSteps(state, command.time_us)
    if command.pool in state.pools:
        look(course, command)
        _plan(course, command.pool)
    return course.decided


def on_tick(state: State, command: TickNodes) -> list[EventData]:
    course = DecisionSteps(state, command.time_us)
    for name in sorted(state.pools):
        _plan(course, name)
    return course.decided


def on_event(state: State, data: CapacityWanted | PoolProvisioned | NodeReleaseRequested, time_us: int) -> list[EventData]:
    course = DecisionSteps(state, time_us)
    if isinstance(data, NodeReleaseRequested):
        _give_back(course, data.node_id, drain=data.drain)
    elif data.pool in state.pools:
        _plan(course, data.pool)
    return course.decided


def _plan(course: DecisionSteps, name: str) -> None:
    """All that follows for one pool from what is known now. A second time it decides nothing."""
    late_joins(course, name)
    _release_of_other_provisioners(course, name)
    _release_of_other_images(course, name)
    _release_beyond_limits(course, name)
    packing = pack(course.state, course.pool(name), course.now_us)
    _request(course, name, packing)
    _release_not_needed(course, name, packing)
    _release_idle(course, name, packing)
    if not _make_room(course, name, packing):  # what takes the room counts for the minimum, too
        _keep_minimum(course, name)


def _request(course: DecisionSteps, name: str, packing: Packing) -> None:
    for request in packing.requests:
        pool, limits = course.pool(name), RemainingLimits(course.pool(name))
        costs, workspace = WorkspaceCosts(course.state, pool), request.demand.workspace
        limit = costs.limit(workspace)
        reason = NodeForDemand(
            experiment=request.demand.experiment_id,
            slots_wanted=request.demand.slots,
            slots_coming=request.slots_coming,
            nodes=request.nodes,
            nodes_now=limits.nodes,
            nodes_max=limits.nodes_max,
            types_passed=request.types_passed,
            cost_per_hour=limits.cost,
            cost_per_hour_max=limits.cost_max,
            workspace_cost_per_hour=0.0 if limit is None else costs.cost(workspace),
            workspace_cost_per_hour_max=limit,
        ).reason()
        group = _next_node_id(course.state, pool)
        for _ in range(request.nodes):
            payer = payer_of(pool.provisioning, workspace)
            _order(course, name, request.node_type, reason, group, payer, request.demand.image)


def _keep_minimum(course: DecisionSteps, name: str) -> None:
    settings = course.pool(name).provisioning
    if not settings.starts_nodes:
        return
    while (count := _general(course.pool(name))) < settings.nodes_min:
        pool = course.pool(name)
        limits = RemainingLimits(pool)
        for node_type in settings.node_types:
            if retry_of(pool, node_type, "", course.now_us) is None and limits.allow(1, node_type.cost_per_hour):
                break
        else:
            return
        _order(course, name, node_type, NodeForMinimum(nodes_kept=count, nodes_min=settings.nodes_min).reason(), "")


def _order(
    course: DecisionSteps, name: str, node_type: NodeType, reason: Reason, group: str, workspace: str = "", image: str = ""
) -> None:
    pool = course.pool(name)
    node_id = _next_node_id(course.state, pool)
    course.add(
        NodeRequested(
            node_id=node_id,
            pool=name,
            node_type=node_type.name,
            group=group or node_id,
            slots=of_type(pool, node_type, course.now_us).slots,
            cost_per_hour=node_type.cost_per_hour,
            workspace=workspace,
            image=image,
            reason=reason,
        )
    )


def _next_node_id(state: State, pool: ProvisionedPool) -> str:
    """Id of the pool's next node; a name that an agent has is passed over."""
    number = pool.numbers + 1
    while f"{pool.pool}-{number}" in state.agents or f"{pool.pool}-{number}" in state.members:
        number += 1
    return f"{pool.pool}-{number}"


def _give_back(course: DecisionSteps, node_id: str, *, drain: bool) -> None:
    """Gives back a node that a user named. One that is given back already may still be given back at once."""
    node = node_of(course.state, node_id)
    if node is None or node.ending == "failed" or (node.ending == "released" and (drain or not node.drain)):
        return
    allocations = len(course.state.on_agent.get(node_id, ()))
    course.release(node, NodeGivenBack(allocations=allocations).reason(), drain=drain)


def _release_of_other_provisioners(course: DecisionSteps, name: str) -> None:
    """Gives back nodes of an earlier provisioner after a change; work there ends first. Nodes stay if only other settings
    changed."""
    pool = course.pool(name)
    present = pool.provisioning.provisioner
    for node in _kept(pool):
        place = pool.place(node.generation)
        if place is None or place.provisioning.provisioner != present:
            course.release(node, NodeProvisionerChanged(provisioner=present).reason())


def _release_of_other_images(course: DecisionSteps, name: str) -> None:
    """Gives back nodes in images that the pool does not allow any more; work there ends first. A type that was renamed or is gone
    leaves it to the others which images are allowed."""
    pool = course.pool(name)
    present = {node_type.name: node_type for node_type in pool.provisioning.node_types}
    for node in _kept(pool):
        node_type = present.get(node.node_type.name)
        types = present.values() if node_type is None else [node_type]
        if node.own_image and not any(item.runs_in(node.own_image) for item in types):
            course.release(node, NodeImageNotAllowed(image=node.own_image).reason())


def _release_beyond_limits(course: DecisionSteps, name: str) -> None:
    """Gives back nodes beyond limits that were lowered, those first on which least is lost."""
    pool = course.pool(name)
    settings, nodes = pool.provisioning, _kept(pool)
    count, cost = len(nodes), _cost(nodes)
    for node in _least_lost_first(course.state, nodes):
        dear = not within(cost, settings.cost_per_hour_max)
        if count <= settings.nodes_max and not (dear and node.cost_per_hour):
            continue
        reason = NodeOverLimit(
            nodes_kept=count, nodes_max=settings.nodes_max, cost_per_hour=cost, cost_per_hour_max=settings.cost_per_hour_max
        ).reason()
        course.release(node, reason)
        count, cost = count - 1, cost - node.cost_per_hour


def _release_not_needed(course: DecisionSteps, name: str, packing: Packing) -> None:
    """Gives back nodes that are still coming and that no gang waits for: at once if another of the group has failed, else after
    the time for which an idle one is kept, because a queue that has just changed may change again."""
    pool, wanted = course.pool(name), packing.wanted()
    count = _general(pool)
    for node in reversed(_kept(pool)):
        if node.joined_at_us is not None or node.node_id in wanted:
            continue
        if not node.own_image and count <= pool.provisioning.nodes_min:
            continue
        waited = course.seconds_since(max(node.requested_at_us, pool.demands_at_us))
        if node.broken:
            course.release(node, NodeGroupFailed(group=node.group).reason())
        elif waited >= pool.provisioning.idle_seconds:
            reason = NodeNotNeeded(waited_seconds=waited, idle_seconds_max=pool.provisioning.idle_seconds).reason()
            course.release(node, reason)
        else:
            continue
        count -= not node.own_image


def _release_idle(course: DecisionSteps, name: str, packing: Packing) -> None:
    """Gives back nodes without work for idle_seconds, the longest idle first: all in images, and the others down to nodes_min."""
    pool, wanted = course.pool(name), packing.wanted()
    settings, count = pool.provisioning, _general(pool)
    found = [(node.idle_since_us, node.number, node) for node in _kept(pool) if node.idle_since_us is not None]
    for since_us, _, node in sorted(found, key=lambda entry: entry[:2]):
        idle_seconds = course.seconds_since(since_us)
        if idle_seconds < settings.idle_seconds:
            break
        if not node.own_image and count <= settings.nodes_min:
            continue
        if node.node_id in wanted or _may_serve(course, pool, node, packing):
            continue
        retry_at_us = None if node.used else next_try(pool, node.backoff_key(), course.now_us)[1]
        reason = NodeIdle(
            idle_seconds=idle_seconds,
            idle_seconds_max=settings.idle_seconds,
            nodes_kept=count,
            nodes_min=settings.nodes_min,
            used=node.used,
            retry_seconds=0.0 if retry_at_us is None else -course.seconds_since(retry_at_us),
            image=node.own_image,
        ).reason()
        course.release(node, reason, retry_at_us=retry_at_us)
        count -= not node.own_image


def _may_serve(course: DecisionSteps, pool: ProvisionedPool, node: Node, packing: Packing) -> bool:
    """True if something that fits it waits: a gang for whose other slots nodes come, or one that has not waited for as long as
    the node was idle, so that the scheduler had no chance to bring the two together yet. Where it had, there is a reason that
    is not known here, and the node stands in the way."""
    for place, demand in enumerate(pool.demands):
        young = course.seconds_since(demand.since_us) < pool.provisioning.idle_seconds
        gathers = demand.wanted.locality == "any" and packing.comes(place, demand)
        if (young or gathers) and fits(course.state, pool, node, demand.wanted, course.now_us):
            return True
    return False


def _make_room(course: DecisionSteps, name: str, packing: Packing) -> bool:
    """Gives back nodes for the first gang that the limits leave no room for, after it has waited for as long as they may be idle:
    nodes that cannot serve it, once their work ends. Nodes that could serve it are the scheduler's matter, which keeps slots for
    it; those that come for gangs ahead of it stay, or they would be requested again. True if there is such a gang."""
    pool, blocked = course.pool(name), packing.blocked
    if blocked is None:
        return False
    waited = course.seconds_since(blocked.demand.since_us)
    if waited < pool.provisioning.idle_seconds:
        return False
    wanted, node_type = blocked.demand.wanted, blocked.node_type
    limits = RemainingLimits(pool)
    for node in pool.in_order():
        if node.ending:  # It leaves room soon.
            limits.take(-1, node.cost_per_hour)
    ahead = [node.node_id for node in _kept(pool) if node.number > packing.numbers or node.node_id in blocked.ahead]
    others = [
        node for node in _kept(pool) if node.node_id not in ahead and not fits(course.state, pool, node, wanted, course.now_us)
    ]
    for node in _least_lost_first(course.state, others):
        if limits.allow(blocked.nodes, node_type.cost_per_hour):
            break
        reason = NodeMakesRoom(
            experiment=wanted.experiment_id,
            slots_wanted=wanted.slots,
            waited_seconds=waited,
            nodes_wanted=blocked.nodes,
            nodes_now=len(pool.nodes),
            nodes_max=pool.provisioning.nodes_max,
        ).reason()
        course.release(node, reason)
        limits.take(-1, node.cost_per_hour)
    return True


def _kept(pool: ProvisionedPool) -> list[Node]:
    """Nodes that are not ending, by number."""
    return [node for node in pool.in_order() if not node.ending]


def _general(pool: ProvisionedPool) -> int:
    """Number of the nodes that count for nodes_min: one in an image is of no use for what may come."""
    return sum([not node.own_image for node in _kept(pool)])


def _cost(nodes: Sequence[Node]) -> float:
    return sum([node.cost_per_hour for node in nodes])


def _least_lost_first(state: State, nodes: Sequence[Node]) -> list[Node]:
    """Nodes that are still coming, then nodes with least running on them; of equal ones the last requested first."""
    return sorted(
        nodes, key=lambda node: (node.joined_at_us is not None, len(state.on_agent.get(node.node_id, ())), -node.number)
    )
