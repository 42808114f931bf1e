"""The launcher's handling of heartbeats that a busy agent sends twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Heartbeat
from tenuto.services.launcher.handlers import Listener
from tenuto.services.launcher.handlers.leases import Leases
from tenuto.services.launcher.state import initial

HEARTBEAT = Heartbeat(agent_id="a", spool_id="s", pool="default", host="h", version="1", slots=(), allocations=())


@pytest.mark.parametrize("repeated", [True, False])
async def test_a_repeated_heartbeat_is_a_sign_of_life_and_says_nothing_of_what_runs(repeated: bool) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    said: list[Any] = []
    listener = cast(Any, Listener.__new__(Listener))
    listener._settings, listener._clock, listener._leases = Settings(), clock, Leases(10.0, 1.0)
    listener._backlogs = SimpleNamespace(hear=lambda *what: said.append(what))
    listener._loop = SimpleNamespace(state=initial())
    listener._caught_up = SimpleNamespace(is_set=lambda: False)

    async def respond(body: bytes) -> None:
        said.append(body)

    for clock.now in range(15):
        assert listener._leases.look(["a"], clock.now, connected=True) == []
        if clock.now == 8:
            body = HEARTBEAT.model_copy(update={"repeated": repeated}).to_json()
            await listener._on_heartbeat(SimpleNamespace(data=body, subject=subjects.heartbeat("a"), respond=respond))
    assert bool(said) is not repeated
    clock.now += 1
    for clock.now in range(15, 19):
        lost = listener._leases.look(["a"], clock.now, connected=True)
    assert lost == ["a"]
