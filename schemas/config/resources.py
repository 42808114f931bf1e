"""Resources of an experiment: slots, where they may be, and its place among other experiments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.names import NAME_PATTERN

PoolName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
AgentLabel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}=[A-Za-z0-9_.-]{1,63}$")]
"""Label `key=value` of an agent. Agents with the same `rack=...` label are near each other."""

SLOTS_PER_TRIAL_MAX = 100_000


SLOTS_MAX = 2**31 - 1
"""Largest limit of slots over many trials: the largest number that the views can store."""


WALL_HOURS_MAX = 100_000.0
"""Largest limit of hours, which is eleven years."""


class SlotRange(Model):
    """Slots of an elastic trial, which grows and shrinks at checkpoints as the cluster empties and fills."""

    min: int = Field(ge=1, le=SLOTS_PER_TRIAL_MAX)
    """Slots that the trial starts with; it never trains on fewer."""
    max: int = Field(ge=1, le=SLOTS_PER_TRIAL_MAX)
    """Most slots that the trial trains on."""
    keep_seconds: float = Field(default=60.0, ge=0, le=1e6)
    """Shortest time that the trial keeps its size before it grows. Each change costs a checkpoint and a start."""

    @model_validator(mode="after")
    def _in_order(self) -> SlotRange:
        if self.max < self.min:
            raise ValueError(f"max must be at least min, which is {self.min}")
        return self


def _kind_of_slots(value: Any) -> str:
    return "range" if isinstance(value, (dict, SlotRange)) else "number"


Slots = Annotated[
    Annotated[int, Field(ge=0, le=SLOTS_PER_TRIAL_MAX), Tag("number")] | Annotated[SlotRange, Tag("range")],
    Discriminator(_kind_of_slots),
]


class Resources(Model):
    slots_per_trial: Slots = 1
    """Slots (GPUs, or CPU slots where there are none) that one trial trains on, as one gang. A range {min, max} makes trials
    elastic. 0: an auxiliary trial, which takes no slot, sees no GPU, and starts at once on any agent of its pool."""
    max_slots: int | None = Field(default=None, ge=1)
    """Most slots that the experiment uses at once. None: no limit."""
    priority: int = Field(default=42, ge=1, le=99)
    """Priority of the experiment: 1 is the most urgent, 99 the least."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share relative to others of the same user, in pools that share fairly."""
    pool: PoolName = "default"
    """Pool whose agents may run the trials; `tenuto pool ls` lists pools."""
    fallback_pools: tuple[PoolName, ...] = Field(default=(), max_length=8)
    """Pools that may lend free slots, in this order, when the experiment's own pool has none."""
    workspace: str = Field(default="default", pattern=NAME_PATTERN)
    """Workspace of the experiment. Pools that share fairly divide slots among workspaces, then among the users of each, then
    among the experiments of each user."""
    preemptible: bool = True
    """False: running trials are never preempted for others. They still count towards their owner's share."""
    expected_seconds: float | None = Field(default=None, gt=0, le=1e9)
    """Longest run of a trial in seconds, as far as you know. A trial with this number may start ahead of a larger waiting gang
    if it ends before that gang can start; and expected starts can be shown. A longer run is not cut, unless such a gang needs
    the slots."""
    max_wall_hours: float | None = Field(default=None, gt=0, le=WALL_HOURS_MAX, exclude_if=lambda value: value is None)
    """Longest time in hours that the experiment runs: that at least one of its trials holds its slots. Waiting and pauses do not
    count. Then it is canceled, and its trials save checkpoints. None: no limit but that of its workspace."""
    locality: Literal["any", "agent", "rack"] = "any"
    """agent: a trial's slots are all on one agent. rack: all on agents with the same label `rack=...`."""
    placement: Literal["pack", "spread"] = "pack"
    """pack: on as few agents as possible. spread: evenly over as many as possible."""
    device: str | None = Field(default=None, min_length=1, max_length=200)
    """Text that the name of a slot's device must contain, such as A100, in upper or lower case. None: any device."""
    agent_labels: tuple[AgentLabel, ...] = Field(default=(), max_length=16)
    """Labels that an agent must have, each `key=value`."""
    exclude_agents: tuple[str, ...] = Field(default=(), max_length=256)
    """Ids of agents that never run the trials."""

    @property
    def slots_min(self) -> int:
        """Slots that a trial needs to start."""
        return self.slots_per_trial.min if isinstance(self.slots_per_trial, SlotRange) else self.slots_per_trial

    @property
    def slots_max(self) -> int:
        """Most slots that a trial uses."""
        return self.slots_per_trial.max if isinstance(self.slots_per_trial, SlotRange) else self.slots_per_trial

    @model_validator(mode="after")
    def _without_slots(self) -> Resources:
        if self.slots_max:
            return self
        named = [name for name in ("max_slots", "device") if getattr(self, name) is not None]
        if named:
            raise ValueError(f"{named[0]}: a trial with slots_per_trial: 0 uses no slots; leave it out, or ask for slots")
        return self

    @model_validator(mode="after")
    def _fallback_is_another_pool(self) -> Resources:
        if self.pool in self.fallback_pools or len(set(self.fallback_pools)) < len(self.fallback_pools):
            raise ValueError("fallback_pools: name each pool once, and not the experiment's own pool")
        return self
