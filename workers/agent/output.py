"""Reads what a run's processes print, from files that they write whether an agent is there or not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.log_policies import LINE_CHARACTERS_MAX as MATCHED_CHARACTERS_MAX
from tenuto.schemas.config.log_policies import PatternError, matcher
from tenuto.schemas.reports import LogLine, LogMatchReport, LogsReport
from tenuto.schemas.text import storable
from tenuto.workers.agent.foreign import open_foreign
from tenuto.workers.agent.hiding import Hide, nothing
from tenuto.workers.agent.processes import RunFiles
from tenuto.workers.agent.reconcile import ranks_on

logger = logging.getLogger(__name__)

READ_BYTES_MAX = 256 * 1024
"""Per look: bounds memory and the size of a report for a worker that prints without end."""
LINE_CHARACTERS_MAX = 8_000
LINES_PER_REPORT_MAX = 500
LINE_SHOWN_MAX = 500
"""Of a matched line, in the record."""


@dataclass(frozen=True)
class Chunk:
    texts: tuple[str, ...]
    offset: int
    """Where to go on."""


def read_lines(path: Path, offset: int, *, final: bool, owner: int | None = None, hide: Hide = nothing) -> Chunk:
    """Complete lines from `offset` on; an unfinished last line only if it is `final` or too long. A carriage return ends a line
    too: that is how progress bars print. `hide`: secrets, before anything else sees the lines."""
    try:
        with open_foreign(path, owner) as file:
            file.seek(offset)
            data = file.read(READ_BYTES_MAX)
    except OSError:
        return Chunk((), offset)
    full = len(data) == READ_BYTES_MAX
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    if (final and not full) or (full and end == 0):
        end = len(data)
    lines = data[:end].replace(b"\r", b"\n").split(b"\n")
    texts = tuple(storable(hide(line.decode(errors="replace")))[:LINE_CHARACTERS_MAX] for line in lines if line)
    return Chunk(texts, offset + end)


Offsets = tuple[int, int]
"""Of standard output and standard error."""


@dataclass(frozen=True)
class RankOutput:
    reports: list[LogsReport]
    offsets: dict[int, Offsets]
    """Of the ranks that printed something, where to go on."""


def read_ranks(
    assignment: Assignment,
    agent_id: str,
    files: RunFiles,
    offsets: Mapping[int, Offsets],
    time_us: int,
    *,
    final: bool,
    hide: Hide = nothing,
) -> RankOutput:
    """What the ranks of a gang on this agent have printed since."""
    found = RankOutput([], {})
    for rank in ranks_on(assignment, agent_id):
        own, (out_offset, err_offset) = files.of_rank(rank), offsets.get(rank, (0, 0))
        out = read_lines(own.stdout, out_offset, final=final, owner=own.owner, hide=hide)
        err = read_lines(own.stderr, err_offset, final=final, owner=own.owner, hide=hide)
        if (out.offset, err.offset) != (out_offset, err_offset):
            texts: dict[Literal["stdout", "stderr"], tuple[str, ...]] = {"stdout": out.texts, "stderr": err.texts}
            found.reports.extend(log_reports(assignment.trial_id, assignment.allocation_id, rank, time_us, texts))
            found.offsets[rank] = (out.offset, err.offset)
    return found


class Matcher:
    """Looks for the patterns of an experiment's log policies in what a run prints. Each is reported once."""

    def __init__(self, assignment: Assignment, agent_id: str) -> None:
        self._assignment, self._agent_id = assignment, agent_id
        self._open = []
        for policy in assignment.config.log_policies:
            try:
                self._open.append((matcher(policy.pattern), policy))
            except PatternError as error:  # submitted to an earlier version, which took it
                logger.warning("trial %s: the pattern %r is not looked for: %s", assignment.trial_id, policy.pattern, error)

    def found(self, reports: Iterable[LogsReport]) -> list[LogMatchReport]:
        matches: list[LogMatchReport] = []
        for text in (line.text[:MATCHED_CHARACTERS_MAX] for report in reports for line in report.lines) if self._open else ():
            for entry in [entry for entry in self._open if entry[0].search(text)]:
                self._open.remove(entry)
                matches.append(
                    LogMatchReport(
                        trial_id=self._assignment.trial_id,
                        allocation_id=self._assignment.allocation_id,
                        agent_id=self._agent_id,
                        pattern=entry[1].pattern,
                        action=entry[1].action,
                        line=text[:LINE_SHOWN_MAX],
                    )
                )
        return matches


def log_reports(
    trial_id: str, allocation_id: str, rank: int, time_us: int, texts: dict[Literal["stdout", "stderr"], tuple[str, ...]]
) -> list[LogsReport]:
    lines = [LogLine(time_us=time_us, rank=rank, stream=stream, text=text) for stream, found in texts.items() for text in found]
    return [
        LogsReport(trial_id=trial_id, allocation_id=allocation_id, lines=tuple(lines[start : start + LINES_PER_REPORT_MAX]))
        for start in range(0, len(lines), LINES_PER_REPORT_MAX)
    ]
