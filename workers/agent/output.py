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
LINES_PER_REPORT_MAX = 500
LINE_SHOWN_MAX = 500
"""Most characters of a matched line in the record."""
Texts = dict[Literal["stdout", "stderr"], tuple[str, ...]]


def log_texts(output: Output, hide: Mask) -> Texts:
    """The lines of an output, ready to be stored and shown."""
    return {"stdout": _texts(output.stdout, hide), "stderr": _texts(output.stderr, hide)}


def _texts(lines: Iterable[str], hide: Mask) -> tuple[str, ...]:
    """Lines without secrets. Masking comes first: a line that was cut before could keep a part of a secret."""
    return tuple(storable(hide(line))[:LINE_CHARACTERS_MAX] for line in lines)


@dataclass(frozen=True)
class RankOutput:
    reports: list[LogsReport]
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
) -> RankOutput:
    """New output of the gang's ranks on this agent."""
    found = RankOutput([], {})
    for rank in ranks_on(assignment, agent_id):
        before = offsets.get(rank, (0, 0))
        output = await runtime.output(assignment.allocation_id, rank, before, final=final, cut=hide.cut)
        if output.offsets != before:
            texts = log_texts(output, hide)
            found.reports.extend(log_reports(assignment.trial_id, assignment.allocation_id, rank, time_us, texts))
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
