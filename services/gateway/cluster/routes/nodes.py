"""Pools whose nodes a provisioner starts, and these nodes."""

from __future__ import annotations

import contextlib
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query, Response
from nats.errors import Error as NatsError
from pydantic_core import from_json

from tenuto.schemas import subjects
from tenuto.schemas.base import from_object
from tenuto.schemas.events.provisioning import PoolMounts
from tenuto.schemas.names import AGENT_NAME_PATTERN, NAME_PATTERN
from tenuto.schemas.node_questions import LOG_LINES_MAX, CheckFinding, NodesAnswer, NodesQuestion
from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.sentences import sentence
from tenuto.services.gateway.cluster.commands import ProvisionPool, ReleaseNode, SetPoolMounts
from tenuto.services.gateway.cluster.door import ClusterDoor, Door
from tenuto.services.gateway.cluster.handling.paths import PoolName
from tenuto.services.gateway.cluster.policies.nodes import DecidingEvent, NodeStatus, PoolStatus
from tenuto.services.gateway.cluster.views import CheckView, NodeFailureView, NodeLogsView, NodeView, PoolView, ReleaseBody
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.trials.bodies import Done

router = APIRouter(tags=["nodes"], route_class=StrictRoute)
ANSWER_SECONDS_MAX = 60.0
"""Longest wait for the launcher, which gives up on a provider sooner and says so."""
AT_ONCE_SECONDS_MAX = 3.0
"""Longest wait for an answer that the launcher has without asking a provider."""
SILENT = "The launcher does not answer right now; try again in a few seconds. Nodes and training go on meanwhile."
NodeId = Annotated[str, Path(pattern=AGENT_NAME_PATTERN)]


@router.get("/pools", response_model=list[PoolView])
async def pools(door: Door) -> Response:
    """Pools whose nodes a provisioner starts."""
    await door.users_known()
    known = door.state.nodes.pools
    return answer([_pool(door, known[name]) for name in sorted(known) if known[name].provisioning.starts_nodes])


@router.get("/pools/{pool}/provisioning", response_model=PoolView)
async def provisioning(door: Door, pool: PoolName) -> Response:
    """Source of the pool's nodes, and the capacity that the pool lacks."""
    await door.users_known()
    known = door.state.nodes.pools.get(pool)
    if known is None:
        raise DoorError("not_found", f"Pool {pool} has no provisioner: its agents are started by people.")
    view = _pool(door, known)
    if view.nodes or view.provisioning.starts_nodes:
        with contextlib.suppress(NatsError, TimeoutError):  # then it is told without
            question = NodesQuestion(about="standings", pool=pool)
            found = NodesAnswer.from_json(await door.ask(subjects.NODES, question.to_json(), AT_ONCE_SECONDS_MAX))
            mine = [node for node in door.state.nodes.nodes.values() if node.pool == pool]
            coming = {node.node_id for node in mine if _phase(door, node) in ("requested", "started")}
            words = tuple(item for item in found.words if item.node_id in coming)
            told = {"standings": found.standings if view.wanted else (), "coming": words, "trouble": found.trouble}
            view = view.model_copy(update=told)
    return answer(view)


@router.put("/pools/{pool}/provisioning", response_model=Done)
async def provision(door: Door, pool: PoolName, body: Provisioning) -> Response:
    """Sets how the pool's nodes are started and ended from now on. Provisioner `static`: none are started, and those that the
    pool has are given back. A provisioner that the launcher does not have is refused, unless the launcher is unreachable."""
    await _check_known(door, pool, body)
    events = await door.carry_out(ProvisionPool(**asked(door), pool=pool, settings=body))
    return answer(Done(id=0, changed=bool(events)))


@router.get("/pools/{pool}/mounts", response_model=PoolMounts)
async def mounts(door: Door, pool: PoolName) -> Response:
    """Mounts that the pool allows to containers on its agents, within those that each agent's operator allows; null: all of
    those."""
    await door.users_known()
    return answer(PoolMounts(mounts=door.state.nodes.mounts.get(pool)))


@router.put("/pools/{pool}/mounts", response_model=Done)
async def set_mounts(door: Door, pool: PoolName, body: PoolMounts) -> Response:
    """Containers that start on the pool's agents from now on may mount these and nothing else; null: whatever each agent's
    operator allows. Also before the pool has agents."""
    events = await door.carry_out(SetPoolMounts(**asked(door), pool=pool, mounts=body))
    return answer(Done(id=0, changed=bool(events)))


@router.post("/pools/{pool}/check", response_model=CheckView)
async def check(door: Door, pool: PoolName, body: Provisioning | None = None) -> Response:
    """Checks what the nodes of the pool need, with its own settings or with those in the body, and lists what exists and what is
    missing. Starts nothing."""
    found = await _ask(door, NodesQuestion(about="check", pool=pool, provisioning=body))
    findings = (*found.findings, *_reached_by_nodes(door))
    return answer(CheckView(ready=not any(item.problem for item in findings), findings=findings))


