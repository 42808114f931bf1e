"""Automations that the user of the request sees, and those that have problems."""

from __future__ import annotations

from tenuto.services.gateway.automations.bodies import AutomationTroubleView, AutomationView
from tenuto.services.gateway.automations.door import AutomationsDoor

TROUBLES_MAX = 20


def is_shown(door: AutomationsDoor, found: AutomationView) -> bool:
    """True for the user's own automations, and for all if no workspace is hidden from the user: parked events may be about
    hidden experiments."""
    return door.shows_own(found.owner) or not door.sight().hidden


async def shown(door: AutomationsDoor) -> list[AutomationView]:
    found = await door.automations.all(await door.log.head(), door.clock.now_us())
    return [item for item in found if is_shown(door, item)]


async def automation_troubles(door: AutomationsDoor) -> tuple[AutomationTroubleView, ...]:
    """Automations with parked events, a failing rule or a silent process, of those that the user sees."""
    views = (
        AutomationTroubleView(
            name=item.name,
            state=item.state,
            parked=sum(rule.parked for rule in item.rules),
            problem=next((f"{rule.rule}: {rule.problem}" for rule in item.rules if rule.problem), ""),
        )
        for item in await shown(door)
    )
    return tuple(view for view in views if view.parked or view.problem or view.state == "silent")[:TROUBLES_MAX]
