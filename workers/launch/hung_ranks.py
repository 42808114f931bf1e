"""Hung ranks and stragglers, judged from the progress of all ranks. Pure: numbers in, sentences out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from tenuto.workers.launch.gang_errors import who
from tenuto.workers.launch.layout import GangPart
from tenuto.workers.launch.process_clock import ObserverClock
from tenuto.workers.launch.progress import COMPUTING, OUTSIDE, PHASES, WAITING, RankProgress

DEADLINE_SECONDS_MIN = 10.0
"""Shortest deadline: a step may be delayed by a slow disk or a busy machine."""
DEADLINE_STEPS = 20.0
"""Learnt deadline, in multiples of the longest step so far."""
HUNG_LOOKS = 3
"""Number of checks in a row, each with new numbers of the rank's own, after which it counts as hung: one odd check ends
no rank."""
FIRST_STEPS = 3
"""First steps, which compile, read ahead and warm up: until as many are done, only the configured deadline applies."""
STRAGGLER_FACTOR = 1.5
"""Own time per step, relative to the median of all ranks, above which a rank is slow."""
STRAGGLER_LOOKS = 10
"""Number of checks in a row before a straggler is reported: 5 s, because the supervisor checks twice a second."""
STRAGGLER_STEPS = 20
"""Steps before the times of ranks are compared: the first ones load and warm up."""
STRAGGLER_SECONDS_MIN = 0.005
"""Steps shorter than this are never reported as slow: there is nothing to gain."""


@dataclass(frozen=True)
class SlowestRank:
    rank: int
    agent_id: str
    own_seconds: float
    """Own time of the rank per step."""
    usual_seconds: float
    """Median of the own times of the other ranks."""
    sentence: str


class Ages:
    """Time of each local rank in its phase, without time in which this process was stopped: the ranks may have been stopped,
    too."""

    def __init__(self, pause_seconds_max: float, now: float) -> None:
        self._clock = ObserverClock(pause_seconds_max, now)
        self._first: dict[int, tuple[RankProgress, float]] = {}
        """Last record of each rank, with this process's lag before it was first seen."""

    def look(self, ranks: Mapping[int, RankProgress], now: float) -> dict[int, list[float]]:
        """Values for `Watch.note`. `now`: monotonic seconds."""
        before = self._clock.lag_seconds
        self._clock.tick(now)
        ages: dict[int, list[float]] = {}
        for rank, item in ranks.items():
            if rank not in self._first or self._first[rank][0] != item:
                self._first[rank] = item, before
            missed = self._clock.lag_seconds - self._first[rank][1]
            ages[rank] = [item.steps, item.phase, max(0.0, now - item.since - missed), item.own_seconds, item.longest_seconds]
        return ages


class Watch:
    def __init__(self, part: GangPart) -> None:
        self._part = part
        self._ranks: dict[int, tuple[int, int, float, float, float]] = {}
        """steps, phase, seconds in it, own seconds per step, longest step"""
        self._notes: dict[int, int] = {}
        """Number of reports about each rank."""
        self._suspect: tuple[tuple[int, int, int], int] | None = None
        """(rank, steps, phase) of ranks that seem to hang, and the number of reports when they first did."""
        self._slow: dict[int, int] = {}
        self._told: set[int] = set()

    def note(self, ranks: Mapping[Any, Any]) -> None:
        for rank, (steps, phase, seconds, own, longest) in ranks.items():
            self._ranks[int(rank)] = (steps, phase, seconds, own, longest)
            self._notes[int(rank)] = self._notes.get(int(rank), 0) + 1

    def deadline_seconds(self) -> float:
        """Deadline learnt from the longest step of any rank, bounded by the configuration."""
        bound = self._part.progress_seconds_max
        if not self._ranks or min(steps for steps, *_ in self._ranks.values()) < FIRST_STEPS:
            return bound
        longest = max(longest for *_, longest in self._ranks.values())
        return min(bound, max(DEADLINE_SECONDS_MIN, DEADLINE_STEPS * longest))

    def hung(self) -> tuple[int, str] | None:
        """The rank that delays the others, and a sentence; once it was found several times in a row."""
        found = self._found_hung()
        if found is None:
            self._suspect = None
            return None
        rank = found[0]
        suspect = (rank, *self._ranks[rank][:2])
        if self._suspect is None or self._suspect[0] != suspect:
            self._suspect = suspect, self._notes[rank]
        return found if self._notes[rank] - self._suspect[1] >= HUNG_LOOKS - 1 else None

    def _found_hung(self) -> tuple[int, str] | None:
        """Finds a hung rank. A rank that computes a step has the learnt deadline. A rank between steps may validate, or wait
        for a slow store, and delays the others rightly: it has the configured deadline. Ranks that wait for others are not to
        blame, unless all wait."""
        if len(self._ranks) < self._part.world_size:
            return None
        deadline = self.deadline_seconds()
        blamed = [rank for rank, item in self._ranks.items() if item[1] == COMPUTING and item[2] > deadline]
        if not blamed and all(item[1] == WAITING and item[2] > deadline for item in self._ranks.values()):
            blamed = list(self._ranks)
        if not blamed:
            deadline = self._part.progress_seconds_max
            if any(item[1] != OUTSIDE and item[2] > deadline for item in self._ranks.values()):
                blamed = [rank for rank, item in self._ranks.items() if item[1] != WAITING] or list(self._ranks)
        if not blamed:
            return None
        rank = min(blamed, key=lambda number: (self._ranks[number][0], number))
        steps, phase, seconds, _, _ = self._ranks[rank]
        return rank, (
            f"{who(self._part, rank)} hangs: {PHASES[phase]} for {seconds:.0f} s after {steps} steps, and the deadline is "
            f"{deadline:.0f} s (distributed.progress_seconds_max bounds it)"
        )

    def stragglers(self) -> list[SlowestRank]:
        """Ranks that were slow for a while; each is reported once."""
        if len(self._ranks) < self._part.world_size or self._part.world_size < 2:
            return []
        own = {rank: item[3] for rank, item in self._ranks.items()}
        told = []
        for rank in sorted(own):
            usual = median(seconds for other, seconds in own.items() if other != rank)
            slow = self._warmed_up() and own[rank] > STRAGGLER_FACTOR * usual > 0 and own[rank] > STRAGGLER_SECONDS_MIN
            self._slow[rank] = self._slow.get(rank, 0) + 1 if slow else 0
            if self._slow[rank] >= STRAGGLER_LOOKS and rank not in self._told:
                self._told.add(rank)
                sentence = (
                    f"{who(self._part, rank)} is a straggler: {own[rank] / usual:.1f} times as slow as the others "
                    f"({1000 * own[rank]:.0f} ms against {1000 * usual:.0f} ms a step)"
                )
                told.append(SlowestRank(rank, self._part.agent_of(rank), own[rank], usual, sentence))
        return told

    def _warmed_up(self) -> bool:
        return min(steps for steps, *_ in self._ranks.values()) >= STRAGGLER_STEPS
