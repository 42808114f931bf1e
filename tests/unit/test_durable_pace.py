"""A consumer that is away is not asked for without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.errors import ConnectionClosedError
from nats.js.errors import ServiceUnavailableError

from tenuto.kernel import durable_consumer


@pytest.mark.parametrize("error", [ServiceUnavailableError(), ConnectionClosedError()])
async def test_a_pause_follows_an_answer_that_comes_at_once(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async def refused(**_: Any) -> list[Any]:
        raise error

    monkeypatch.setattr(durable_consumer.asyncio, "sleep", noted)
    fetch = durable_consumer.paced(refused)
    for _ in range(3):
        with pytest.raises(type(error)):
            await fetch(batch=1, timeout=1.0)
    assert pauses == [durable_consumer.WATCH_SECONDS] * 3


async def test_what_was_fetched_comes_without_a_pause() -> None:
    async def fetched(**asked: Any) -> list[Any]:
        return [asked]

    assert await durable_consumer.paced(fetched)(batch=1, timeout=1.0) == [{"batch": 1, "timeout": 1.0}]
