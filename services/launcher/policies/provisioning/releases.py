"""Nodes that are given back: idle ones, those no longer needed, those beyond the limits, and those that users name. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.schemas.events.node import NodeReleased
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.sentences.nodes import (
    NodeGivenBack,
    NodeGroupFailed,
    NodeIdle,
    NodeMakesRoom,
    NodeNotNeeded,
    NodeOverLimit,
    NodeProvisionerChanged,
)
from tenuto.services.launcher.policies.provisioning.backoff import next_try
from tenuto.services.launcher.policies.provisioning.costs import within
from tenuto.services.launcher.policies.provisioning.decision_steps import Course
from tenuto.services.launcher.policies.provisioning.requests import Limits, Packing, fits
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool


def release(course: Course, node: Node, reason: Reason, *, drain: bool = True, retry_at_us: int | None = None) -> None:
    course.add(NodeReleased(node_id=node.node_id, pool=node.pool, drain=drain, retry_at_us=retry_at_us, reason=reason))


def given_back(course: Course, node_id: str, *, drain: bool) -> None:
    """Gives back a node that a user named. One that is given back already may still be given back at once."""
    node = node_of(course.state, node_id)
    if node is None or node.ending == "failed" or (node.ending == "released" and (drain or not node.drain)):
        return
    allocations = len(course.state.on_agent.get(node_id, ()))
    release(course, node, NodeGivenBack(allocations=allocations).reason(), drain=drain)


def of_other_provisioners(course: Course, name: str) -> None:
    """Gives back nodes of an earlier provisioner after a change; work there ends first. Nodes stay if only other settings
    changed."""
    pool = course.pool(name)
    present = pool.provisioning.provisioner
    for node in kept(pool):
        place = pool.place(node.generation)
        if place is None or place.provisioning.provisioner != present:
            release(course, node, NodeProvisionerChanged(provisioner=present).reason())


def beyond_limits(course: Course, name: str) -> None:
    """Gives back nodes beyond limits that were lowered, those first on which least is lost."""
    pool = course.pool(name)
    settings, nodes = pool.provisioning, kept(pool)
    count, cost = len(nodes), _cost(nodes)
    for node in _least_lost_first(course.state, nodes):
        dear = not within(cost, settings.cost_per_hour_max)
        if count <= settings.nodes_max and not (dear and node.cost_per_hour):
            continue
        reason = NodeOverLimit(
            nodes_kept=count, nodes_max=settings.nodes_max, cost_per_hour=cost, cost_per_hour_max=settings.cost_per_hour_max
        ).reason()
        release(course, node, reason)
        count, cost = count - 1, cost - node.cost_per_hour


def not_needed(course: Course, name: str, packing: Packing) -> None:
    """Gives back nodes that are still coming and that no gang waits for: at once if another of the group has failed, else after
    the time for which an idle one is kept, because a queue that has just changed may change again."""
    pool, wanted = course.pool(name), packing.wanted()
    count = len(kept(pool))
    for node in reversed(pool.in_order()):
        if node.ending or node.joined_at_us is not None or node.node_id in wanted or count <= pool.provisioning.nodes_min:
            continue
        waited = course.seconds_since(max(node.requested_at_us, pool.demands_at_us))
        if node.broken:
            release(course, node, NodeGroupFailed(group=node.group).reason())
        elif waited >= pool.provisioning.idle_seconds:
            reason = NodeNotNeeded(waited_seconds=waited, idle_seconds_max=pool.provisioning.idle_seconds).reason()
            release(course, node, reason)
        else:
            continue
        count -= 1


def idle(course: Course, name: str, packing: Packing) -> None:
    """Nodes without work for idle_seconds, the longest idle first, down to nodes_min."""
    pool, wanted = course.pool(name), packing.wanted()
    settings, count = pool.provisioning, len(kept(pool))
    found = [(node.idle_since_us, node.number, node) for node in kept(pool) if node.idle_since_us is not None]
    for since_us, _, node in sorted(found, key=lambda entry: entry[:2]):
        idle_seconds = course.seconds_since(since_us)
        if idle_seconds < settings.idle_seconds or count <= settings.nodes_min:
            break
        if node.node_id in wanted or _may_serve(course, pool, node, packing):
            continue
        retry_at_us = None if node.used else next_try(pool, node.node_type.name, course.now_us)[1]
        reason = NodeIdle(
            idle_seconds=idle_seconds,
            idle_seconds_max=settings.idle_seconds,
            nodes_kept=count,
            nodes_min=settings.nodes_min,
            used=node.used,
            retry_seconds=0.0 if retry_at_us is None else -course.seconds_since(retry_at_us),
        ).reason()
        release(course, node, reason, retry_at_us=retry_at_us)
        count -= 1


def _may_serve(course: Course, pool: ProvisionedPool, node: Node, packing: Packing) -> bool:
    """True if something that fits it waits: a gang for whose other slots nodes come, or one that has not waited for as long as
    the node was idle, so that the scheduler had no chance to bring the two together yet. Where it had, there is a reason that
    is not known here, and the node stands in the way."""
    for place, demand in enumerate(pool.demands):
        young = course.seconds_since(demand.since_us) < pool.provisioning.idle_seconds
        gathers = demand.wanted.locality == "any" and packing.comes(place, demand)
        if (young or gathers) and fits(course.state, pool, node, demand.wanted, course.now_us):
            return True
    return False


def makes_room(course: Course, name: str, packing: Packing) -> bool:
    """True if room is made for a gang that the limits leave none for."""
    blocked = packing.blocked
    return blocked is not None and course.seconds_since(blocked.demand.since_us) >= course.pool(name).provisioning.idle_seconds


def make_room(course: Course, name: str, packing: Packing) -> None:
    """Gives back nodes for the first gang that the limits leave no room for, after it has waited for as long as they may be idle:
    nodes that cannot serve it, once their work ends. Nodes that could serve it are the scheduler's matter, which keeps slots for
    it; those that come for gangs ahead of it stay, or they would be requested again."""
    pool, blocked = course.pool(name), packing.blocked
    if blocked is None or not makes_room(course, name, packing):
        return
    waited = course.seconds_since(blocked.demand.since_us)
    wanted, node_type = blocked.demand.wanted, blocked.node_type
    limits = Limits(pool)
    for node in pool.in_order():
        if node.ending:  # It leaves room soon.
            limits.take(-1, node.cost_per_hour)
    ahead = [node.node_id for node in kept(pool) if node.number > packing.numbers or node.node_id in blocked.ahead]
    others = [
        node for node in kept(pool) if node.node_id not in ahead and not fits(course.state, pool, node, wanted, course.now_us)
    ]
    for node in _least_lost_first(course.state, others):
        if limits.allow(blocked.nodes, node_type.cost_per_hour):
            return
        reason = NodeMakesRoom(
            experiment=wanted.experiment_id,
            slots_wanted=wanted.slots,
            waited_seconds=waited,
            nodes_wanted=blocked.nodes,
            nodes_now=len(pool.nodes),
            nodes_max=pool.provisioning.nodes_max,
        ).reason()
        release(course, node, reason)
        limits.take(-1, node.cost_per_hour)


def kept(pool: ProvisionedPool) -> list[Node]:
    """Nodes that are not ending, by number."""
    return [node for node in pool.in_order() if not node.ending]


def _cost(nodes: Sequence[Node]) -> float:
    return sum([node.cost_per_hour for node in nodes])


def _least_lost_first(state: State, nodes: Sequence[Node]) -> list[Node]:
    """Nodes that are still coming, then nodes with least running on them; of equal ones the last requested first."""
    return sorted(
        nodes, key=lambda node: (node.joined_at_us is not None, len(state.on_agent.get(node.node_id, ())), -node.number)
    )
