"""Reads the log lines of workers, all or those that are searched for, within bounds of number and of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenuto.services.gateway.read_models.rows import Fetching, Rows
from tenuto.services.gateway.trials.views import LogLineView

LINES_SEARCHED_MAX = 10_000
"""Most lines that one request looks at: some ten milliseconds, and some hundred if each line is as long as lines get."""
Level = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = (("DEBUG",), ("INFO",), ("WARN", "WARNING"), ("ERROR",), ("CRITICAL", "FATAL"))
_LEVEL_OF = r"substring(left(text, 100) FROM '\m(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\M')"
"""Level of a line, which most programs write in capitals at its beginning; other lines have none."""
_LINE = "line, experiment_id || '-' || trial_number AS trial_id, allocation_id, rank, stream, time_us, text"
_OF = "experiment_id = $1 AND ($2::int IS NULL OR trial_number = $2) AND line > $3"


@dataclass(frozen=True, kw_only=True)
class LineSearch:
    """Conditions of a search for log lines; None: any."""

    text: str | None = None
    """A part of the line, in small or large letters."""
    rank: int | None = None
    level: Level | None = None
    """Least level; lines without a known level are left out. None: all lines."""

    def __bool__(self) -> bool:
        return self != LineSearch()

    @property
    def levels(self) -> list[str] | None:
        names = ("debug", "info", "warning", "error", "critical")
        return None if self.level is None else [word for words in _LEVELS[names.index(self.level) :] for word in words]


class LogLines(Fetching):
    async def lines(
        self,
        experiment_id: int,
        trial_number: int | None,
        after: int,
        limit: int,
        tail: bool = False,
        search: LineSearch | None = None,
    ) -> Rows[LogLineView]:
        """Lines in the order of arrival; with `tail` the last ones."""
        if search:
            return await self._found(experiment_id, trial_number, after, limit, tail, search)
        rows, more = await self._many(
            limit,
            f"SELECT {_LINE} FROM trial_logs WHERE {_OF} ORDER BY line {'DESC' if tail else ''} LIMIT $4",
            experiment_id,
            trial_number,
            after,
            limit,
        )
        last = rows[-1]["line"] if rows and not tail else None
        return Rows(rows[::-1] if tail else rows, lambda row: LogLineView(**row), more, last)

    async def last_lines(self, experiment_id: int, trial_number: int | None, count: int) -> Rows[LogLineView]:
        return await self.lines(experiment_id, trial_number, -1, count, tail=True)

    async def _found(
        self, experiment_id: int, trial_number: int | None, after: int, limit: int, tail: bool, search: LineSearch
    ) -> Rows[LogLineView]:
        """Lines found among the next LINES_SEARCHED_MAX; if there are more, `next` is the last of these."""
        down, of = ("DESC" if tail else ""), (experiment_id, trial_number, after)
        rows = await self._rows(
            f"""SELECT {_LINE} FROM (SELECT * FROM trial_logs WHERE {_OF} ORDER BY line {down} LIMIT {LINES_SEARCHED_MAX}) looked
                WHERE ($5::text IS NULL OR strpos(lower(text), lower($5)) > 0) AND ($6::int IS NULL OR rank = $6)
                    AND ($7::text[] IS NULL OR {_LEVEL_OF} = ANY($7)) ORDER BY line {down} LIMIT $4""",
            *of,
            limit,
            search.text,
            search.rank,
            search.levels,
        )
        last = rows[-1]["line"] if len(rows) == limit else None
        if last is None:
            beyond = await self._rows(
                f"SELECT line FROM trial_logs WHERE {_OF} ORDER BY line {down} OFFSET {LINES_SEARCHED_MAX - 1} LIMIT 1", *of
            )
            last = beyond[0]["line"] if beyond else None
        more = last is not None
        return Rows(rows[::-1] if tail else rows, lambda row: LogLineView(**row), more, None if tail else last)
