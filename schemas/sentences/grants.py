"""Reasons why the scheduler grants and keeps slots: the numbers of its rules, with their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.schemas.events.pool import AllocationGranted, SlotsReserved
from tenuto.schemas.sentences.amounts import slots
from tenuto.schemas.sentences.rules import Data, Numbers, rule

POLICIES = ("priority", "fair_share", "fifo")
AGENTS_SHOWN_MAX = 3
"""Most agents named for one gang; the others are counted."""


def where(parts: Sequence[Data]) -> str:
    """Agents with the number of slots on each: `node-1 (4), node-2 (2)`."""
    shown = ", ".join(f"{part['agent_id']} ({len(part['slot_ids'])})" for part in parts[:AGENTS_SHOWN_MAX])
    more = len(parts) - AGENTS_SHOWN_MAX
    return shown + (f" and {more} more agent{'s' * (more > 1)}" if more > 0 else "")


def size_of(about: Data) -> int:
    return sum(len(part["slot_ids"]) for part in about["slots"])


# Granted.


@dataclass(frozen=True, kw_only=True)
class Granted(Numbers):
    """Order of the trial by the pool's policy, and the slots that were free. One of the policies' numbers is set."""

    priority: int | None = None
    """Policy priority: priority of the experiment; 1 is the most urgent."""
    place: float | None = None
    """Policy fifo: place of the experiment; smaller is earlier."""
    slots_share: int | None = None
    """Policy fair_share: share of the experiment, in slots."""
    weight: float | None = None
    """Policy fair_share: weight of the experiment. None: the grant is its turn, because its gang is larger than its share."""
    slots_wanted: int
    """Slots that the trial should have."""
    slots_free: int
    """Free slots of the pool before the grant."""
    experiment_slots_used: int
    """Slots that the experiment used before the grant."""
    experiment_slots_max: int | None = None
    """Limit of the experiment in slots. None: it has none."""

    @property
    def order(self) -> str:
        if self.priority is not None:
            return f"at priority {self.priority}"
        if self.slots_share is None:
            return "in order of submission"
        share = slots(self.slots_share)
        if self.weight is None:
            return f"in turn, as its gang is larger than its fair share, with {share}"
        return f"with a fair share of {share}"


@rule(AllocationGranted.TYPE, *(f"{policy}.fits" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Fits(Granted):
    slots_max: int | None = None
    """Most slots that the elastic trial can use. Set if it got more than it needs, because no other trial waited for them."""

    def sentence(self, about: Data) -> str:
        free = "1 free slot" if self.slots_free == 1 else f"{self.slots_free} free slots"
        grown = "" if self.slots_max is None else f" Nobody waits for more, so it has {slots(size_of(about))} in all."
        return (
            f"Trial {about['trial_id']} is next {self.order} and needs {self.slots_wanted} of {free}; it gets slots of"
            f" {where(about['slots'])}.{grown}"
        )


@rule(AllocationGranted.TYPE, *(f"{policy}.lent" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Lent(Granted):
    home_pool: str
    """Pool of the experiment, which borrows the slots of another one."""
    slots_min: int | None = None
    """Slots that the trial needs. None: the same as `slots_wanted`."""

    def sentence(self, about: Data) -> str:
        needs = self.slots_wanted if self.slots_min is None else self.slots_min
        return (
            f"Trial {about['trial_id']} needs {slots(needs)}; pool {self.home_pool} has none for it and pool {about['pool']}"
            f" lends it slots of {where(about['slots'])}."
        )


@rule(AllocationGranted.TYPE, *(f"{policy}.backfills" for policy in POLICIES))
@dataclass(frozen=True, kw_only=True)
class Backfills(Granted):
    """The trial starts ahead of a larger gang. The end of that permission is in the event (`backfill_until_us`)."""

    def sentence(self, about: Data) -> str:
        return (
            f"Trial {about['trial_id']} needs {slots(self.slots_wanted)} and is expected to end before a larger gang that waits"
            f" can start; it gets slots of {where(about['slots'])}."
        )


@rule(AllocationGranted.TYPE, "auxiliary.starts", "auxiliary.lent")
@dataclass(frozen=True, kw_only=True)
class AuxiliaryStarts(Numbers):
    """A trial without slots starts."""

    agent_trials: int
    """Number of trials without slots on the agent before this one."""
    agent_trials_max: int
    """Most trials without slots on the agent."""
    home_pool: str = ""
    """Pool of the experiment, if the agent is in another one. Empty: the same pool."""

    def sentence(self, about: Data) -> str:
        lent = f" of pool {about['pool']}, as pool {self.home_pool} has no room for it" if self.home_pool else ""
        agent = about["slots"][0]["agent_id"]
        trials = f"{self.agent_trials} such trials run"
        return f"Trial {about['trial_id']} needs no slots; it starts on agent {agent}{lent}, where {trials}."


@rule(AllocationGranted.TYPE, "resized")
@dataclass(frozen=True, kw_only=True)
class GoesOnResized(Numbers):
    slots_from: int
    slots_to: int

    def sentence(self, about: Data) -> str:
        return (
            f"Trial {about['trial_id']} was resized and has released its {slots(self.slots_from)}; it goes on with"
            f" {slots(self.slots_to)} kept for it."
        )


@rule(SlotsReserved.TYPE, "priority.reserves")
@dataclass(frozen=True, kw_only=True)
class Reserves(Numbers):
    priority: int
    slots_wanted: int
    slots_free: int

    def sentence(self, about: Data) -> str:
        needs = f"needs {slots(self.slots_wanted)}, which are not free, and nobody has to give way to it"
        first = f"it is the first of priority {self.priority} until it has them, whatever others hold then"
        return f"Trial {about['trial_id']} {needs}; {first}."
