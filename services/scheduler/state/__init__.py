"""State of the scheduler. Frozen; a change makes a new state that shares all unchanged parts.

A trial is in one phase:
    wanted      the search wants it trained; it waits for slots or has them
    paused      it waits, without slots, for the search to extend or stop it
    failed      it failed too often; the search is about to stop it
    stopped     it is over; it leaves the state when its last allocation is released

An allocation is live from AllocationGranted to AllocationReleased. While it is live, no other one has its slots. It is *leaving*
when something already makes its workers go: then its slots count as being freed, and it is no victim. One that is *resized*
leaves, too, but its trial goes on at once with the slots in `next`: of those it keeps the ones it has, the others are kept for
it, and only what it loses is being freed.

Trials and allocations, of which there are many, have slots; what changes with each of them has none, and is copied faster
(schemas/fast_replace.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from immutables import Map

from tenuto.kernel.codec import DERIVED
from tenuto.kernel.memo import Memo
from tenuto.schemas.events.agent import AUXILIARY_TRIALS_MAX
from tenuto.schemas.ids import trial_id
from tenuto.services.scheduler.state.settings import Closed as Closed
from tenuto.services.scheduler.state.settings import PoolPolicy as PoolPolicy
from tenuto.services.scheduler.state.settings import ProvisionedSlots
from tenuto.services.scheduler.state.settings import Share as Share
from tenuto.services.scheduler.state.slotsets import SlotSet, count, without

Phase = Literal["wanted", "paused", "failed", "stopped"]
Leaving = Literal["", "preempted", "resized", "trial_paused", "trial_stopped", "experiment_canceled", "agent_lost", "exited"]
RETURNING: tuple[Leaving, ...] = ("preempted", "agent_lost", "exited")
"""Reasons for leaving after which the trial waits for slots again, if it is wanted still."""


@dataclass(frozen=True, slots=True)
class Trial:
    number: int
    phase: Phase = "wanted"
    verdict_of: str = ""
    """The allocation whose workers failed, until the tracker says whether the trial may start again; else empty."""
    grants: int = 0
    """Allocations so far; the next one has this number plus one."""
    allocation_id: str = field(default="", metadata=DERIVED)
    """The live allocation, or empty."""
    excluded: tuple[str, ...] = ()
    """Agents where it failed in a way that its experiment's log policies name, sorted."""
    pause_of: str = ""
    """The allocation whose end began a pause before its next start, or empty."""

    @property
    def waits(self) -> bool:
        return self.phase == "wanted" and not (self.allocation_id or self.verdict_of or self.pause_of)


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints on the placement of gangs. An experiment that may use any slots has none."""

    locality: Literal["any", "agent", "rack"] = "any"
    placement: Literal["pack", "spread"] = "pack"
    device: str = ""
    """Text in lower case that the agent's device names must contain; empty: any device."""
    labels: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    image: str = ""
    """Image that agents may run in as a whole; empty: in none, also where trials need containers of their own."""


