"""Decisions on what the provider has, and on agents of nodes that are lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeFailure, NodeReleased, NodeStarted
from tenuto.schemas.sentences.nodes import EndedEarly, NodeAgentLeft, NodeLost, NodeOutdated, NotJoined, StartFailed
from tenuto.services.launcher.commands import LookAtNodes, SeenNode
from tenuto.services.launcher.policies.provisioning.backoff import next_try
from tenuto.services.launcher.policies.provisioning.decision_steps import Course
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.leaving import says_it_ends
from tenuto.services.launcher.state.nodes import Node

MESSAGE_MAX, PROVIDER_ID_MAX = 500, 300
"""Bounds of NodeFailed and NodeStarted."""


def look(course: Course, seen: LookAtNodes) -> None:
    if seen.pool not in course.state.pools:
        return
    _start_failures(course, seen)
    if seen.nodes is None:
        return
    real: dict[str, list[SeenNode]] = {}
    for item in seen.nodes:
        real.setdefault(item.node_id, []).append(item)
    for node in course.pool(seen.pool).in_order():
        if node.generation == seen.generation:
            _look_at(course, node, real.get(node.node_id, []))


def _start_failures(course: Course, seen: LookAtNodes) -> None:
    for failure in seen.failures:
        node = course.pool(seen.pool).nodes.get(failure.node_id)
        if node is None or node.phase != "requested" or failure.kind == "unreachable":
            continue
        refused = failure.kind == "refused"
        failures, retry_at_us = next_try(course.pool(seen.pool), node.node_type.name, course.now_us, refused=refused)
        reason = StartFailed(failures=failures, retry_seconds=-course.seconds_since(retry_at_us)).reason()
        kind: NodeFailure = failure.kind
        course.add(
            NodeFailed(
                node_id=node.node_id, pool=node.pool, failure=kind, message=failure.message[:MESSAGE_MAX],
                retry_at_us=retry_at_us, reason=reason,
            )
        )  # fmt: skip


def _look_at(course: Course, node: Node, real: Sequence[SeenNode]) -> None:
    live = [item for item in real if item.phase != "ended"]
    if node.ending:
        # An agent that is in service may still be reported on: the scheduler must first hear that it is gone.
        if not live and node.node_id not in course.state.agents:
            course.add(NodeEnded(node_id=node.node_id, pool=node.pool))
        return
    running = sorted([item.provider_id for item in live if item.phase == "running"])
    if running and not node.provider_id:
        course.add(NodeStarted(node_id=node.node_id, pool=node.pool, provider_id=running[0][:PROVIDER_ID_MAX]))
    elif not live and real:
        _ended_by_itself(course, node, real[0].detail)
    elif not live and node.phase == "started":
        _ended_by_itself(course, node, "")
    elif any(item.outdated for item in live) and node.idle_since_us is not None:
        # Nothing runs on it. One that has work goes on with it, and is looked at again when that has ended.
        reason = NodeOutdated(idle_seconds=course.seconds_since(node.idle_since_us)).reason()
        course.add(NodeReleased(node_id=node.node_id, pool=node.pool, reason=reason))


def _ended_by_itself(course: Course, node: Node, detail: str) -> None:
    if node.joined_at_us is not None:
        served_seconds, notice = course.seconds_since(node.joined_at_us), _notice(course.state, node.node_id)
        if says_it_ends(course.state, node.node_id) and node.node_id not in course.state.on_agent:
            reason = NodeAgentLeft(served_seconds=served_seconds, notice=notice).reason()
            course.add(NodeReleased(node_id=node.node_id, pool=node.pool, reason=reason))
            return
        reason = NodeLost(served_seconds=served_seconds, by_agent=False, notice=notice).reason()
        course.add(NodeFailed(node_id=node.node_id, pool=node.pool, failure="lost", message=detail[:MESSAGE_MAX], reason=reason))
        return
    failures, retry_at_us = next_try(course.pool(node.pool), node.node_type.name, course.now_us)
    early = EndedEarly(failures=failures, retry_seconds=-course.seconds_since(retry_at_us)).reason()
    failure: NodeFailure = "refused" if node.started_at_us is None else "lost"
    course.add(
        NodeFailed(
            node_id=node.node_id, pool=node.pool, failure=failure, message=detail[:MESSAGE_MAX], retry_at_us=retry_at_us,
            reason=early,
        )
    )  # fmt: skip


def late_joins(course: Course, pool_name: str) -> None:
    """Gives up nodes whose agent has not come in time. Time in the provider's own queue does not count."""
    join_seconds = course.pool(pool_name).provisioning.join_seconds
    for node in course.pool(pool_name).in_order():
        if node.phase != "started" or node.started_at_us is None or course.seconds_since(node.started_at_us) < join_seconds:
            continue
        failures, retry_at_us = next_try(course.pool(pool_name), node.node_type.name, course.now_us)
        reason = NotJoined(
            waited_seconds=course.seconds_since(node.started_at_us),
            join_seconds=join_seconds,
            failures=failures,
            retry_seconds=-course.seconds_since(retry_at_us),
        ).reason()
        course.add(NodeFailed(node_id=node.node_id, pool=pool_name, failure="not_joined", retry_at_us=retry_at_us, reason=reason))


def agents_lost(state: State, decided: Sequence[EventData], now_us: int) -> list[EventData]:
    """Ends of nodes whose agents are lost by what was decided."""
    found: list[EventData] = []
    for data in decided:
        node = node_of(state, data.agent_id) if isinstance(data, AgentLost) else None
        if node is None or node.ending or node.joined_at_us is None or not isinstance(data, AgentLost):
            continue
        served_seconds = (now_us - node.joined_at_us) / 1e6
        if data.announced:
            reason = NodeAgentLeft(served_seconds=served_seconds, notice=_notice(state, data.agent_id)).reason()
            found.append(NodeReleased(node_id=node.node_id, pool=node.pool, reason=reason))
        else:
            reason = NodeLost(served_seconds=served_seconds, by_agent=True, notice=_notice(state, data.agent_id)).reason()
            found.append(
                NodeFailed(node_id=node.node_id, pool=node.pool, failure="lost", message=data.reason[:MESSAGE_MAX], reason=reason)
            )
    return found


def _notice(state: State, agent_id: str) -> str:
    """Words of the provider on the end of the agent's machine."""
    agent = state.agents.get(agent_id)
    return agent.notice if agent is not None else ""
