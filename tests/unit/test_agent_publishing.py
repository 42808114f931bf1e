"""A lane's handling of late and crossing messages about commits, on a real spool."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.aio.client import Client

from tenuto.schemas.reports import Committed
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.database import Disk, open_database, transaction
from tenuto.workers.agent.publishing import LanePublisher
from tenuto.workers.agent.spool import NewReport, Spool

LANE: Any = "tracker"


class Bus:
    """Answers a question about the position as the test says."""

    answer: Callable[[], Awaitable[Committed]]

    def jetstream(self, timeout: float) -> Any:
        return self

    async def request(self, subject: str, timeout: float, headers: dict[str, str]) -> Any:
        return SimpleNamespace(data=(await self.answer()).to_json())


class Lane:
    def __init__(self, path: Path) -> None:
        self.bus, self.disk, names = Bus(), Disk(), itertools.count(1)
        self.spool = Spool(open_database(path), "spool-0")
        self.publisher = LanePublisher(
            LANE, "a", cast(Client, self.bus), self.spool, self.disk, Changed(), Changed(), lambda: f"spool-{next(names)}"
        )
        self.spool.append(*(NewReport(LANE, "progress", "1-1-1", str(number).encode()) for number in range(10)))

    async def hears(self, sequence: int, spool_id: str = "spool-0") -> None:
        await self.publisher._on_committed(cast(Any, SimpleNamespace(data=self.word(sequence, spool_id).to_json())))

    @staticmethod
    def word(sequence: int, spool_id: str = "spool-0") -> Committed:
        return Committed(spool_id=spool_id, sequence=sequence)

    def left(self) -> list[bytes]:
        return [report.body for report in self.spool.pending(LANE, 0, 100)]


@pytest.fixture
async def lane(tmp_path: Path) -> AsyncIterator[Lane]:
    found = Lane(tmp_path / "agent.sqlite")
    yield found
    found.disk.close()


async def test_an_answer_that_a_newer_word_overtook_is_no_forgetting(lane: Lane) -> None:
    async def late() -> Committed:
        await lane.hears(7)
        return lane.word(4)

    await lane.hears(3)
    lane.bus.answer = late
    await lane.publisher._ask()
    assert lane.spool.id == "spool-0"
    assert len(lane.left()) == 3


async def test_a_receiver_that_says_less_than_it_had_committed_has_forgotten(lane: Lane) -> None:
    async def less() -> Committed:
        return lane.word(2)

    await lane.hears(3)
    lane.bus.answer = less
    await lane.publisher._ask()
    assert lane.spool.id == "spool-1"
    assert len(lane.left()) == 7


async def test_a_word_about_the_spool_before_drops_nothing_of_the_one_that_began_again(lane: Lane) -> None:
    real = lane.publisher._disk

    async def crossed(function: Any, *arguments: Any) -> Any:
        if function == lane.spool.commit:
            lane.spool.begin_again("spool-9")  # another lane did, between the word and its effect
        return await real(function, *arguments)

    lane.publisher._disk = cast(Disk, crossed)
    await lane.hears(6)
    assert len(lane.left()) == 10
    state = lane.publisher._state
    assert state.sent == state.heard == 0, "else it would wait for numbers that are never given again"


def test_a_commit_that_a_power_failure_may_undo_leaves_the_next_one_safe(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "agent.sqlite")

    def level() -> int:
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    full = level()
    with transaction(connection, power_safe=False):
        assert level() < full
    assert level() == full
    with contextlib.suppress(ZeroDivisionError), transaction(connection, power_safe=False):
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
        raise ZeroDivisionError
    assert level() == full
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM meta").fetchone() == (0,)
    connection.close()
