"""What an experiment asks of the cluster: slots, where they may be, and its place among others."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from tenuto.schemas.base import Model

NAME_PATTERN = r"^[A-Za-z0-9_-]{1,63}$"
PoolName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
AgentLabel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,63}=[A-Za-z0-9_.-]{1,63}$")]
"""Agents with the same `rack=...` label are near each other."""

SLOTS_PER_TRIAL_MAX = 100_000


SLOTS_MAX = 2**31 - 1
"""Of a limit for many trials: what the views can hold."""


class SlotRange(Model):
    """An elastic trial: it grows and shrinks at checkpoints as the cluster empties and fills."""

    min: int = Field(ge=1, le=SLOTS_PER_TRIAL_MAX)
    """It starts with so many, and never trains on fewer."""
    max: int = Field(ge=1, le=SLOTS_PER_TRIAL_MAX)
    """It never trains on more."""
    keep_seconds: float = Field(default=60.0, ge=0, le=1e6)
    """It keeps its size at least so long before it grows, because each change costs a checkpoint and a start."""

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
    """Most slots the experiment uses at once. None: no limit."""
    priority: int = Field(default=42, ge=1, le=99)
    """1 is the most urgent, 99 the least."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share relative to others of the same user, in pools that share fairly."""
    pool: PoolName = "default"
    """The agents that may run its trials, as `tenuto pool ls` shows them."""
    fallback_pools: tuple[PoolName, ...] = Field(default=(), max_length=8)
    """Pools that may lend free slots, in this order, when the experiment's own pool has none."""
    workspace: str = Field(default="default", pattern=NAME_PATTERN)
    """Pools that share fairly divide slots among workspaces, in each among its users, for each among the experiments."""
    preemptible: bool = True
    """False: running trials are never preempted for others. They count inside their owner's share."""
    expected_seconds: float | None = Field(default=None, gt=0, le=1e9)
    """How long a trial runs, at most, as far as you know. A trial with it may start ahead of a larger gang that waits, if it ends
    before that gang can start; and waiting times can be foretold. Longer runs are not cut, unless such a gang needs the slots."""
    locality: Literal["any", "agent", "rack"] = "any"
    """agent: a trial's slots are all on one agent. rack: all on agents with the same label `rack=...`."""
    placement: Literal["pack", "spread"] = "pack"
    """pack: on as few agents as possible. spread: evenly over as many as possible."""
    device: str | None = Field(default=None, min_length=1, max_length=200)
    """Only slots whose device name contains this, such as A100; upper and lower case are the same."""
    agent_labels: tuple[AgentLabel, ...] = Field(default=(), max_length=16)
    """Only agents that have all these labels, each `key=value`."""
    exclude_agents: tuple[str, ...] = Field(default=(), max_length=256)
    """Never on these agents."""

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
