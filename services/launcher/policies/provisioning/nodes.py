"""Nodes on record beside those that their provider has: orders to it, starts, failures and ends; and lost agents of nodes. Pure.

Orders follow from the record and the provider's answer alone, so a caller may be killed anywhere and begin anew. The record must
be at least as new as the answer: a node that was requested in between would look like one that was never requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tenuto.kernel.folding import DraftEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.node import NodeEnded, NodeFailed, NodeFailure, NodeReleased, NodeStarted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.sentences.nodes import (
    EndedEarly,
    JoinOverdue,
    NodeAgentLeft,
    NodeImageMissing,
    NodeLost,
    NodeOutdated,
    StartFailed,
)
from tenuto.services.launcher.commands import LookAtNodes, NodePhase, SeenNode
from tenuto.services.launcher.evolve import FOLDS
from tenuto.services.launcher.policies.provisioning.limits import next_try
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.indexes import node_of
from tenuto.services.launcher.state.leaving import says_it_ends
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool

RELEASE_SECONDS_MIN = 5.0
"""A node that was in service is not ended before: the scheduler may have granted slots there until it read that the node is given
back."""
RELEASE_SECONDS_MAX = 600.0
"""A node that is given back now, and not when its work is done, is ended after so long at the latest: saving a checkpoint takes
seconds to minutes."""
MESSAGE_MAX, PROVIDER_ID_MAX = 500, 300
"""Bounds of NodeFailed and NodeStarted."""


class Real(Protocol):
    """A node as its provider shows it (`RealNode`, `SeenNode`)."""

    @property
    def node_id(self) -> str: ...

    @property
    def provider_id(self) -> str: ...

    @property
    def phase(self) -> NodePhase: ...


R = TypeVar("R", bound=Real)


@dataclass(frozen=True)
class NodeOrders(Generic[R]):
    start: tuple[tuple[Node, ...], ...] = ()
    """Groups to start, each whole or not at all."""
    stop: tuple[R, ...] = ()


@dataclass(frozen=True)
class ProvidedPool:
    """A provisioner that is to be asked for its nodes."""

    pool: str
    generation: int
    provisioning: Provisioning
    nodes: int
    """Nodes of it on record."""
    current: bool
    """False: an earlier one, from which nothing more is started."""


def provided(state: State) -> tuple[ProvidedPool, ...]:
    """All provisioners that may have nodes, by pool and generation. An earlier one without nodes on record may still have some on
    no record, and can be asked rarely."""
    found = []
    for name in sorted(state.pools):
        pool = state.pools[name]
        for generation, provisioning in sorted(
            [(pool.generation, pool.provisioning), *((place.generation, place.provisioning) for place in pool.former)],
            key=lambda entry: entry[0],
        ):
            if provisioning.starts_nodes:
                nodes = sum(node.generation == generation for node in pool.nodes.values())
                found.append(ProvidedPool(name, generation, provisioning, nodes, generation == pool.generation))
    return tuple(found)


def wanted_orders(state: State, pool_name: str, generation: int, real: Sequence[R], now_us: int) -> NodeOrders[R]:
    """`real`: all nodes that the provider of that generation has for the pool."""
    pool = state.pools.get(pool_name)
    if pool is None:
        return NodeOrders((), tuple(node for node in real if node.phase != "ended"))
    return NodeOrders(_to_start(pool, generation, real), tuple(_to_stop(state, pool, real, now_us)))


def _to_start(pool: ProvisionedPool, generation: int, real: Sequence[Real]) -> tuple[tuple[Node, ...], ...]:
    """Requested nodes that the provider does not know, by group; one that has ended is known and not started again."""
    known = {node.node_id for node in real}
    groups: dict[str, list[Node]] = {}
    for node in pool.in_order():
        if node.phase == "requested" and node.generation == generation and node.node_id not in known:
            groups.setdefault(node.group, []).append(node)
    return tuple(tuple(nodes) for nodes in groups.values())


def _to_stop(state: State, pool: ProvisionedPool, real: Sequence[R], now_us: int) -> Iterator[R]:
    """Nodes to end: those not on record, those that failed, those given back with nothing left on them, and the second of one
    id."""
    kept: set[str] = set()
    for item in sorted(real, key=lambda node: _kept_first(pool, node)):
        if item.phase == "ended":
            continue
        node = pool.nodes.get(item.node_id)
        if node is None or item.node_id in kept or _is_over(state, node, now_us):
            yield item
        kept.add(item.node_id)


def _kept_first(pool: ProvisionedPool, real: Real) -> tuple[bool, bool, str, str]:
    """The one that is on record under that name; before it is, one that runs; and the same one at every look."""
    node = pool.nodes.get(real.node_id)
    on_record = node is not None and bool(node.provider_id) and node.provider_id == real.provider_id
    return (not on_record, real.phase != "running", real.node_id, real.provider_id)


def _is_over(state: State, node: Node, now_us: int) -> bool:
    """True if nothing of the node is needed any more."""
    if node.ending == "failed":
        return True
    if node.ending != "released":
        return False
    seconds = (now_us - node.ending_at_us) / 1e6
    if node.node_id in state.on_agent:
        return not node.drain and seconds >= RELEASE_SECONDS_MAX
    return seconds >= RELEASE_SECONDS_MIN or node.node_id not in state.agents


class DecisionSteps:
    """A decision of several steps, each of which sees the ones before it as folded."""

    def __init__(self, state: State, now_us: int) -> None:
        self.state, self.now_us = state, now_us
        self.decided: list[EventData] = []

    def add(self, data: EventData) -> None:
        self.state = FOLDS.apply(self.state, data, DraftEnvelope(self.now_us))
        self.decided.append(data)

    def release(self, node: Node, reason: Reason, *, drain: bool = True, retry_at_us: int | None = None) -> None:
        self.add(NodeReleased(node_id=node.node_id, pool=node.pool, drain=drain, retry_at_us=retry_at_us, reason=reason))

    def fail(
        self, node: Node, failure: NodeFailure, reason: Reason, *, message: str = "", retry_at_us: int | None = None
    ) -> None:
        self.add(
            NodeFailed(
                node_id=node.node_id, pool=node.pool, failure=failure, message=message[:MESSAGE_MAX], retry_at_us=retry_at_us,
                reason=reason,
            )
        )  # fmt: skip

    def pool(self, name: str) -> ProvisionedPool:
        return self.state.pools[name]

    def seconds_since(self, time_us: int) -> float:
        return (self.now_us - time_us) / 1e6


def look(course: DecisionSteps, seen: LookAtNodes) -> None:
    """Decides what follows from what the provider has for a pool on record."""
    _start_failures(course, seen)
    if seen.nodes is None:
        return
    real: dict[str, list[SeenNode]] = {}
    for item in seen.nodes:
        real.setdefault(item.node_id, []).append(item)
    for node in course.pool(seen.pool).in_order():
        if node.generation == seen.generation:
            _look_at(course, node, real.get(node.node_id, []))


def _start_failures(course: DecisionSteps, seen: LookAtNodes) -> None:
    for failure in seen.failures:
        node = course.pool(seen.pool).nodes.get(failure.node_id)
        if node is None or node.phase != "requested" or failure.kind == "unreachable":
            continue
        refused = failure.kind == "refused"
        failures, retry_at_us = next_try(course.pool(seen.pool), node.backoff_key(failure.kind), course.now_us, refused=refused)
        reason = StartFailed(failures=failures, retry_seconds=-course.seconds_since(retry_at_us)).reason()
        course.fail(node, failure.kind, reason, message=failure.message, retry_at_us=retry_at_us)


def _look_at(course: DecisionSteps, node: Node, real: Sequence[SeenNode]) -> None:
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
    elif node.own_image and node.joined_at_us is None and (said := [item.detail for item in live if item.image_missing]):
        # It would hold its machine until its time to join is over, and no other image would get that.
        failures, retry_at_us = next_try(course.pool(node.pool), node.backoff_key(), course.now_us)
        missing = NodeImageMissing(image=node.own_image, failures=failures, retry_seconds=-course.seconds_since(retry_at_us))
        course.fail(node, "refused", missing.reason(), message=said[0], retry_at_us=retry_at_us)
    elif any(item.outdated for item in live) and node.idle_since_us is not None:
        # Nothing runs on it. One that has work goes on with it, and is looked at again when that has ended.
        course.release(node, NodeOutdated(idle_seconds=course.seconds_since(node.idle_since_us)).reason())


def _ended_by_itself(course: DecisionSteps, node: Node, detail: str) -> None:
    if node.joined_at_us is not None:
        served_seconds, notice = course.seconds_since(node.joined_at_us), _notice(course.state, node.node_id)
        if says_it_ends(course.state, node.node_id) and node.node_id not in course.state.on_agent:
            course.release(node, NodeAgentLeft(served_seconds=served_seconds, notice=notice).reason())
            return
        reason = NodeLost(served_seconds=served_seconds, by_agent=False, notice=notice).reason()
        course.fail(node, "lost", reason, message=detail)
        return
    failures, retry_at_us = next_try(course.pool(node.pool), node.backoff_key(), course.now_us)
    early = EndedEarly(failures=failures, retry_seconds=-course.seconds_since(retry_at_us)).reason()
    failure: NodeFailure = "refused" if node.started_at_us is None else "lost"
    course.fail(node, failure, early, message=detail, retry_at_us=retry_at_us)


def late_joins(course: DecisionSteps, pool_name: str) -> None:
    """Gives up nodes whose agent has not come in time. Time in the provider's own queue does not count."""
    join_seconds = course.pool(pool_name).provisioning.join_seconds
    for node in course.pool(pool_name).in_order():
        if node.phase != "started" or node.started_at_us is None or course.seconds_since(node.started_at_us) < join_seconds:
            continue
        failures, retry_at_us = next_try(course.pool(pool_name), node.backoff_key(), course.now_us)
        reason = JoinOverdue(
            waited_seconds=course.seconds_since(node.started_at_us),
            join_seconds=join_seconds,
            failures=failures,
            retry_seconds=-course.seconds_since(retry_at_us),
        ).reason()
        course.fail(node, "not_joined", reason, retry_at_us=retry_at_us)


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
