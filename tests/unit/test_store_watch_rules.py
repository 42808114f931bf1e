"""Streams are made anew where they store nothing for a while, and not where their server was away in between."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tenuto.kernel import store_watch
from tenuto.kernel.settings import Settings
from tenuto.kernel.store_watch import REMAKE_SECONDS, StoreWatch


class Bus:
    """As much of a client of NATS as is asked whether its server answers."""

    is_connected = True

    def jetstream(self, timeout: float) -> Bus:
        return self

    async def account_info(self) -> None:
        pass


async def test_the_time_that_a_server_is_away_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, now, remade = Bus(), [0.0], list[str]()
    watch = StoreWatch(cast(Any, bus), Settings())
    monkeypatch.setattr(store_watch, "monotonic", lambda: now[0])

    async def remake(stream: str) -> None:
        remade.append(stream)

    monkeypatch.setattr(watch, "_remake", remake)
    await watch.failed("S", TimeoutError())
    now[0] += REMAKE_SECONDS
    bus.is_connected = False
    await watch.failed("S", TimeoutError())
    bus.is_connected = True
    await watch.failed("S", TimeoutError())
    assert remade == []
    now[0] += REMAKE_SECONDS
    await watch.failed("S", TimeoutError())
    assert remade == ["S"]
