"""Automations: programs of users that react to the log. The gateway keeps the position of each of their rules."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from tenuto.services.gateway.automations.adapters.positions import NotYours, ParkingFull, RunSuperseded, TooManyAutomations
from tenuto.services.gateway.automations.bodies import (
    AUTOMATION_NAME_PATTERN,
    AutomationView,
    MoveAutomationBody,
    MovedView,
    RemovedView,
    RetriedView,
    RetryAutomationBody,
    StartAutomationBody,
)
from tenuto.services.gateway.automations.door import AutomationsDoor, Door
from tenuto.services.gateway.automations.handling import is_shown, shown
from tenuto.services.gateway.http.context import answer, asking
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.rights.access import allowed

router = APIRouter(tags=["automations"], route_class=StrictRoute)
AutomationName = Annotated[str, Path(pattern=AUTOMATION_NAME_PATTERN)]


@router.get("/automations", response_model=list[AutomationView])
async def automations(door: Door) -> Response:
    """Automations of all users; only your own if workspaces are hidden from you."""
    return answer(await shown(door))


@router.get("/automations/{automation}", response_model=AutomationView)
async def show(door: Door, automation: AutomationName) -> Response:
    found = await _found(door, automation)
    if not is_shown(door, found):
        raise not_found(f"automation {automation}")
    return answer(found)


@router.put("/automations/{automation}", response_model=AutomationView)
async def start(door: Door, automation: AutomationName, body: StartAutomationBody) -> Response:
    """Starts a process of the automation, in place of an earlier one; rules that were known go on behind their positions."""
    others = allowed(door.state.access, door.subject(), "automation.change_others")
    try:
        await door.automations.start(automation, asking(), body, await door.log.head(), door.clock.now_us(), others=others)
    except NotYours:
        raise DoorError("forbidden", f"Automation {automation} is somebody else's: give yours another name.") from None
    except TooManyAutomations:
        raise DoorError("conflict", "You have too many automations: remove some with `tenuto automation rm`.") from None
    return answer(await _found(door, automation))


@router.patch("/automations/{automation}", response_model=MovedView)
async def move(door: Door, automation: AutomationName, body: MoveAutomationBody) -> Response:
    """Records the events that a process has handled and those that it parks, all or nothing; also its heartbeat."""
    try:
        retries = await door.automations.move(automation, body, door.clock.now_us())
    except RunSuperseded:
        raise DoorError(
            "conflict", f"This process of automation {automation} is not its latest: it was started again, or removed."
        ) from None
    except ParkingFull:
        raise DoorError(
            "too_large",
            f"Automation {automation} has too many parked events: mend their cause, then "
            f"`tenuto automation redeliver {automation}`.",
        ) from None
    return answer(MovedView(retries=tuple(retries)))


@router.post("/automations/{automation}/redeliver", response_model=RetriedView, status_code=202)
async def redeliver(door: Door, automation: AutomationName, body: RetryAutomationBody | None = None) -> Response:
    """Delivers parked events again, by the automation's process, at its next heartbeat."""
    await _found(door, automation)
    return answer(RetriedView(numbers=tuple(await door.automations.retry(automation, body.numbers if body else ()))), 202)


@router.delete("/automations/{automation}", response_model=RemovedView)
async def remove(door: Door, automation: AutomationName) -> Response:
    """Removes the automation with its positions and parked events; its process ends."""
    if not await door.automations.remove(automation):
        raise not_found(f"automation {automation}")
    return answer(RemovedView(name=automation))


async def _found(door: AutomationsDoor, name: str) -> AutomationView:
    found = await door.automations.one(name, await door.log.head(), door.clock.now_us())
    if found is None:
        raise not_found(f"automation {name}")
    return found
