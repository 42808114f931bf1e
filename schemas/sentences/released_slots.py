"""Reasons why trials give up slots: the numbers of the scheduler's rules for preempting, resizing and releasing, with their
sentences."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.pool import AllocationPreempted, AllocationReleased, AllocationResized
from tenuto.schemas.events.run import WorkersOutcome
from tenuto.schemas.sentences.amounts import slots
from tenuto.schemas.sentences.grants import POLICIES
from tenuto.schemas.sentences.rules import Data, Numbers, rule

# Taken back.


@rule(AllocationPreempted.TYPE, *(f"{policy}.preempts" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Preempts(Numbers):
    """Another trial needs the slots of this one. The numbers that are set from `backfill_until_us` on tell why this trial
    gives way; if none is set, its priority is the reason."""

    priority: int
    """Priority of the trial that gives way."""
    wanted_by_trial: str
    wanted_by_priority: int
    slots_wanted: int
    """Slots that the other trial needs in all."""
    slots_free: int
    slots_leaving: int
    """Slots that are being freed for the other trial already."""
    slots_missing: int
    """Slots that the other trial needs beyond those free or being freed."""
    slots_freed: int
    """Slots that this preemption frees."""
    victims: int
    """Number of trials that give way together."""
    backfill_until_us: int | None = None
    """Time at which this trial should have ended, because it started ahead of a larger gang. None: it did not."""
    late_seconds: int = 0
    """Seconds since that time."""
    quota_of: str = ""
    """Owner who has used up the quota, `user/<name>` or `workspace/<name>`; the missing slots must come from the owner's own
    trials."""
    quota_slots: int = 0
    """Quota of that owner, in slots."""
    slots_held: int | None = None
    """Policy fair_share: slots that this trial's experiment holds."""
    slots_share: int | None = None
    """Policy fair_share: share of this trial's experiment, in slots."""
    wanted_by_slots_held: int | None = None
    """Policy fair_share: slots that the other trial's experiment holds."""
    wanted_by_slots_share: int | None = None
    """Policy fair_share: share of the other trial's experiment, in slots."""
    wanted_by_runs: bool = False
    """True: the other trial runs already, and could be larger."""
    guest_of: str = ""
    """Pool of this trial's experiment, if its slots were lent to it. Empty: they were not."""

    def sentence(self, about: Data) -> str:
        gives_way = f"gives way with {self.slots_freed}"
        needs = f"needs {slots(self.slots_wanted)}, {self.slots_missing} more than are free or being freed"
        other, trial = f"trial {about['trial_id']}", f"Trial {self.wanted_by_trial}"
        if self.backfill_until_us is not None:
            late = f"still runs {self.late_seconds} s after that time" if self.late_seconds else "still runs"
            return (
                f"{trial} {needs}; {other} started ahead of a larger gang because it was expected to end before that one could"
                f" start; it {late} and {gives_way}."
            )
        if self.quota_of:
            return (
                f"{trial} of priority {self.wanted_by_priority} needs {slots(self.slots_missing)} more of the {self.quota_slots}"
                f" that {self.quota_of.replace('/', ' ', 1)} may use; {other} of priority {self.priority} counts there, too, and"
                f" {gives_way}."
            )
        if self.guest_of:
            return f"{trial} {needs}; {other} of pool {self.guest_of} has slots that were lent to it and {gives_way}."
        if self.slots_held is None:
            return f"{trial} of priority {self.wanted_by_priority} {needs}; {other} of priority {self.priority} {gives_way}."
        experiment = self.wanted_by_trial.partition("-")[0]
        has = f"has {self.wanted_by_slots_held} of its fair share of {slots(self.wanted_by_slots_share or 0)}"
        wants = f"{trial} of experiment {experiment}, which {has}, {needs}"
        if self.wanted_by_runs:
            wants = (
                f"Experiment {experiment} {has}; its running trials can use {slots(self.slots_missing)} more than are free or"
                " being freed"
            )
        return (
            f"{wants}; experiment {about['experiment_id']} has {self.slots_held}, more than its share of {self.slots_share}, and"
            f" its {other} {gives_way}."
        )


@rule(AllocationPreempted.TYPE, "slots_closed")
@dataclass(frozen=True, kw_only=True)
class SlotsClosedBelow(Numbers):
    agent: str
    slot: int | None = None
    """Number of the closed slot. None: the whole agent."""

    def sentence(self, about: Data) -> str:
        what = f"Agent {self.agent}" if self.slot is None else f"Slot {self.slot} of agent {self.agent}"
        return f"{what} was taken out of service; what runs there saves a checkpoint and goes on elsewhere."


@rule(AllocationPreempted.TYPE, "agent_leaves")
@dataclass(frozen=True, kw_only=True)
class AgentLeaves(Numbers):
    agent: str

    def sentence(self, about: Data) -> str:
        return f"The time of agent {self.agent} ends; what runs there saves a checkpoint and goes on elsewhere."


