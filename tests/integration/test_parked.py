"""Parked reports are handled when asked for again, and trusted no more than the first time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import parked as parked_module
from tenuto.kernel.report_tokens import digest_of
from tenuto.schemas.reports import HEADER_TOKEN
from tests.conftest import Database
from tests.support.receiving import AGENT, SPOOL, Receiver, Setup, numbers, receiving_end
from tests.support.waiting import until_async


@pytest.fixture
async def setup(nats: NatsServer, database: Database) -> AsyncIterator[Setup]:
    async with receiving_end(nats.url, database.url) as setup:
        yield setup


async def test_what_was_parked_is_received_when_it_is_asked_for_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_module, "RETRY_POLL_SECONDS", 0.05)

    async def ask_again() -> None:
        await setup.pool.execute("UPDATE parked SET retry_asked_at = now()")
        asked = "SELECT count(*) FROM parked WHERE retry_asked_at IS NOT NULL"
        await until_async(lambda: setup.pool.fetchval(asked), lambda left: left == 0)

    receiver = Receiver()
    receiver.poison, receiver.defects = {b"2"}, {b"4"}
    async with setup.receiving(receiver):
        await setup.send(1, 2, 3, 4, 5, **{HEADER_TOKEN: "t"})
        await setup.told_of(5)
        [poison, defect] = await setup.parked()
        assert poison["token_digest"] == defect["token_digest"] == digest_of("t"), "a retry believes more or less than before"
        receiver.defects = {b"2"}
        await ask_again()
        [row] = await setup.parked()
        assert (row["body"], row["retries"], row["reason"]) == (b"2", 1, "it smells")
        receiver.poison, receiver.defects = set(), set()
        await ask_again()
        assert await setup.parked() == []
    assert receiver.bodies == [*numbers(1, 3, 5), b"4", b"2"]
    again = [report for report in receiver.reports if report.body == b"2"][-1]
    assert (again.agent_id, again.spool_id, again.sequence, again.kind) == (AGENT, SPOOL, 2, "test")
    assert (again.token, again.token_digest) == ("", digest_of("t"))
