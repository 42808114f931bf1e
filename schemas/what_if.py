"""Question and answer: the course of recorded trials under another policy of their pool, or with more slots."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.request import PolicyName
from tenuto.schemas.names import NAME_PATTERN


class WhatIfQuestion(Model):
    pool: str = Field(pattern=NAME_PATTERN)
    policy: PolicyName | None = None
    """None: the policies that were recorded."""
    agents: int = Field(default=0, ge=0, le=100)
    """Agents that the pool has beyond those that were recorded, from the beginning."""
    slots: int = Field(default=8, ge=1, le=64)
    """Slots of each of these."""
    trials: int = Field(default=500, ge=1, le=2_000)
    """Most trials that are run again: the newest that ended."""
    upto: int | None = Field(default=None, ge=1, le=2**62)
    """Position of the log up to which it is read. None: its end."""


class UserFigures(Model):
    user: str
    trials: int
    wait_mean_seconds: float
    slot_hours: float


class Figures(Model):
    """Figures of the trials that started in the pool."""

    trials: int
    unfinished: int = 0
    """Trials that did not end: a simulation stops when nothing more can happen."""
    wait_mean_seconds: float
    """Mean time from the search's request of a trial to its first grant; the other waits are measured alike."""
    wait_p95_seconds: float
    wait_longest_seconds: float
    used: float
    """Part of the pool's slots in service that these trials held, from the first arrival to the last end."""
    slot_hours: float
    """Held by them."""
    preemptions: int
    resizes: int
    took_seconds: float
    """Time from the first arrival to the last end."""
    users: tuple[UserFigures, ...]
    """The first by name."""


class Course(Model):
    """One course of events."""

    name: Literal["recorded", "simulated", "changed"]
    """recorded: what happened. simulated: the same by the simulator, with the policies of the record; what it does otherwise than
    the record is the simulator's error. changed: with what was asked for."""
    figures: Figures
    end_us: int
    segments: tuple[tuple[int, int, int, int, int], ...]
    """(index of the agent, slot, from, until, experiment) of each slot in use; experiment 0: not for the asker to see."""
    more: int = 0
    """Number of segments that are left out, the latest."""


class WhatIfAnswer(Model):
    pool: str = ""
    policy: str = ""
    """Policy of the changed course at its end."""
    position: int = 0
    """Position of the log up to which it was read."""
    start_us: int = 0
    """First arrival of a trial."""
    agents: tuple[str, ...] = ()
    courses: tuple[Course, ...] = ()
    left_out: int = 0
    """Number of trials that ran and are left out: older ones, and those that had not ended."""
    code: Literal["", "not_found", "conflict", "unavailable"] = ""
    """Kind of refusal. Empty: none."""
    error: str = ""
