"""What is kept of the log of a trial that starts again and again."""

from __future__ import annotations

import pytest

from tenuto.schemas.reports import LogsReport
from tenuto.services.tracker.projections import logs
from tests.integration.test_tracker_service import World, line, world  # noqa: F401 - a fixture


async def test_the_log_of_a_trial_ends_once_over_all_its_starts(
    world: World,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever comes twice, and whichever trial a report is of."""
    monkeypatch.setattr(logs, "LOG_BYTES_MAX", 10 * (1 + logs.LINE_BYTES))

    def printed(start: int, *texts: str, trial: str = "1-1") -> LogsReport:
        return LogsReport(trial_id=trial, allocation_id=f"{trial}-{start}", lines=tuple(map(line, texts)))

    async def shown(trial: int = 1) -> list[str]:
        rows = await world.pool.fetch("SELECT text FROM trial_logs WHERE trial_number = $1 ORDER BY line", trial)
        return [row["text"] for row in rows]

    reports = [printed(1, *"abc"), printed(2, *"def"), printed(3, *"ghijk"), printed(4, "l"), printed(1, "m", trial="1-2")]
    await world.send("logs", *reports[:2])
    await world.pool.execute("DELETE FROM ingress_positions")  # as if it was killed between storing and noting
    await world.stop()
    await world.start()
    await world.send("logs", *reports, first=1)
    assert await shown() == [*"abcdefghi", logs.FULL]
    assert await shown(2) == ["m"]
    await world.send("logs", printed(5, *"nop"), printed(1, "q", trial="1-2"))
    assert await shown() == [*"abcdefghi", logs.FULL]
    assert await shown(2) == ["m", "q"]
