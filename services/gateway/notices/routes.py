"""Webhooks: the targets of notices, and the outcome of each notice."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Query, Request, Response

from tenuto.kernel.plugins import PluginError
from tenuto.schemas.base import from_object
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.notice import WebhookChanges
from tenuto.schemas.webhooks import WEBHOOK_NAME_PATTERN, HttpTarget
from tenuto.services.gateway.http import paging
from tenuto.services.gateway.http.bodies import Recorded
from tenuto.services.gateway.http.context import answer, asked, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.paging import Cursor, next_page, read_cursor
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.notices.adapters.notice_history import explain
from tenuto.services.gateway.notices.adapters.targets.opening import BadSettings, OldSecret, Sealed, new_secret, plugin_of, shown
from tenuto.services.gateway.notices.bodies import (
    ChangedWebhookBody,
    DeliveryView,
    ExplanationView,
    NewWebhookBody,
    NewWebhookView,
    RedeliverBody,
    RedeliveredView,
    RotateBody,
    SecretChangedView,
    TriedView,
    WebhookView,
)
from tenuto.services.gateway.notices.commands import (
    ChangeWebhook,
    ChangeWebhookSecret,
    CreateWebhook,
    Redeliver,
    RemoveWebhook,
    TryWebhook,
)
from tenuto.services.gateway.notices.decide.webhooks import own
from tenuto.services.gateway.notices.door import Door, NoticesDoor
from tenuto.services.gateway.notices.handling import is_seen, view_of
from tenuto.services.gateway.notices.state import Webhook

router = APIRouter(tags=["webhooks"], route_class=StrictRoute)
WebhookName = Annotated[str, Path(pattern=WEBHOOK_NAME_PATTERN)]
HOUR_US = 3_600 * 1_000_000
DELIVERIES_MAX = 1_000


@router.get("/webhooks", response_model=list[WebhookView])
async def webhooks(door: Door) -> Response:
    """Webhooks of all users; only your own if there are private workspaces that you do not see."""
    await door.users_known()
    known = door.state.notices.webhooks
    return answer([view_of(door, known[name]) for name in sorted(known) if is_seen(door, known[name])])


@router.post("/webhooks", response_model=NewWebhookView, status_code=201)
async def create(door: Door, body: NewWebhookBody) -> Response:
    """Creates a webhook of yours. If its messages are signed, only this answer ever shows the secret."""
    await door.users_known()
    target, now_us = body.target, door.clock.now_us()
    if isinstance(target, HttpTarget) and target.secret is None:
        target = target.model_copy(update={"secret": new_secret()})
    try:
        plugin, place = plugin_of(target.kind), shown(target)
    except (PluginError, BadSettings) as error:
        raise DoorError("invalid", str(error)) from None
    command = CreateWebhook(
        **(asked(door) | {"time_us": now_us}),
        name=body.name,
        kind=target.kind,
        place=place,
        triggers=body.triggers,
        filters=body.filters,
        group_seconds=body.group_seconds,
        recoveries=plugin.recovers if body.recoveries is None else body.recoveries,
        sealed_id=str(uuid4()),
    )
    door.check(command)  # refuses before anything is kept
    # Kept before the webhook is recorded: one without a target could never be sent to.
    await door.vault.keep(command.sealed_id, Sealed(target=target), now_us)
    await door.carry_out(command)
    view = view_of(door, _found(door, body.name))
    secret = target.secret if isinstance(target, HttpTarget) else None
    return answer(NewWebhookView(**vars(view), secret=secret), 201)


@router.get("/webhooks/{name}", response_model=WebhookView)
async def show(door: Door, name: WebhookName) -> Response:
    await door.users_known()
    return answer(view_of(door, _found(door, name)))


@router.patch("/webhooks/{name}", response_model=WebhookView)
async def change(door: Door, name: WebhookName, body: ChangedWebhookBody) -> Response:
    """Changes triggers, filters, grouping and recoveries, pauses and resumes. The target stays: for another one create another
    webhook."""
    await door.carry_out(ChangeWebhook(**asked(door), name=name, changes=from_object(WebhookChanges, body)))
    return answer(view_of(door, _found(door, name)))


@router.get("/webhooks/{name}/explanation", response_model=ExplanationView)
async def explanation(
    door: Door,
    name: WebhookName,
    event_id: Annotated[UUID | None, Query(description="Id of an event.")] = None,
    position: Annotated[int | None, Query(ge=1, le=2**62, description="Its position in the log, instead.")] = None,
) -> Response:
    """Explains why the webhook has, or has not, a notice about an event, by its triggers and filters at that time."""
    await door.users_known()
    _found(door, name)
    if (event_id is None) == (position is None):
        raise DoorError("invalid", "Give either event_id or position of the event.", "event_id")
    event = await door.log.find(event_id) if event_id is not None else await _at(door, position or 0)
    if event is None or not await door.sees(event):
        raise not_found(f"event {event_id or position}")
    found = await explain(door.log, name, event)
    view = ExplanationView(
        event_id=str(event.id),
        event_type=event.type,
        position=event.position,
        number=found.number,
        sentences=found.sentences,
    )
    return answer(view)


async def _at(door: NoticesDoor, position: int) -> Event | None:
    page = await door.log.read(position - 1, 1, upto=position)
    return page[0] if len(page) else None


@router.delete("/webhooks/{name}", response_model=Recorded)
async def remove(door: Door, name: WebhookName) -> Response:
    """Removes the webhook and gives up its waiting notices."""
    sealed_id = _own(door, name).sealed_id
    command = RemoveWebhook(**asked(door), name=name)
    events = await door.carry_out(command)
    await door.vault.forget(sealed_id)
    return answer(Recorded(position=events[-1].position))


@router.post("/webhooks/{name}/test", response_model=TriedView, status_code=202)
async def test(door: Door, name: WebhookName) -> Response:
    """Sends a test notice, behind those that wait. `GET /webhooks/{name}/deliveries` shows its outcome."""
    command = TryWebhook(**asked(door), name=name)
    await door.carry_out(command)
    door.deliveries.hurry(name)
    return answer(TriedView(number=_found(door, name).number), 202)


@router.post("/webhooks/{name}/rotate", response_model=SecretChangedView, status_code=201)
async def rotate(door: Door, name: WebhookName, body: RotateBody) -> Response:
    """Changes the secret that signs messages. They are also signed with the old one for `keep_old_hours`."""
    webhook, now_us = _own(door, name), door.clock.now_us()
    command = ChangeWebhookSecret(
        **(asked(door) | {"time_us": now_us}),
        name=name,
        sealed_id=str(uuid4()),
        old_until_us=now_us + int(body.keep_old_hours * HOUR_US),
    )
    door.check(command)
    sealed = await door.vault.find(webhook.sealed_id)
    if sealed is None or not isinstance(sealed.target, HttpTarget) or sealed.target.secret is None:
        raise DoorError(
            "conflict",
            f"What is kept of webhook {name} cannot be read, as the key of the secrets is another one: remove it and make it "
            "again.",
        )
    secret = body.secret or new_secret()
    old = [item for item in sealed.old_secrets if now_us < item.until_us][-8:]
    old.append(OldSecret(secret=sealed.target.secret, until_us=command.old_until_us))
    target = sealed.target.model_copy(update={"secret": secret})
    await door.vault.keep(command.sealed_id, Sealed(target=target, old_secrets=tuple(old)), now_us)
    await door.carry_out(command)
    await door.vault.forget(webhook.sealed_id)
    return answer(SecretChangedView(secret=secret, old_until_us=command.old_until_us), 201)


@router.get("/webhooks/{name}/deliveries", response_model=list[DeliveryView])
async def deliveries(
    request: Request,
    door: Door,
    name: WebhookName,
    limit: Annotated[int, Query(ge=1, le=DELIVERIES_MAX)] = 100,
    cursor: Cursor = None,
) -> Response:
    """Notices of the webhook with their outcomes, the newest first."""
    await door.users_known()
    webhook = _found(door, name)
    behind = None if cursor is None else read_cursor(cursor, (int,))[0]
    items, place = await door.delivery_record.of(name, webhook.created_us, limit, behind)
    onward = {} if place is None else next_page(request, cursor=paging.cursor(place))
    return answer([DeliveryView(**item) for item in items], headers=onward)


@router.post("/webhooks/{name}/redeliver", response_model=RedeliveredView, status_code=202)
async def redeliver(door: Door, name: WebhookName, body: RedeliverBody | None = None) -> Response:
    """Sends parked notices again, unchanged: a receiver recognizes them by their ids."""
    numbers = body.numbers if body is not None else ()
    before = _own(door, name)
    command = Redeliver(**asked(door), name=name, numbers=numbers)
    await door.carry_out(command)
    door.deliveries.hurry(name)
    after = door.state.notices.webhooks.get(name)
    still = after.parked if after is not None else {}
    return answer(RedeliveredView(numbers=tuple(number for number in sorted(before.parked) if number not in still)), 202)


def _found(door: NoticesDoor, name: str) -> Webhook:
    webhook = door.state.notices.webhooks.get(name)
    if webhook is None or not is_seen(door, webhook):
        raise not_found(f"webhook {name}")
    return webhook


def _own(door: NoticesDoor, name: str) -> Webhook:
    """Webhook that the user of the request may change. Raises Refused."""
    return own(door.state, name, asking())