@dataclass(frozen=True)
class Experiment:
    experiment_id: int
    pool: str
    priority: int
    slots_per_trial: int
    max_slots: int | None
    place: float = 0.0
    """Place among the experiments of its priority: a smaller one is earlier."""
    weight: float = 1.0
    workspace: str = "default"
    user: str = ""
    preemptible: bool = True
    expected_us: int | None = None
    """Longest run time of one of its trials by its user's estimate; None if there is none."""
    fallback_pools: tuple[str, ...] = ()
    constraints: Constraints | None = None
    image: str = ""
    """Image that a node may pull before a trial starts there; empty: none."""
    slots_most: int = 0
    """Most slots of a trial; 0: it always uses `slots_per_trial`."""
    keep_us: int = 0
    """Least time for which an elastic trial keeps its size before it grows."""
    reserved_us: int = 0
    """Time since which slots are kept for its next trial, which is the first of its priority until it starts; 0: none are
    kept."""
    width: int = 1
    """Number of trials that the search is expected to run at once: the first ones leave room for the others."""
    paused: bool = False
    canceled: bool = False
    ended: bool = False
    trials: Map[int, Trial] = field(default_factory=Map)
    idle_since_us: int = 0
    """Time at which it last held slots, or was submitted."""
    turn_until_us: int = 0
    """Time until which it may hold a gang larger than its share (see policies/turns.py); 0: it had no turn yet."""
    waiting: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Numbers of the trials that wait for slots, ascending."""
    returning: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Numbers of the trials whose workers are leaving and that wait for slots again as soon as they have, ascending."""
    kept_away: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Numbers of the trials that may not go to agents where they failed, ascending."""
    allocations: tuple[str, ...] = field(default=(), metadata=DERIVED)
    """Live allocations, sorted."""
    slots_used: int = field(default=0, metadata=DERIVED)
    """Slots of the live allocations, leaving ones included."""

    @property
    def elastic(self) -> bool:
        return self.slots_most > self.slots_per_trial

    @property
    def auxiliary(self) -> bool:
        """True if its trials take no slots."""
        return not self.slots_per_trial

    @property
    def open(self) -> bool:
        """True if its trials may be granted slots."""
        return not (self.paused or self.canceled or self.ended)

    @property
    def queued(self) -> bool:
        return bool(self.waiting) and self.open

    @property
    def unserved_since_us(self) -> int:
        return max(self.idle_since_us, self.turn_until_us)

    @property
    def queue_key(self) -> tuple[int, float, int]:
        return (self.priority, self.place, self.experiment_id)

    @property
    def owners(self) -> tuple[str, str]:
        """Owners whose quotas it counts against."""
        return (f"workspace/{self.workspace}", f"user/{self.user}")


@dataclass(frozen=True)
class Agent:
    agent_id: str
    pool: str
    kind: str
    """cuda if it has GPUs: then they alone are its slots; else cpu."""
    slots: tuple[int, ...]
    labels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Names of its slots' devices in lower case, sorted, each once."""
    image: str = ""
    """Image in which it runs with all its trials, which name it; empty: none."""
    lost: bool = False
    """True if it is gone, and kept only until the allocations on it are released."""
    used: tuple[tuple[int, str], ...] = field(default=(), metadata=DERIVED)
    """(slot, allocation) of live allocations, sorted."""
    free: tuple[int, ...] = field(default=(), metadata=DERIVED)
    """Slots that its pool may grant now, sorted."""
    closed: Closed | None = field(default=None, metadata=DERIVED)
    """Its slots that may not be used: closed by users (its entry in `State.closed`), or all if it leaves."""
    ending: bool = False
    """True if its time ends soon, so that nothing new may begin on it."""
    auxiliary_max: int = AUXILIARY_TRIALS_MAX
    """Most trials without slots that it runs at once."""
    auxiliary: tuple[str, ...] = field(default=(), metadata=DERIVED)
    """Live allocations of trials without slots on it, sorted."""

    @property
    def rack(self) -> str:
        return next((label for label in self.labels if label.startswith("rack=")), "")


@dataclass(frozen=True, slots=True)
class Allocation:
    allocation_id: str
    experiment_id: int
    trial_number: int
    pool: str
    slots: SlotSet
    """(agent, its slots), in rank order; of a trial without slots its agent, with none."""
    grant: int
    """Sequence number of this grant, from 1."""
    granted_us: int = 0
    since_us: int = 0
    """Time of its grant or last checkpoint: later work would have to be done again."""
    backfill_until_us: int | None = None
    """Time from which a larger gang, ahead of which it started, may preempt it; None if it did not start so."""
    stays: bool = False
    """True if it ran when its pool's policy changed: it gives way to no other trial."""
    leaving: Leaving = ""
    outcome: str = ""
    """Outcome of its workers; empty until they have exited."""
    next: SlotSet = ()
    """Slots with which its trial continues, if it is being resized."""

    @property
    def trial_id(self) -> str:
        return trial_id(self.experiment_id, self.trial_number)

    @property
    def size(self) -> int:
        """Slots of its workers."""
        return count(self.slots)

    @property
    def size_soon(self) -> int:
        """Slots that its trial has, or goes on with."""
        return count(self.next or self.slots)

    @property
    def gained(self) -> SlotSet:
        """Slots that are kept for the trial and that its workers do not use."""
        return without(self.next, self.slots) if self.next else ()

    @property
    def given_up(self) -> SlotSet:
        """Slots that are free when its workers have left."""
        return without(self.slots, self.next) if self.next else self.slots

    @property
    def size_kept(self) -> int:
        """Slots that no other allocation may have."""
        return count(self.slots) + count(self.gained)


Members = Map[int, tuple[Experiment, int]]
Groups = Map[tuple[str, str], Members]


