"""What a receiver of reports is given, and how it says which of them can never be received."""

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
    """Of the allocation that it is about, for the receiver to judge."""
    token_digest: bytes | None = None
    """In place of the token, of a report that was parked and is tried again."""

    @property
    def id(self) -> UUID:
        """Of the command made from it: the same report, however often it comes, is the same command."""
        return name_id(self.agent_id, self.spool_id, self.lane, str(self.sequence))


class Poison(Exception):
    """This report can never be received, nor can the `others` of its batch. They are parked, and what is behind them goes on."""

    def __init__(self, report: Report, reason: str, others: Sequence[Poison] = ()) -> None:
        super().__init__(reason)
        self.report, self.reason, self.others = report, reason, tuple(others)


def all_poison(poisons: Sequence[Poison]) -> Poison:
    """One for all of them."""
    first, *others = poisons
    return Poison(first.report, first.reason, others)


def read_all(reports: Sequence[Report], read: Callable[[Report], R]) -> list[R]:
    """What each of them says. Raises one Poison for all that `read` raises it for: what is good among bad ones is so read twice,
    and not once for each of them."""
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
    """Raises Poison where the report is about an allocation that its sender was not assigned."""
    if report.token_digest is not None:
        fits = tokens.fits_digest(report.token_digest, report.agent_id, allocation_id)
    else:
        fits = tokens.fits(report.token, report.agent_id, allocation_id)
    if not fits:
        raise Poison(report, f"agent {report.agent_id} does not show that allocation {allocation_id} was assigned to it")


Receive = Callable[[Sequence[Report]], Awaitable[None]]
"""Returns when all the reports are committed. Raises Poison to park some of them: then it gets the others again. LogUnavailable
and other losses of the database are tried again; any other error counts as a defect, and the report that causes it is parked."""
