"""What the scheduler answers when it is asked for the queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import JsonScalar, Model


def expected_when(trial: str) -> str:
    """The end of a sentence that says whose end a gang waits for; where the time is shown, it goes into it."""
    return f"; expected when trial {trial} ends"


class QueueRow(Model):
    """An experiment that holds slots of a pool or waits for some."""

    position: int = 0
    """1 is served first."""
    experiment_id: int
    pool: str
    priority: int
    place: float
    """Smaller is earlier among those of its priority."""
    weight: float
    workspace: str
    user: str
    max_slots: int | None
    slots_per_trial: int
    slots: int
    """That it holds in this pool, without those that are being freed."""
    slots_leaving: int = 0
    """That its workers still have and are leaving."""
    auxiliary_trials: int = 0
    """Its trials without slots that run in this pool."""
    share: int | None
    """Its fair share in slots, where the pool shares fairly."""
    trials_waiting: int
    trials_leaving: int = 0
    """Its trials here whose workers are leaving and that wait for slots again as soon as they have."""
    rule: str
    """Why its next trial waits, as a word for programs; empty if none waits or leaves to wait."""
    text: str
    """Why its next trial waits, as a sentence."""
    expected_us: int | None
    """When it is expected to start, where the ends of running trials are known."""
    expected_trial: str = ""
    """The trial whose end lets it start then. The sentence names it."""
    numbers: dict[str, JsonScalar | tuple[int | str, ...]]
    """What the decision compared: the fields of the rule's class in `schemas/sentences/waiting.py`."""


class PoolQueue(Model):
    pool: str
    policy: Literal["priority", "fair_share", "fifo"]
    usage_half_life_hours: float | None
    capacity: int
    """Slots that may be used, busy or free."""
    free: int
    leaving: int
    """Slots that are being freed."""
    agents: int
    waiting: int
    """Experiments with trials that wait for slots, or for an agent, shown or not."""
    auxiliary_trials: int = 0
    """Trials without slots that run."""
    rows: tuple[QueueRow, ...]


class QueueQuestion(Model):
    pool: str | None = None
    """None: all pools."""
    rows_max: int = Field(default=1_000, ge=1, le=1_000)


class ShareRow(Model):
    """Of a workspace or a user, in all pools."""

    owner: Literal["workspace", "user"]
    name: str
    weight: float
    """Relative to others, in pools that share fairly."""
    max_slots: int | None
    """Its quota. None: none was set."""
    slots: int
    """That its experiments use now."""


class QueueAnswer(Model):
    pools: tuple[PoolQueue, ...]
    shares: tuple[ShareRow, ...] = ()
    error: str = ""