@rule(AllocationPreempted.TYPE, "pool_changed")
@dataclass(frozen=True, kw_only=True)
class PoolChanged(Numbers):
    to_pool: str
    allocations: int
    """Number of the experiment's allocations in other pools."""

    def sentence(self, about: Data) -> str:
        return f"Experiment {about['experiment_id']} moves to pool {self.to_pool}; its trials save a checkpoint first."


@rule(AllocationPreempted.TYPE, "experiment_paused")
@dataclass(frozen=True, kw_only=True)
class ExperimentPaused(Numbers):
    allocations: int
    """Number of the experiment's allocations."""

    def sentence(self, about: Data) -> str:
        return f"Experiment {about['experiment_id']} is paused; its trials save a checkpoint and give their slots back."


@rule(AllocationPreempted.TYPE, "slot_limit")
@dataclass(frozen=True, kw_only=True)
class OverLimit(Numbers):
    slots_used: int
    """Slots that the experiment uses."""
    slots_max: int
    """Most slots that the experiment may use."""
    slots_freed: int

    def sentence(self, about: Data) -> str:
        return (
            f"Experiment {about['experiment_id']} uses {slots(self.slots_used)} but may use {self.slots_max}; its latest"
            f" allocation gives {self.slots_freed} back."
        )


@rule(AllocationReleased.TYPE, "workers_exited")
@dataclass(frozen=True, kw_only=True)
class WorkersLeft(Numbers):
    outcome: WorkersOutcome
    exit_code: int | None = None
    """Exit code of the workers. None: not known."""
    slots: int

    def sentence(self, about: Data) -> str:
        are = "is" if self.slots == 1 else "are"
        freed = f"its {slots(self.slots)} {are} free" if self.slots else "it had no slots"
        return f"The workers of allocation {about['allocation_id']} have exited ({self.outcome}); {freed}."


# Resized.


@dataclass(frozen=True, kw_only=True)
class Resized(Numbers):
    slots_from: int
    """Slots that the trial runs with."""
    slots_soon: int | None = None
    """Slots that the trial was about to go on with, by an earlier resize. None: `slots_from`."""
    slots_to: int
    """Slots that the trial goes on with."""
    slots_max: int
    """Most slots of the trial: the experiment's limit, or the most that the trial can use."""

    @property
    def before(self) -> int:
        return self.slots_from if self.slots_soon is None else self.slots_soon


@rule(AllocationResized.TYPE, "slot_limit")
@dataclass(frozen=True, kw_only=True)
class ShrinksToLimit(Resized):
    def sentence(self, about: Data) -> str:
        return (
            f"Experiment {about['experiment_id']} may use {slots(self.slots_max)}; trial {about['trial_id']} saves a checkpoint"
            f" and goes on with {self.slots_to} of its {self.before}."
        )


@rule(AllocationResized.TYPE, *(f"{policy}.shrinks" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Shrinks(Resized):
    """Another experiment needs slots that this trial has above its minimum."""

    slots_min: int
    """Slots that the trial needs at least."""
    wanted_by_experiment: int
    slots_missing: int
    """Slots that the other experiment needs beyond those free or being freed."""
    priority: int | None = None
    """Policies priority and fifo: priority of the trial that shrinks."""
    wanted_by_priority: int | None = None
    """Policies priority and fifo: priority of the other experiment."""
    slots_held: int | None = None
    """Policy fair_share: slots that this trial's experiment holds. The numbers below are as in `Preempts`."""
    slots_share: int | None = None
    wanted_by_slots_held: int | None = None
    wanted_by_slots_share: int | None = None
    guest: bool = False
    """True: the slots were lent to the trial."""

    def sentence(self, about: Data) -> str:
        own = about["experiment_id"]
        compared = ""
        if self.slots_held is not None and not self.guest and own != self.wanted_by_experiment:
            compared = (
                f" Experiment {self.wanted_by_experiment} has {self.wanted_by_slots_held} of its fair share of"
                f" {self.wanted_by_slots_share}, and experiment {own} has {self.slots_held}, more than its share of"
                f" {self.slots_share}."
            )
        return (
            f"Experiment {self.wanted_by_experiment} needs {slots(self.slots_missing)} more than are free or being freed; trial"
            f" {about['trial_id']} saves a checkpoint, gives up {self.before - self.slots_to} of {slots(self.before)} and goes on"
            f" with {self.slots_to}.{compared}"
        )


@rule(AllocationResized.TYPE, *(f"{policy}.grows" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Grows(Resized):
    slots_min: int
    """Slots that the trial needs at least."""
    slots_free: int
    """Free slots of the pool before the resize."""
    kept_seconds: float
    """Seconds since the trial got its present size."""

    def sentence(self, about: Data) -> str:
        there = (
            "1 slot is free and nobody waits for it"
            if self.slots_free == 1
            else f"{self.slots_free} slots are free and nobody waits for them"
        )
        return (
            f"{there}; trial {about['trial_id']} saves a checkpoint and goes on with {slots(self.slots_to)} instead of"
            f" {self.before}."
        )
