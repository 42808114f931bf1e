"""The queue, and what changes it: places, policies and shares of pools, agents and slots in and out of service."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from nats.errors import Error as NatsError

from tenuto.schemas import subjects
from tenuto.schemas.events.request import Closing, PolicySettings, ShareOwner, ShareSettings, SlotsNamed
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.queue import POSITION_MAX, PastAnswer, PastQuestion, QueueAnswer, QueueQuestion, ShareRow
from tenuto.services.gateway.cluster.adapters.past_queue import NoPastQueue
from tenuto.services.gateway.cluster.commands import CloseSlots, OpenSlots, SetPoolPolicy, SetShare
from tenuto.services.gateway.cluster.door import ClusterDoor, Door
from tenuto.services.gateway.cluster.handling.anonymous import as_seen, experiments_on, past_agents_as_seen
from tenuto.services.gateway.cluster.handling.paths import At, PoolName
from tenuto.services.gateway.http import paging
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import Cursor, next_page, read_cursor
from tenuto.services.gateway.http.recorded_answers import record
from tenuto.services.gateway.http.strict_json import StrictRoute

router = APIRouter(tags=["queue"], route_class=StrictRoute)
OwnerName = Annotated[str, Path(min_length=1, max_length=256)]
ANSWER_SECONDS_MAX = 5.0
"""Longest wait for an answer, which takes milliseconds; a scheduler that reads the log anew answers only once it is done."""
CLUSTER_ROWS_MAX = 200
"""Most rows of the cluster page, which draws their shares; the queue itself has a route of its own."""
SILENT = "The scheduler does not answer right now; try again in a few seconds. Training goes on meanwhile."


@router.get("/jobs", response_model=QueueAnswer)
async def jobs(
    request: Request,
    door: Door,
    pool: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
    cursor: Cursor = None,
    at: At | None = None,
) -> Response:
    """Experiments that hold slots of each pool and those that wait, in the order of the queue, each with the reason. The queue
    moves on between two pages, if it is not asked for `at` a position: an experiment may be on both, or on none."""
    after_pool, after_position = ("", 0) if cursor is None else read_cursor(cursor, (str, int))
    if not 0 <= after_position <= POSITION_MAX:
        read_cursor("", ())  # says that it is of another list
    question = QueueQuestion(pool=pool, rows_max=limit, after_pool=after_pool, after_position=after_position)
    past = None if at is None else PastQuestion(position=at, queue=question)
    found = await _queue(door, question) if past is None else (await _past(door, past)).queue
    onward = {}
    if found.more:
        last = max((item.rows[-1] for item in found.pools if item.rows), key=lambda row: row.pool)
        onward = next_page(request, cursor=paging.cursor(last.pool, last.position))
    return answer(as_seen(found, door.sight()), headers=onward)


@router.get("/cluster", response_model=PastAnswer)
async def cluster(door: Door, at: At) -> Response:
    """The cluster at an earlier moment, from the log alone: agents with their slots and who was on them, pools, shares, and the
    first experiments of the queues."""
    found = await _past(door, PastQuestion(position=at, queue=QueueQuestion(rows_max=CLUSTER_ROWS_MAX), agents=True))
    seen = door.sight()
    queue = as_seen(found.queue, seen)
    if seen.everything:
        return answer(found)
    hidden = None if seen.nothing else await door.views.hidden_among(experiments_on(found.agents), seen.hidden)
    agents = past_agents_as_seen(found.agents, hidden)
    return answer(found.model_copy(update={"queue": queue, "agents": agents}))


async def _past(door: ClusterDoor, question: PastQuestion) -> PastAnswer:
    try:
        return await door.earlier.at(door.ask, question, asking())
    except NoPastQueue as error:
        raise DoorError(error.code, str(error), "at") from error


async def _queue(door: ClusterDoor, question: QueueQuestion) -> QueueAnswer:
    try:
        data = await door.ask(subjects.QUEUE, question.to_json(), ANSWER_SECONDS_MAX)
    except (NatsError, TimeoutError) as error:
        raise DoorError("unavailable", SILENT) from error
    found = QueueAnswer.from_json(data)
    if found.error:
        raise DoorError("internal", found.error)
    return found


@router.put("/pools/{pool}", response_model=Recorded)
async def set_policy(door: Door, pool: PoolName, body: PolicySettings) -> Response:
    """Sets the policy by which the pool shares its slots, also before it has agents. A half-life that is left out stays as it
    is. Running trials go on, unless `preempt` says that they, too, give way under the new policy."""
    return await record(door, SetPoolPolicy(**asked(door), pool=pool, settings=body))


@router.get("/shares", response_model=list[ShareRow])
async def shares(door: Door) -> Response:
    """Weights and quotas that were set, and who else uses slots."""
    return answer(as_seen(await _queue(door, QueueQuestion(rows_max=1)), door.sight()).shares)


@router.put("/shares/{owner}/{name}", response_model=Recorded)
async def set_share(door: Door, owner: ShareOwner, name: OwnerName, body: ShareSettings) -> Response:
    """Weight and quota of a workspace or a user, in all pools. What is not named stays as it is."""
    return await record(door, SetShare(**asked(door), owner=owner, name=name, settings=body))


@router.post("/agents/{agent_id}/disable", response_model=Recorded)
async def disable(door: Door, agent_id: str, body: Closing) -> Response:
    """Nothing new is placed there until it is enabled; what runs there saves a checkpoint and leaves, unless it is drained."""
    await _known(door, agent_id, body.slot_id)
    return await record(door, CloseSlots(**asked(door), agent_id=agent_id, closing=body))


@router.post("/agents/{agent_id}/enable", response_model=Recorded)
async def enable(door: Door, agent_id: str, body: SlotsNamed) -> Response:
    await _known(door, agent_id, body.slot_id)
    return await record(door, OpenSlots(**asked(door), agent_id=agent_id, slots=body))


async def _known(door: ClusterDoor, agent_id: str, slot_id: int | None) -> None:
    agent = next((agent for agent in await door.views.agents() if agent.id == agent_id), None)
    if agent is None:
        raise not_found(f"agent {agent_id}")
    if slot_id is not None and slot_id not in [slot.slot_id for slot in agent.slots]:
        raise not_found(f"slot {slot_id} on agent {agent_id}")
