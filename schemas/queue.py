"""The scheduler's answer to a question about its queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import JsonScalar, Model


def expected_when(trial: str) -> str:
    """Clause about the trial whose end a gang waits for; it ends a sentence, and the expected time is inserted into it where
    times are shown."""
    return f"; expected when trial {trial} ends"


class QueueRow(Model):
    """One experiment that holds slots of a pool or waits for some."""

    position: int = 0
    """Position in the queue; 1 is served first."""
    experiment_id: int
    pool: str
    priority: int
    place: float
    """Order among experiments of the same priority; smaller is earlier."""
    weight: float
    workspace: str
    user: str
    max_slots: int | None
    slots_per_trial: int
    slots: int
    """Slots of this pool that the experiment holds, without those that are being freed."""
    slots_leaving: int = 0
    """Slots that the experiment's workers still occupy while they leave."""
    auxiliary_trials: int = 0
    """Trials of the experiment without slots that run in this pool."""
    share: int | None
    """Fair share of the experiment in slots. None: the pool does not share fairly."""
    trials_waiting: int
    trials_leaving: int = 0
    """Trials of the experiment in this pool whose workers are leaving, and that then wait for slots again."""
    rule: str
    """Name of the rule by which the next trial waits, for programs. Empty: no trial waits or is about to."""
    text: str
    """Reason why the next trial waits, as a sentence."""
    expected_us: int | None
    """Expected start of that trial, in microseconds since 1970. None: the ends of running trials are not known."""
    expected_trial: str = ""
    """Trial whose end frees the slots for that start; named in the sentence."""
    numbers: dict[str, JsonScalar | tuple[int | str, ...]]
    """Numbers that the decision compared: the fields of the rule's class in `schemas/sentences/waiting.py`."""


class PoolQueue(Model):
    pool: str
    policy: Literal["priority", "fair_share", "fifo"]
    usage_half_life_hours: float | None
    capacity: int
    """Usable slots of the pool, busy or free."""
    free: int
    leaving: int
    """Slots that are being freed."""
    agents: int
    waiting: int
    """Number of experiments with trials that wait for slots or for an agent, whether shown in `rows` or not."""
    auxiliary_trials: int = 0
    """Running trials without slots."""
    rows: tuple[QueueRow, ...]


POSITION_MAX = 10_000
"""Last position of a queue that is told: the scheduler makes a pass over all that stands before it."""


class QueueQuestion(Model):
    pool: str | None = None
    """Name of the pool. None: all pools."""
    rows_max: int = Field(default=1_000, ge=1, le=1_000)
    after_pool: str = ""
    """Pool of the last row that the asker has. Empty: it has none."""
    after_position: int = Field(default=0, ge=0, le=POSITION_MAX)
    """Position of that row."""


class ShareRow(Model):
    """Share and use of one workspace or user, over all pools."""

    owner: Literal["workspace", "user"]
    name: str
    weight: float
    """Weight relative to other owners, in pools that share fairly."""
    max_slots: int | None
    """Quota in slots. None: no quota was set."""
    slots: int
    """Slots that the owner's experiments use now."""


class QueueAnswer(Model):
    pools: tuple[PoolQueue, ...]
    shares: tuple[ShareRow, ...] = ()
    more: bool = False
    """True: there are rows behind these."""
    error: str = ""
    position: int | None = None
    """Position of the log after which it was so. None: it is so now."""
    time_us: int | None = None
    """Time of the event at that position."""


class PastSlot(Model):
    slot_id: int
    enabled: bool
    """False: a user had taken it out of service."""
    allocation_id: str | None
    """Live allocation on it, or null."""


class PastAgent(Model):
    """One agent at an earlier moment."""

    id: str
    pool: str
    kind: str
    """cuda if it offered GPUs, else cpu."""
    lost: bool
    """True: it was gone, and allocations on it were not released yet."""
    slots: tuple[PastSlot, ...]
    auxiliary: tuple[str, ...] = ()
    """Live allocations of trials without slots on it."""


class PastQuestion(Model):
    position: int = Field(ge=1)
    queue: QueueQuestion = QueueQuestion()
    agents: bool = False
    """True: the agents are asked for, too."""


class PastAnswer(Model):
    queue: QueueAnswer = QueueAnswer(pools=())
    agents: tuple[PastAgent, ...] = ()
    agents_more: int = 0
    """Number of agents that are left out."""
    code: Literal["", "not_found", "unavailable"] = ""
    """Kind of refusal; `queue.error` has its sentence. Empty: none."""
