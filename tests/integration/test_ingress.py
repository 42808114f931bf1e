"""Reports from agents to a receiver, on real NATS and PostgreSQL: once, in order, whatever the bus does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence

import pytest
from nats.js.errors import Error as JetStreamError

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import ingress
from tenuto.kernel.eventlog import Fenced, LogUnavailable
from tenuto.kernel.positions import Positions
from tenuto.kernel.received_reports import Poison, Report, read_all
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.ids import name_id
from tenuto.schemas.reports import (
    HEADER_AGENT,
    HEADER_FOLLOWED,
    HEADER_TRACE,
    Committed,
)
from tests.conftest import Database
from tests.support.receiving import AGENT, SPOOL, Receiver, Setup, numbers, receiving_end
from tests.support.seeds import SEEDS
from tests.support.waiting import SECONDS_MAX


@pytest.fixture
async def setup(nats: NatsServer, database: Database) -> AsyncIterator[Setup]:
    async with receiving_end(nats.url, database.url) as setup:
        yield setup


async def test_reports_arrive_in_order_with_their_identity(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        await setup.send(*range(1, 51), **{HEADER_TRACE: trace})
        assert (await setup.told_of(50)).spool_id == SPOOL
    assert receiver.bodies == numbers(*range(1, 51))
    first = receiver.reports[0]
    assert first == Report("tracker", AGENT, SPOOL, 1, "test", b"1", trace)
    assert first.id == name_id(AGENT, SPOOL, "tracker", "1")
    info = await setup.client.jetstream().stream_info(subjects.INGRESS_STREAM)
    assert info.state.messages == 0


async def test_what_was_published_together_is_committed_at_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "FOLLOWER_SECONDS_MAX", 60.0)
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.send(1, 2, **{HEADER_FOLLOWED: "1"})
        await setup.send(3)
        await setup.send(4)
        await setup.told_of(4)
    assert receiver.batches[0][:3] == numbers(1, 2, 3)
    assert receiver.bodies == numbers(1, 2, 3, 4)


async def test_a_report_whose_follower_is_lost_does_not_wait_for_it(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.send(1, **{HEADER_FOLLOWED: "1"})
        await setup.told_of(1)
    assert receiver.bodies == numbers(1)


async def test_repeated_reports_are_dropped_also_after_a_restart(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.send(1, 2, 2, 1, 3)
        await setup.told_of(3)
    async with setup.receiving(receiver):
        await setup.send(1, 2, 3, 4)
        await setup.told_of(4)
    assert [report.body for report in receiver.reports] == numbers(1, 2, 3, 4)


async def test_a_gap_is_not_received_and_asks_for_a_resend(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.send(1, 2, 4, 5)
        assert await setup.told_to_resend() == Committed(spool_id=SPOOL, sequence=2, resend=True)
        await setup.send(3, 4, 5)
        await setup.told_of(5)
    assert receiver.bodies == numbers(1, 2, 3, 4, 5)


async def test_spools_and_agents_are_counted_apart(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.send(1, 2)
        await setup.send(1, spool="spool-b")
        await setup.send(1, agent="other", spool="spool-c")
        await receiver.until(4)
        await setup.told_of(2)
    assert sorted((report.spool_id, report.sequence) for report in receiver.reports) == [
        (SPOOL, 1),
        (SPOOL, 2),
        ("spool-b", 1),
        ("spool-c", 1),
    ]


async def test_a_question_that_takes_long_holds_up_no_other_agent(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, stored = asyncio.Event(), Positions._stored

    async def stored_slowly(self: Positions, agent_id: str, *, clear: bool) -> int | None:
        if agent_id == "noisy":
            await go_on.wait()
        return await stored(self, agent_id, clear=clear)

    monkeypatch.setattr(Positions, "_stored", stored_slowly)
    async with setup.receiving(Receiver()):
        await setup.send(1)
        await setup.told_of(1)
        slow = [asyncio.create_task(setup.position(agent="noisy")) for _ in range(20)]
        await setup.client.flush()
        assert (await setup.position()).sequence == 1
        assert not any(task.done() for task in slow)
        go_on.set()
        answered, _ = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result().sequence for task in answered} == {0}
        await asyncio.gather(*map(stop_task, slow))


async def test_an_agent_can_ask_what_is_committed(setup: Setup) -> None:
    async with setup.receiving(Receiver()):
        await setup.send(1, 2, 3)
        await setup.told_of(3)
        while (found := await setup.position()).stored:
            pass  # acknowledgements are on their way
        assert found == Committed(spool_id=SPOOL, sequence=3, stored=0)
        assert await setup.position(b"") == Committed(spool_id=SPOOL, sequence=3, stored=0)
        assert await setup.position(b"unknown") == Committed(spool_id="unknown", sequence=0, stored=0)
        assert await setup.position(b"", agent="nobody") == Committed(spool_id="", sequence=0, stored=0)


async def test_poison_is_parked_and_nothing_waits_behind_it(setup: Setup) -> None:
    receiver = Receiver()
    receiver.poison = {b"2"}
    async with setup.receiving(receiver):
        await setup.send(1, 2, 3)
        assert await setup.told_of(3) == Committed(spool_id=SPOOL, sequence=3)
    assert receiver.bodies == numbers(1, 3)
    [row] = await setup.parked()
    assert (row["consumer"], row["item_id"], row["body"]) == ("ingress-tracker", f"tracker/{AGENT}/{SPOOL}/2", b"2")
    assert row["reason"] == "it smells"


async def test_a_batch_of_poison_is_read_twice_and_not_once_for_each(setup: Setup) -> None:
    """What is good among them must not be read again for each of them."""
    good, total, read = 100, 200, list[bytes]()
    receiver = Receiver()

    def smell(report: Report) -> Report:
        read.append(report.body)
        if int(report.body) > good:
            raise Poison(report, "it smells")
        return report

    async def receive(reports: Sequence[Report]) -> None:
        await receiver(read_all(reports, smell))

    await setup.send(*range(1, total + 1))
    async with setup.receiving(receive):  # type: ignore[arg-type]
        assert await setup.told_of(total) == Committed(spool_id=SPOOL, sequence=total)
    assert receiver.bodies == numbers(*range(1, good + 1))
    assert [row["item_id"] for row in await setup.parked()] == [
        f"tracker/{AGENT}/{SPOOL}/{n}" for n in range(good + 1, total + 1)
    ]
    assert len(read) <= total + good


async def test_a_report_that_breaks_the_receiver_is_parked_alone(setup: Setup) -> None:
    receiver = Receiver()
    receiver.defects = {b"3"}
    await setup.send(*range(1, 7))
    async with setup.receiving(receiver):
        await setup.told_of(6)
    assert receiver.bodies == numbers(1, 2, 4, 5, 6)
    [row] = await setup.parked()
    assert "ZeroDivisionError" in row["reason"]


async def test_a_report_without_readable_headers_is_parked(setup: Setup) -> None:
    receiver = Receiver()
    async with setup.receiving(receiver):
        await setup.client.jetstream().publish(subjects.ingress("tracker", AGENT), b"?", headers={HEADER_AGENT: AGENT})
        await setup.send(0, 2**70)
        await setup.send(1)
        await setup.told_of(1)
    assert receiver.bodies == numbers(1)
    rows = await setup.parked()
    assert [(row["kind"], row["body"]) for row in rows] == [("unreadable", body) for body in (b"?", b"0", b"%d" % 2**70)]


async def test_while_the_log_is_away_reports_wait(setup: Setup) -> None:
    receiver = Receiver(LogUnavailable("away"), OSError("away"))
    async with setup.receiving(receiver):
        await setup.send(1, 2)
        await setup.told_of(2)
    assert receiver.bodies == numbers(1, 2)


async def test_a_fenced_receiver_ends_the_ingress(setup: Setup) -> None:
    async with setup.receiving(Receiver(Fenced("another one"))) as task:
        await setup.send(1)
        with pytest.raises(Fenced):
            await task


async def test_a_receiver_killed_before_its_position_is_stored_gets_the_same_ids_again(setup: Setup) -> None:
    """Received, then killed: the report is delivered again, and its id tells the core that it is the same."""
    entered = asyncio.Event()

    class Dying(Receiver):
        async def __call__(self, reports: Sequence[Report]) -> None:
            await super().__call__(reports)
            entered.set()
            await asyncio.Event().wait()

    dying, receiver = Dying(), Receiver()
    async with setup.receiving(dying):
        await setup.send(1)
        await entered.wait()
    async with setup.receiving(receiver):
        await setup.committed(1, 2)  # the agent, not told, sends again
    assert receiver.reports[0].id == dying.reports[0].id
    assert receiver.bodies == numbers(1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_bus_is_killed_and_wiped_and_every_report_arrives_once_in_order(
    setup: Setup, nats: NatsServer, seed: int
) -> None:
    """An agent that follows the rules: it sends on until it is told that its reports are committed."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    total = 400
    committed = 0
    receiver = Receiver()

    async def agent() -> None:
        nonlocal committed
        sent = 0
        while committed < total:
            with contextlib.suppress(asyncio.QueueEmpty):
                while True:
                    news = setup.told.get_nowait()
                    committed = max(committed, news.sequence)
                    sent = committed if news.resend else max(sent, committed)
            try:
                if sent < total and sent - committed < 50:
                    await setup.send(sent + 1)
                    sent += 1
                else:
                    async with asyncio.timeout(0.5):
                        setup.told.put_nowait(await setup.told.get())
            except (JetStreamError, TimeoutError, OSError):
                with contextlib.suppress(Exception):
                    committed = max(committed, (await setup.position()).sequence)
                    sent = committed

    async with setup.receiving(receiver):
        sending = asyncio.create_task(agent())
        for _ in range(4):
            await asyncio.sleep(chance.random() * 0.5)
            await nats.kill()
            if chance.random() < 0.5:
                await nats.wipe()
            await nats.start()
        async with asyncio.timeout(SECONDS_MAX):
            await sending
    assert receiver.bodies == numbers(*range(1, total + 1))
    assert [report.sequence for report in receiver.reports] == list(range(1, total + 1))
