"""What a user may see is judged by the rights that the log has given up to the event, also where the state is behind it."""

from __future__ import annotations

from uuid import UUID

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import RoleGranted, RoleRevoked, WorkspaceCreated
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.log.handling.seen_events import SeenEvents
from tenuto.services.gateway.rights.access import Principal
from tests.support.memory_log import MemoryEventLog

HELD = {"kind": "user", "name": "eve", "role": "viewer", "workspace": "vault"}
EVENTS: list[EventData] = [WorkspaceCreated(workspace="vault", private=True), RoleGranted(**HELD), RoleRevoked(**HELD)]


def _event(data: EventData, position: int) -> Event:
    return Event(
        id=UUID(int=position), stream=data.stream(), type=data.TYPE, schema_version=data.VERSION, time_us=position,
        payload=data.to_json(), actor="test/1", position=position,
    )  # fmt: skip


async def test_each_event_is_judged_by_a_state_that_has_it() -> None:
    core, position = GatewayCore(), 0
    state = core.initial()
    events = [_event(data, at) for at, data in enumerate(EVENTS, start=1)]

    async def folded(upto: int) -> None:
        nonlocal state, position
        for event in events[position:upto]:
            state = core.evolve(state, event)
        position = max(position, upto)

    judge = SeenEvents(MemoryEventLog(), lambda: state, folded).judge(lambda: Principal("eve"))
    seen = [bool(await judge([event])) for event in events]
    assert seen == [False, True, False]
