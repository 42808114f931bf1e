"""Costs and progress of a simulated trial, and figures of a whole simulation."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenuto.schemas.events import EventData
from tenuto.services.scheduler.simulation.script import TrialScript


@dataclass(frozen=True)
class Costs:
    startup_us: int = 20_000_000
    """Time from the grant until workers train."""
    save_us: int = 10_000_000
    """Time that a preempted trial needs to save a checkpoint and leave."""
    checkpoint_us: int = 600_000_000
    """Longest time between checkpoints of a trial: a failure loses no more."""
    failures_us: int = 0
    """Mean time between failures of one agent; 0: none fail."""
    repair_us: int = 600_000_000


@dataclass
class SimulatedTrial:
    script: TrialScript
    slots: int
    """Number of slots that it needs to start; 0: it takes none."""
    user: str
    done_us: int = 0
    """Time of its work that is done, as measured on `slots`. An elastic trial is taken to be faster in proportion to its
    slots."""
    running: int = 0
    """Slots of its workers."""
    most: int = 0
    """Largest number of slots that it can use."""
    granted_us: int = 0
    first_us: int | None = None
    """Time of its first grant; None if it had none yet."""
    ended_us: int | None = None
    allocation_id: str = ""


@dataclass
class SimulationOutcome:
    """Outcome of a simulation. Times in microseconds, use in slot-microseconds."""

    policy: str
    events: int = 0
    start_us: int = 0
    end_us: int = 0
    capacity: int = 0
    offered: int = 0
    """Slot-time that agents offered until the last trial ended."""
    useful: int = 0
    """Slot-time of training that counted."""
    held: int = 0
    usable: int = 0
    """Slot-time that the trials which had arrived and not ended could have held: what they wanted, at most what was offered."""
    preemptions: int = 0
    resizes: int = 0
    lost: int = 0
    """Slot-time spent for interruptions: starting again, saving, and training that a failure undid."""
    waits_us: list[int] = field(default_factory=list)
    """Wait of each trial that takes slots, from its arrival to its first grant."""
    satisfied: dict[str, float] = field(default_factory=dict)
    """User -> slot-time held, as a part of its max-min share of the slots while it wanted any."""
    unfinished: int = 0
    bound: float = 0.0
    """Best utilisation that any schedule could have, knowing all in advance (see `utilisation_bound`)."""
    history: list[tuple[int, EventData]] = field(default_factory=list)
    """The scheduler's decisions with their times, if they were asked for."""

    @property
    def utilisation(self) -> float:
        return self.useful / self.offered if self.offered else 0.0

    @property
    def busy(self) -> float:
        """Part of `usable` that was held. Unlike `utilisation` it says nothing about how the last trials to end lie in time."""
        return self.held / self.usable if self.usable else 1.0

    @property
    def jain(self) -> float:
        """Jain's index of `satisfied` (Jain, Chiu and Hawe, 1984): 1 where all users are served alike, 1/n where one has all."""
        values = list(self.satisfied.values())
        squares = sum(value * value for value in values)
        return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