@dataclass(frozen=True)
class Pool:
    """Indexes of one pool, all derived from the rest of the state (`derive`)."""

    name: str
    gpu_agents: int = 0
    """Joined agents with GPUs."""
    capacity: int = 0
    """Slots that can be used, whether busy or free."""
    free: int = 0
    """Free slots out of `capacity`."""
    coming: int = 0
    """Slots that can be used again once the leaving allocations are released."""
    agents: tuple[str, ...] = ()
    """Joined agents, sorted."""
    idle: tuple[tuple[int, str], ...] = ()
    """(number of free slots, agent), where there are any, sorted."""
    leaving: tuple[str, ...] = ()
    """Live allocations whose slots are being freed, sorted."""
    victims: tuple[tuple[int, int, int, str], ...] = ()
    """(-priority, size, -since_us, allocation) of the other preemptible live allocations, sorted."""
    held: Map[int, int] = field(default_factory=Map)
    """Experiment -> slots of its live allocations here that are not leaving, with those that resized ones go on with; never 0."""
    staying: Map[int, int] = field(default_factory=Map)
    """Same as `held`, of its allocations that ran when the policy changed; never 0."""
    elastic: tuple[str, ...] = ()
    """Live allocations of elastic experiments that are not leaving, or are resized; sorted."""
    ends: tuple[tuple[int, str], ...] = ()
    """(expected end in us, allocation) of live allocations that are not leaving and are expected to end, sorted."""
    backfilled: tuple[tuple[int, str], ...] = ()
    """(backfill_until_us, allocation) of those that are not leaving, sorted."""
    queue: tuple[tuple[int, float, int], ...] = ()
    """(priority, place, experiment) of the experiments with waiting trials that may be granted, sorted."""
    unserved: tuple[tuple[int, int], ...] = ()
    """(unserved since, experiment) of those in `queue` that hold no slots at all, sorted."""
    turns: tuple[tuple[int, int], ...] = ()
    """(turn_until_us, experiment) of the experiments of this pool that had a turn, sorted."""
    groups: Groups = field(default_factory=Map)
    """(workspace, user) -> experiment -> itself and the slots in `held`, of those in `queue` or `held`. A group that did not
    change is the same object as before, so what was found from it need not be found again."""
    lends_to: tuple[tuple[str, int], ...] = ()
    """(their pool, experiment) of queued experiments that may fall back to this pool, sorted."""
    auxiliary_queue: tuple[tuple[int, float, int], ...] = ()
    """Same as `queue`, but of experiments whose trials take no slots: neither queue delays the other."""
    auxiliary_room: tuple[tuple[int, str], ...] = ()
    """(number of trials without slots, agent) of the agents that take one more, sorted."""
    auxiliary: Map[int, int] = field(default_factory=Map)
    """Experiment -> its trials without slots that run here and are not leaving; none with 0."""
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)
    """Results of the policies' last pass, so that the next one need not compute all of them again."""

    @property
    def kind(self) -> str:
        """Kind of its slots: CPU slots count only in a pool without GPUs, so that no gang mixes them."""
        return "cuda" if self.gpu_agents else "cpu"

    @property
    def empty(self) -> bool:
        slots_concerned = self.agents or self.leaving or self.held or self.queue or self.groups or self.turns or self.lends_to
        return not (slots_concerned or self.auxiliary_queue or self.auxiliary)


@dataclass(frozen=True, slots=True)
class Usage:
    """Slots over time in one pool of a workspace or a user of it, in slot-microseconds, decayed (see usage.py)."""

    amount: int = 0
    at_us: int = 0
    slots: int = field(default=0, metadata=DERIVED)
    """Slots used since then."""


@dataclass(frozen=True)
class State:
    experiments: Map[int, Experiment] = field(default_factory=Map)
    agents: Map[str, Agent] = field(default_factory=Map)
    allocations: Map[str, Allocation] = field(default_factory=Map)
    pools: Map[str, Pool] = field(default_factory=Map, metadata=DERIVED)
    grants: int = 0
    """Allocations ever granted."""
    policies: Map[str, PoolPolicy] = field(default_factory=Map)
    """Policy by pool, of the pools whose policy was set."""
    shares: Map[str, Share] = field(default_factory=Map)
    """Share by owner: `workspace/<name>` and `user/<name>`."""
    closed: Map[str, Closed] = field(default_factory=Map)
    owner_slots: Map[str, int] = field(default_factory=Map, metadata=DERIVED)
    """Owner -> slots of live allocations; none with 0."""
    usage: Map[str, Usage] = field(default_factory=Map)
    """Use by `<pool>/<workspace>` and `<pool>/<workspace>/<user>`, of pools with a half-life."""
    provisioned: Map[str, ProvisionedSlots] = field(default_factory=Map)
    """Pools whose nodes a provisioner starts."""
    image_pools: Map[str, bool] = field(default_factory=Map)
    """Pools with agents that run in an image as a whole, now or before, each True: their experiments have constraints."""
    nodes_ending: Map[str, str] = field(default_factory=Map)
    """Node that was returned or has failed -> its pool, until the provider has removed it entirely: nothing new begins on an
    agent of that name."""


def initial() -> State:
    return State()


def policy_of(state: State, pool: str) -> PoolPolicy:
    return state.policies.get(pool) or PoolPolicy()
