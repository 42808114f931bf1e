"""Output of a run's workers as reports: their lines, without secrets, and matches of log policies."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from tenuto.schemas.assignments import Assignment
from tenuto.schemas.config.log_policies import LINE_CHARACTERS_MAX as MATCHED_CHARACTERS_MAX
from tenuto.schemas.config.log_policies import PatternError, matcher
from tenuto.schemas.reports import LogLine, LogMatchReport, LogsReport
from tenuto.schemas.text import storable
from tenuto.workers.agent.local_ranks import ranks_on
from tenuto.workers.agent.runtimes.runtime import Offsets, Output, Runtime
from tenuto.workers.agent.secret_masks import NO_MASK, Mask

logger = logging.getLogger(__name__)

LINE_CHARACTERS_MAX = 8_000
CUT = " [cut here: {} more characters]"
"""End of a line that was longer."""
LOG_BYTES_MAX = 64 << 20
"""Most bytes of output that are kept of one start of a worker: of each rank, of stdout and of stderr, so that a rank that floods
stdout keeps its errors. A line of a hundred bytes a second fills it in a week; kept lines go into a database that all users
share."""
BAR_SECONDS = 1.0
"""Shortest time between two reports of a progress bar that goes on."""
LINES_PER_REPORT_MAX = 500
LINE_SHOWN_MAX = 500
"""Most characters of a matched line in the record."""
STREAMS = ("stdout", "stderr")
FULL = (
    f"The log ends here: this start of the trial has printed {LOG_BYTES_MAX >> 20} MiB to {{}}, the most that is kept. "
    "The trial goes on; print less, or write to a file of your own."
)
Texts = dict[Literal["stdout", "stderr"], tuple[str, ...]]


def log_texts(output: Output, hide: Mask) -> Texts:
    """The lines of an output, ready to be stored and shown."""
    return {"stdout": _texts(output.stdout, hide), "stderr": _texts(output.stderr, hide)}


def _texts(lines: Iterable[str], hide: Mask) -> tuple[str, ...]:
    """Lines without secrets. Masking comes first: a line that was cut before could keep a part of a secret."""
    return tuple(shortened(storable(hide(line))) for line in lines)


def shortened(line: str) -> str:
    """The line, cut with a mark where it is longer than LINE_CHARACTERS_MAX."""
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    kept = LINE_CHARACTERS_MAX - len(CUT.format(len(line) - LINE_CHARACTERS_MAX))
    kept = LINE_CHARACTERS_MAX - len(CUT.format(len(line) - kept))  # the number may have a digit more
    return line[:kept] + CUT.format(len(line) - kept)


def kept_reports(reports: list[LogsReport], before: Offsets, after: Offsets) -> list[LogsReport]:
    """Reports to keep, of those about output between these offsets. Of each of stdout and stderr, output beyond LOG_BYTES_MAX is
    dropped, and one line says so."""
    if max(before) < LOG_BYTES_MAX:
        full: set[str] = set()
    else:
        full = {stream for stream, offset in zip(STREAMS, before, strict=True) if offset >= LOG_BYTES_MAX}
    found = []
    for report in reports:
        lines = tuple(line for line in report.lines if line.stream not in full)
        if lines:
            found.append(report if len(lines) == len(report.lines) else report.model_copy(update={"lines": lines}))
    for stream, one, other in zip(STREAMS, before, after, strict=True):
        if one < LOG_BYTES_MAX <= other and reports:
            last = reports[-1].lines[-1]
            line = LogLine(time_us=last.time_us, rank=last.rank, stream="tenuto", text=FULL.format(stream))
            found.append(reports[-1].model_copy(update={"lines": (line,)}))
    return found


class Bars:
    """Times at which progress bars of a run were last reported, by rank and stream. Kept by the reader of its output."""

    def __init__(self) -> None:
        self._told_us: dict[tuple[int | None, str], int] = {}

    def hold(self, output: Output, rank: int | None, before: Offsets, now_us: int) -> Output:
        """The output without bars that were reported less than BAR_SECONDS ago: those are read again later."""
        texts, offsets = [output.stdout, output.stderr], list(output.offsets)
        for index, stream in enumerate(STREAMS):
            if output.bars[index] and now_us - self._told_us.get((rank, stream), 0) < BAR_SECONDS * 1e6:
                texts[index], offsets[index] = (), before[index]
            elif output.bars[index]:
                self._told_us[rank, stream] = now_us
        return Output(texts[0], texts[1], (offsets[0], offsets[1]))


@dataclass(frozen=True)
class RankOutput:
    reports: list[LogsReport]
    """All output."""
    kept: list[LogsReport]
    """Part of the output that is kept (`kept_reports`)."""
    offsets: dict[int, Offsets]
    """Offsets to go on from, of the ranks that printed something."""


async def read_ranks(
    runtime: Runtime,
    assignment: Assignment,
    agent_id: str,
    offsets: Mapping[int, Offsets],
    time_us: int,
    *,
    final: bool,
    hide: Mask = NO_MASK,
    bars: Bars,
) -> RankOutput:
    """New output of the gang's ranks on this agent."""
    found = RankOutput([], [], {})
    for rank in ranks_on(assignment, agent_id):
        before = offsets.get(rank, (0, 0))
        output = await runtime.output(assignment.allocation_id, rank, before, final=final, cut=hide.cut)
        output = bars.hold(output, rank, before, time_us)
        if output.offsets != before:
            texts = log_texts(output, hide)
            reports = log_reports(assignment.trial_id, assignment.allocation_id, rank, time_us, texts)
            found.reports.extend(reports)
            found.kept.extend(kept_reports(reports, before, output.offsets))
            found.offsets[rank] = output.offsets
    return found


class Matcher:
    """Searches a run's output for the patterns of its experiment's log policies. Each pattern is reported once."""

    def __init__(self, assignment: Assignment, agent_id: str) -> None:
        self._assignment, self._agent_id = assignment, agent_id
        self._open = []
        for policy in assignment.config.log_policies:
            try:
                self._open.append((matcher(policy.pattern), policy))
            except PatternError as error:  # submitted to an earlier version, which accepted it
                logger.warning("trial %s: the pattern %r is not used: %s", assignment.trial_id, policy.pattern, error)

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


def log_reports(trial_id: str, allocation_id: str, rank: int, time_us: int, texts: Texts) -> list[LogsReport]:
    lines = [LogLine(time_us=time_us, rank=rank, stream=stream, text=text) for stream, found in texts.items() for text in found]
    return [
        LogsReport(trial_id=trial_id, allocation_id=allocation_id, lines=tuple(lines[start : start + LINES_PER_REPORT_MAX]))
        for start in range(0, len(lines), LINES_PER_REPORT_MAX)
    ]
