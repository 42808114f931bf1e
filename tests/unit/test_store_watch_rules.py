"""Streams are made anew where they store nothing for a while, and not where their server was away in between."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest
from nats.js.api import StreamConfig, StreamInfo, StreamState

from tenuto.kernel import store_watch
from tenuto.kernel.settings import Settings
from tenuto.kernel.store_watch import REMAKE_SECONDS, REMAKE_SECONDS_MAX, StoreWatch


class Bus:
    """As much of a client of NATS as is asked whether its server answers."""

    is_connected = True

    def __init__(self) -> None:
        self.last_sequence = 0

    def jetstream(self, timeout: float) -> Bus:
        return self

    async def account_info(self) -> None:
        pass

    async def stream_info(self, stream: str) -> StreamInfo:
        state = StreamState(messages=0, bytes=0, first_seq=1, last_seq=self.last_sequence, consumer_count=0)
        return StreamInfo(config=StreamConfig(name=stream), state=state)


Watched = tuple[StoreWatch, Bus, list[float], list[str]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The watch, its bus, the time, and what was made anew."""
    bus, now, remade = Bus(), [0.0], list[str]()
    watch = StoreWatch(cast(Any, bus), Settings())
    monkeypatch.setattr(store_watch, "monotonic", lambda: now[0])

    async def delete_stream(stream: str) -> None:
        remade.append(stream)
        bus.last_sequence = 0

    async def ensured(js: object, settings: Settings) -> None:
        pass

    monkeypatch.setattr(bus, "delete_stream", delete_stream, raising=False)
    monkeypatch.setattr(store_watch, "ensure_streams", ensured)
    return watch, bus, now, remade


async def test_the_time_that_a_server_is_away_does_not_count(watched: Watched) -> None:
    watch, bus, now, remade = watched
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


async def test_a_store_that_is_only_slow_keeps_its_stream(watched: Watched) -> None:
    watch, bus, now, remade = watched
    for _ in range(20):
        await watch.failed("S", TimeoutError())
        now[0] += REMAKE_SECONDS
        bus.last_sequence += 1
    assert remade == []
    assert "slowly" in watch.state.message
    watch.works("S")
    assert watch.state.ok


async def test_a_stream_is_made_anew_ever_more_seldom_where_that_does_not_help(watched: Watched) -> None:
    watch, _, now, remade = watched
    times: list[float] = []
    while len(times) < 10:
        await watch.failed("S", TimeoutError())
        if len(remade) > len(times):
            times.append(now[0])
        now[0] += 1.0
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= 2 * REMAKE_SECONDS
    assert REMAKE_SECONDS_MAX <= pauses[-1] <= REMAKE_SECONDS_MAX + 2.0
    watch.works("S")
    await watch.failed("S", TimeoutError())
    now[0] += REMAKE_SECONDS
    await watch.failed("S", TimeoutError())
    assert len(remade) == 11