@router.get("/nodes", response_model=list[NodeView])
async def nodes(door: Door, pool: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None) -> Response:
    """Nodes that provisioners start and that have not ended, the oldest first."""
    await door.users_known()
    known = door.state.nodes.nodes.values()
    chosen = [node for node in known if pool is None or node.pool == pool]
    return answer([_node(door, node) for node in sorted(chosen, key=lambda item: (item.requested_us, item.node_id))])


@router.post("/nodes/{node_id}/release", response_model=Recorded)
async def release(door: Door, node_id: NodeId, body: ReleaseBody) -> Response:
    """Gives the node back."""
    events = await door.carry_out(ReleaseNode(**asked(door), node_id=node_id, drain=body.drain))
    return answer(Recorded(position=events[-1].position if events else door.loop.position))


@router.get("/nodes/{node_id}/logs", response_model=NodeLogsView)
async def logs(door: Door, node_id: NodeId, lines: Annotated[int, Query(ge=1, le=LOG_LINES_MAX)] = 200) -> Response:
    """Output of the node's agent, or of its boot, as its provider has it."""
    await door.users_known()
    node = door.state.nodes.nodes.get(node_id)
    pool = node.pool if node is not None else node_id.rpartition("-")[0]
    if pool not in door.state.nodes.pools:
        raise DoorError("not_found", f"There is no node {node_id} that a provisioner started; `tenuto node ls` shows the nodes.")
    found = await _ask(door, NodesQuestion(about="logs", pool=pool, node_id=node_id, lines_max=lines))
    return answer(NodeLogsView(logs=found.logs))


def _reached_by_nodes(door: ClusterDoor) -> tuple[CheckFinding, ...]:
    """Finding about an address of the gateway that nodes elsewhere cannot reach: they would start, and fail much later because no
    agent joins. Empty: they can."""
    url = door.settings.public_url or f"http://{door.settings.rest_host}"
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        ip = ip_address(host)
        host = "localhost" if ip.is_loopback or ip.is_unspecified else host
    if host != "localhost":
        return ()
    note = "Nodes on other machines cannot join there: start with `tenuto up --listen ADDRESS`, or set TENUTO_PUBLIC_URL."
    return (CheckFinding(what=f"address of the gateway, as nodes are told it: {url}", note=note),)


async def _check_known(door: ClusterDoor, pool: str, wanted: Provisioning) -> None:
    """Raises DoorError if the launcher does not have the provisioner. The one that the pool has already is not checked: limits
    may change although its plug-in is gone."""
    known = door.state.nodes.pools.get(pool)
    if not wanted.starts_nodes or (known is not None and known.provisioning.provisioner == wanted.provisioner):
        return
    with contextlib.suppress(NatsError, TimeoutError):  # then `pool check` and `pool show` tell
        question = NodesQuestion(about="known", pool=pool, provisioning=wanted)
        found = NodesAnswer.from_json(await door.ask(subjects.NODES, question.to_json(), AT_ONCE_SECONDS_MAX))
        if found.code == "not_found":
            raise DoorError("invalid", found.error)


async def _ask(door: ClusterDoor, question: NodesQuestion) -> NodesAnswer:
    try:
        found = NodesAnswer.from_json(await door.ask(subjects.NODES, question.to_json(), ANSWER_SECONDS_MAX))
    except (NatsError, TimeoutError) as error:
        raise DoorError("unavailable", SILENT) from error
    if found.error:
        raise DoorError(found.code or "invalid", found.error)
    return found


def _pool(door: ClusterDoor, pool: PoolStatus) -> PoolView:
    mine = [node for node in door.state.nodes.nodes.values() if node.pool == pool.pool]
    everything, failed = door.sight().everything, pool.failure
    return PoolView(
        pool=pool.pool,
        provisioning=pool.provisioning,
        wanted=pool.wanted if everything else (),
        nodes=len(mine),
        nodes_coming=sum(_phase(door, node) in ("requested", "started") for node in mine),
        cost_per_hour=sum(node.cost_per_hour for node in mine),
        last_failure=None
        if failed is None
        else from_object(NodeFailureView, failed, reason=_sentence(failed.said) if everything else ""),
    )


def _node(door: ClusterDoor, node: NodeStatus) -> NodeView:
    reason = _sentence(node.said) if door.sight().everything else ""
    return from_object(NodeView, node, id=node.node_id, phase=_phase(door, node), reason=reason)


def _phase(door: ClusterDoor, node: NodeStatus) -> str:
    member = door.state.joining.agents.get(node.node_id)
    joined = member is not None and not member.revoked
    return "joined" if joined and node.phase in ("requested", "started") else node.phase


def _sentence(said: DecidingEvent) -> str:
    return sentence(said.about, from_json(said.data), said.actor)
