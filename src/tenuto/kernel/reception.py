"""Decisions about arriving reports: held, repeated, or behind a gap. Pure, so that its promises can be tested together with the
agent's.

Reports of a spool are taken in the order of their numbers: one that is committed or held already is a repetition; one that does
not follow the last is behind a gap. Held reports are committed in batches, in which the agents take turns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

M = TypeVar("M")
"""A message that carried a report."""
Spool = tuple[str, str]
"""Agent id and spool id."""
Verdict = Literal["held", "repeated", "gap"]


class Numbered(Protocol):
    @property
    def agent_id(self) -> str: ...
    @property
    def spool_id(self) -> str: ...
    @property
    def sequence(self) -> int: ...
    @property
    def body(self) -> bytes: ...


R = TypeVar("R", bound=Numbered)


@dataclass
class HeldReport(Generic[R, M]):
    report: R
    messages: list[M]
    """All messages that carried the report; they are acknowledged when it is committed."""


@dataclass
class _Known(Generic[R, M]):
    committed: int
    held: dict[int, HeldReport[R, M]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Last sequence number that is committed or held."""
        return self.committed + len(self.held)


class Reception(Generic[R, M]):
    """Not thread-safe. `known` must be asked before `take`: the caller looks up positions."""

    def __init__(self, spools_max: int) -> None:
        """`spools_max`: most spools without held reports that are remembered."""
        self._spools_max = spools_max
        self._spools: dict[Spool, _Known[R, M]] = {}
        self._queues: dict[str, deque[HeldReport[R, M]]] = {}
        """Held reports of each agent, in order of arrival. The first agent has the next turn."""

    def __len__(self) -> int:
        """Number of reports that are held and not chosen."""
        return sum(map(len, self._queues.values()))

    def known(self, spool: Spool) -> bool:
        return spool in self._spools

    def committed(self, spool: Spool) -> int:
        return self._spools[spool].committed

    def learn(self, spool: Spool, committed: int) -> None:
        """Position of a spool in the table. It may be beyond ours if another instance has received reports meanwhile."""
        known = self._spools.get(spool)
        if known is None:
            self._forget_some()
            self._spools[spool] = _Known(committed)
        # The held reports follow `committed` directly, so it must not change while there are any.
        elif not known.held:
            known.committed = max(known.committed, committed)

    def take(self, report: R, message: M) -> Verdict:
        spool = report.agent_id, report.spool_id
        known = self._spools[spool]
        if report.sequence <= known.committed:
            return "repeated"
        if (held := known.held.get(report.sequence)) is not None:
            held.messages.append(message)
            return "held"
        if report.sequence != known.end + 1:
            return "gap"
        held = known.held[report.sequence] = HeldReport(report, [message])
        self._queues.setdefault(report.agent_id, deque()).append(held)
        return "held"

    def choose(self, reports_max: int, bytes_max: int) -> list[HeldReport[R, M]]:
        """Next batch to commit: one report of each agent, then a second one of each, and so on; at least one report."""
        chosen: list[HeldReport[R, M]] = []
        size_bytes = 0
        while self._queues and len(chosen) < reports_max:
            agent_id, queue = next(iter(self._queues.items()))
            size_bytes += len(queue[0].report.body)
            if chosen and size_bytes > bytes_max:
                break
            chosen.append(queue.popleft())
            del self._queues[agent_id]
            if queue:
                self._queues[agent_id] = queue  # behind the others
        return chosen

    def commit(self, chosen: list[HeldReport[R, M]]) -> dict[Spool, int]:
        """Marks the reports as committed (or parked). Returns the new position of each of their spools."""
        moved: dict[Spool, int] = {}
        for item in chosen:
            spool = item.report.agent_id, item.report.spool_id
            known = self._spools[spool]
            del known.held[item.report.sequence]
            known.committed = item.report.sequence
            moved[spool] = known.committed
        return moved

    def _forget_some(self) -> None:
        if len(self._spools) < self._spools_max:
            return
        idle = [spool for spool, known in self._spools.items() if not known.held]
        for spool in idle[: max(len(idle) // 2, 1)]:
            del self._spools[spool]
