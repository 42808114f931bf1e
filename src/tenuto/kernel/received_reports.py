"""Reports as a receiver gets them, and the error by which it says that some can never be received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from tenuto.kernel.report_tokens import ReportTokens
from tenuto.schemas.ids import name_id
from tenuto.schemas.subjects import Lane

R = TypeVar("R")


@dataclass(frozen=True)
class Report:
    lane: Lane
    agent_id: str
    spool_id: str
    sequence: int
    kind: str
    body: bytes
    trace: str = ""
    round: int = 0
    token: str = ""
    """Token of the report's allocation, for the receiver to verify."""
    token_digest: bytes | None = None
    """Digest of the token, instead of the token itself, for a parked report that is tried again."""

    @property
    def id(self) -> UUID:
        """Id of the command made from the report: the same report, however often it arrives, is the same command."""
        return name_id(self.agent_id, self.spool_id, self.lane, str(self.sequence))


class Poison(Exception):
    """This report, and the `others` of its batch, can never be received. They are parked, and reports behind them go on."""

    def __init__(self, report: Report, reason: str, others: Sequence[Poison] = ()) -> None:
        super().__init__(reason)
        self.report, self.reason, self.others = report, reason, tuple(others)


def all_poison(poisons: Sequence[Poison]) -> Poison:
    """One Poison for all of them."""
    first, *others = poisons
    return Poison(first.report, first.reason, others)


def read_all(reports: Sequence[Report], read: Callable[[Report], R]) -> list[R]:
    """Content of each report. Raises one Poison for all reports that `read` raises it for, so that the good ones among them
    are read twice at most, and not once for each bad one."""
    found, poisons = list[R](), list[Poison]()
    for report in reports:
        try:
            found.append(read(report))
        except Poison as poison:
            poisons.append(poison)
    if poisons:
        raise all_poison(poisons)
    return found


def demand_token(tokens: ReportTokens, report: Report, allocation_id: str) -> None:
    """Raises Poison if the report's allocation was not assigned to its sender."""
    if report.token_digest is not None:
        fits = tokens.fits_digest(report.token_digest, report.agent_id, allocation_id)
    else:
        fits = tokens.fits(report.token, report.agent_id, allocation_id)
    if not fits:
        raise Poison(report, f"agent {report.agent_id} does not show that allocation {allocation_id} was assigned to it")


Receive = Callable[[Sequence[Report]], Awaitable[None]]
"""Receiver of reports; returns when all of them are committed. Raises Poison to have some parked: it is called again with the
others. LogUnavailable and other losses of the database are retried; any other error counts as a defect, and the report that
causes it is parked."""
