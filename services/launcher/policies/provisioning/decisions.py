"""Decisions about nodes: on the queue, on people's words, on what providers have, and on time that passes. Pure."""

from __future__ import annotations

from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeRequested
from tenuto.schemas.events.pool import CapacityWanted
from tenuto.schemas.events.provisioning import NodeReleaseRequested, PoolProvisioned
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.provisioning import NodeType
from tenuto.schemas.sentences.nodes import NodeForDemand, NodeForMinimum
from tenuto.services.launcher.commands import LookAtNodes, TickNodes
from tenuto.services.launcher.policies.provisioning import provider_reports, releases
from tenuto.services.launcher.policies.provisioning.backoff import waits
from tenuto.services.launcher.policies.provisioning.decision_steps import Course
from tenuto.services.launcher.policies.provisioning.offers import of_type
from tenuto.services.launcher.policies.provisioning.requests import Limits, Packing, next_node_id, pack
from tenuto.services.launcher.policies.provisioning.workspaces import WorkspaceCosts, payer_of
from tenuto.services.launcher.state import State


def on_look(state: State, command: LookAtNodes) -> list[EventData]:
    course = Course(state, command.time_us)
    provider_reports.look(course, command)
    if command.pool in course.state.pools:
        _plan(course, command.pool)
    return course.decided


def on_tick(state: State, command: TickNodes) -> list[EventData]:
    course = Course(state, command.time_us)
    for name in sorted(state.pools):
        _plan(course, name)
    return course.decided


def on_event(state: State, data: CapacityWanted | PoolProvisioned | NodeReleaseRequested, time_us: int) -> list[EventData]:
    course = Course(state, time_us)
    if isinstance(data, NodeReleaseRequested):
        releases.given_back(course, data.node_id, drain=data.drain)
    elif data.pool in state.pools:
        _plan(course, data.pool)
    return course.decided


def _plan(course: Course, name: str) -> None:
    """All that follows for one pool from what is known now. A second time it decides nothing."""
    provider_reports.late_joins(course, name)
    releases.of_other_provisioners(course, name)
    releases.beyond_limits(course, name)
    pool = course.pool(name)
    packing = pack(course.state, pool, course.now_us)
    _request(course, name, packing)
    releases.not_needed(course, name, packing)
    releases.idle(course, name, packing)
    releases.make_room(course, name, packing)
    if not releases.makes_room(course, name, packing):  # what takes the room counts for the minimum, too
        _keep_minimum(course, name)


def _request(course: Course, name: str, packing: Packing) -> None:
    for request in packing.requests:
        pool, limits = course.pool(name), Limits(course.pool(name))
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
        group = next_node_id(course.state, pool, pool.numbers)
        for _ in range(request.nodes):
            _order(course, name, request.node_type, reason, group, payer_of(pool.provisioning, workspace))


def _keep_minimum(course: Course, name: str) -> None:
    settings = course.pool(name).provisioning
    if not settings.starts_nodes:
        return
    while (count := len(releases.kept(course.pool(name)))) < settings.nodes_min:
        pool = course.pool(name)
        limits = Limits(pool)
        for node_type in settings.node_types:
            if not waits(pool, node_type.name, course.now_us) and limits.allow(1, node_type.cost_per_hour):
                break
        else:
            return
        _order(course, name, node_type, NodeForMinimum(nodes_kept=count, nodes_min=settings.nodes_min).reason(), "")


def _order(course: Course, name: str, node_type: NodeType, reason: Reason, group: str, workspace: str = "") -> None:
    pool = course.pool(name)
    node_id = next_node_id(course.state, pool, pool.numbers)
    course.add(
        NodeRequested(
            node_id=node_id,
            pool=name,
            node_type=node_type.name,
            group=group or node_id,
            slots=of_type(pool, node_type, course.now_us).slots,
            cost_per_hour=node_type.cost_per_hour,
            workspace=workspace,
            reason=reason,
        )
    )
