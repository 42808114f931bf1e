"""Slots that a provisioned pool lacks: gangs that wait, and that neither free slots nor those being freed will serve.

Nothing here decides who starts. The pass over the pool has ended; of what it left waiting, gangs are laid on the slots that are
free or being freed, in the queue's order, and what does not fit is wanted. Of a gang that may be anywhere only what is missing
is wanted, because it takes the free slots, too. Gangs that limits or quotas keep back are not wanted, and no trial that is
paused or waits before it starts again is among the waiting ones.

A gang that may fall back on other pools is wanted in its own one if that is provisioned, else in the first provisioned one that
it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.events import EventData
from tenuto.schemas.events.pool import CapacityDemand, CapacityWanted
from tenuto.services.scheduler.policies.placement import Ground, for_trial
from tenuto.services.scheduler.state import Constraints, Experiment, Pool, PoolPolicy, Share, State, policy_of
from tenuto.services.scheduler.state.settings import ProvisionedSlots
from tenuto.services.scheduler.state.usable import usable_slots

DEMANDS_MAX = 100
"""Most kinds of gangs in one event: more than any queue has at once, and the event stays small."""
ANYWHERE = Constraints()


def plan(state: State) -> list[EventData]:
    """CapacityWanted of each provisioned pool where it changed."""
    drafts: list[EventData] = []
    for name in sorted(state.provisioned):
        provisioned, pool = state.provisioned[name], state.pools.get(name)
        if pool is not None and _looked_at(state, pool):
            continue
        demands = _demands(state, pool, provisioned) if pool is not None else ()
        if demands != provisioned.wanted:
            drafts.append(CapacityWanted(pool=name, demands=demands))
    return drafts


class _LookedAt(NamedTuple):
    """Objects that the last look at a pool depended on."""

    pool: Pool
    homes: tuple[Pool | None, ...]
    """Home pools of the experiments that may fall back to it."""
    provisioned: ProvisionedSlots | None
    policy: PoolPolicy | None
    """Demands come in the order of the queue, which is another one under `fifo`."""
    shares: Map[str, Share]
    owner_slots: Map[str, int]
    names: tuple[str, ...]
    """Names of all provisioned pools, if experiments of some may fall back to this one: the pool that is to grow for them depends
    on the others."""


def _looked_at(state: State, pool: Pool) -> bool:
    """True if nothing has changed since the last look. Every change of an experiment, an agent or an allocation makes its pool
    anew, so the same objects have the same demands."""
    homes = tuple(state.pools.get(home) for home in sorted({entry[0] for entry in pool.lends_to}))
    names = tuple(sorted(state.provisioned)) if homes else ()
    provisioned, policy = state.provisioned.get(pool.name), state.policies.get(pool.name)
    look = _LookedAt(pool, homes, provisioned, policy, state.shares, state.owner_slots, names)
    known = pool.memo.get(_LookedAt)
    if (
        known is not None
        and known.names == names
        and len(known.homes) == len(homes)
        and all(
            one is other for one, other in zip((*known.homes, known.pool, *known[2:6]), (*homes, pool, *look[2:6]), strict=True)
        )
    ):
        return True
    pool.memo.keep(look)
    return False


@dataclass
class _Room:
    """Slots of a pool that are free or being freed, by agent, less what was laid on them."""

    state: State
    pool: Pool

    def __post_init__(self) -> None:
        ground = Ground(self.state, self.pool)
        self._allows = ground.allows
        self._slots = dict(ground.free.counts)
        for item in self.pool.leaving:
            for agent_id, slot_ids in self.state.allocations[item].given_up:
                usable = usable_slots(self.pool, self.state.agents[agent_id])
                count = sum(slot in usable for slot in slot_ids)
                if count:
                    self._slots[agent_id] = self._slots.get(agent_id, 0) + count
        self._total = sum(self._slots.values())

    def missing(self, asked: Constraints, wanted: int) -> int:
        """Lays one gang on the room; returns the slots that are missing, 0 if it fits. A gang that does not fit takes nothing,
        unless any slots will do for it: then it takes all that the room has."""
        if not self._total:
            return wanted
        allowed = [item for item in sorted(self._slots) if self._slots[item] and self._allows(asked, item)]
        rooms: list[list[str]] = [allowed]
        if asked.locality == "agent":
            rooms = [[item] for item in allowed]
        elif asked.locality == "rack":
            racks: dict[str, list[str]] = {}
            for item in allowed:
                racks.setdefault(self.state.agents[item].rack or item, []).append(item)
            rooms = [racks[rack] for rack in sorted(racks)]
        sizes = [(sum(self._slots[item] for item in room), room) for room in rooms]
        fitting = min((item for item in sizes if item[0] >= wanted), default=None)
        if fitting is not None:
            self._take(fitting[1], wanted)
            return 0
        if asked.locality != "any" or not allowed:
            return wanted
        have = sizes[0][0]
        self._take(allowed, have)
        return wanted - have

    def _take(self, room: list[str], wanted: int) -> None:
        self._total -= wanted
        for item in room:
            taken = min(wanted, self._slots[item])
            self._slots[item] -= taken
            wanted -= taken


class _Quotas:
    """Slots that limits and quotas leave, less those of gangs that were counted."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._counted: dict[str, int] = {}

    def allow(self, experiment: Experiment, used: int, wanted: int) -> bool:
        if experiment.max_slots is not None and used + wanted > experiment.max_slots:
            return False
        for owner in experiment.owners if self._state.shares else ():
            share = self._state.shares.get(owner)
            slots = self._state.owner_slots.get(owner, 0) + self._counted.get(owner, 0) + wanted
            if share is not None and share.max_slots is not None and slots > share.max_slots:
                return False
        return True

    def count(self, experiment: Experiment, wanted: int) -> None:
        for owner in experiment.owners if self._state.shares else ():
            self._counted[owner] = self._counted.get(owner, 0) + wanted


class _Gang(NamedTuple):
    experiment: Experiment
    asked: Constraints
    missing: int


def _demands(state: State, pool: Pool, provisioned: ProvisionedSlots) -> tuple[CapacityDemand, ...]:
    first: dict[tuple[object, ...], _Gang] = {}
    alike: dict[tuple[object, ...], tuple[object, ...]] = {}
    """First kind of gangs that are alike but for their image: beyond DEMANDS_MAX the others count as of that one."""
    counts: dict[tuple[object, ...], int] = {}
    slots: dict[tuple[str, str, str], int] = {}
    """Slots demanded so far, by workspace and images where these are told apart: the queue of a workspace that may have no more,
    or of an image that cannot be had, must not hide the others."""
    for gang in _gangs(state, pool, provisioned):
        asked, workspace = gang.asked, gang.experiment.workspace if provisioned.by_workspace else ""
        node_image, image = _images(gang.experiment, asked, provisioned)
        sharer = (workspace, node_image, image)
        if slots.get(sharer, 0) >= provisioned.slots_most:
            if not (provisioned.by_workspace or provisioned.by_image):
                break
            continue
        needs = (gang.missing, asked.locality, asked.device, asked.labels, workspace, node_image)
        key: tuple[object, ...] = (*needs, gang.experiment.image)
        if key not in first and len(first) >= DEMANDS_MAX:
            if needs not in alike:
                continue
            key = alike[needs]
        alike.setdefault(needs, key)
        # One that no number of nodes could hold is told once, and leaves the count of the others as it is.
        fits = gang.missing <= provisioned.slots_most
        slots[sharer] = slots.get(sharer, 0) + (gang.missing if fits else 0)
        first.setdefault(key, gang)
        counts[key] = counts.get(key, 0) + 1 if fits else 1
    return tuple(
        CapacityDemand(
            slots=gang.missing,
            count=counts[key],
            locality=gang.asked.locality,
            device=gang.asked.device,
            labels=gang.asked.labels,
            image=gang.experiment.image,
            node_image=provisioned.by_image and bool(gang.asked.image),
            workspace=gang.experiment.workspace,
            experiment_id=gang.experiment.experiment_id,
        )
        for key, gang in first.items()
    )


def _images(experiment: Experiment, asked: Constraints, provisioned: ProvisionedSlots) -> tuple[str, str]:
    """Image that a node may run in for it, as such a node serves no gang of another, and the image that it names, for which it
    may need a container of its own; both empty where nodes run in no images."""
    return (asked.image, experiment.image) if provisioned.by_image else ("", "")


def _gangs(state: State, pool: Pool, provisioned: ProvisionedSlots) -> Iterator[_Gang]:
    """Gangs that the pool lacks slots for, in the queue's order; then those of other pools that may fall back to it."""
    room, quotas = _Room(state, pool), _Quotas(state)
    yield from _auxiliary(state, pool, provisioned)
    for experiment in _queue(state, pool):
        yield from _unserved(experiment, room, quotas)
    homes: dict[str, _Room] = {}
    for home, experiment_id in pool.lends_to:
        experiment = state.experiments[experiment_id]
        if home in state.provisioned or _first_provisioned(state, experiment) != pool.name or experiment.auxiliary:
            continue
        if home not in homes and home in state.pools:
            homes[home] = _Room(state, state.pools[home])
        for gang in _unserved(experiment, homes.get(home), quotas):
            # It goes to one pool or the other as a whole.
            missing = room.missing(gang.asked, experiment.slots_per_trial)
            if missing:
                yield gang._replace(missing=missing)


def _first_provisioned(state: State, experiment: Experiment) -> str:
    return next((name for name in experiment.fallback_pools if name in state.provisioned), "")


def _queue(state: State, pool: Pool) -> Iterator[Experiment]:
    queue = pool.queue
    if policy_of(state, pool.name).name == "fifo":
        queue = tuple(sorted(queue, key=lambda entry: entry[1:]))
    for _, _, key in queue:
        yield state.experiments[key]


def _unserved(experiment: Experiment, room: _Room | None, quotas: _Quotas) -> Iterator[_Gang]:
    used, wanted = experiment.slots_used, experiment.slots_per_trial
    for number in experiment.waiting:
        if not quotas.allow(experiment, used, wanted):
            return
        asked = for_trial(experiment, number).constraints or ANYWHERE
        missing = room.missing(asked, wanted) if room is not None else wanted
        used += wanted
        quotas.count(experiment, wanted)
        if missing:
            yield _Gang(experiment, asked, missing)


def _auxiliary(state: State, pool: Pool, provisioned: ProvisionedSlots) -> Iterator[_Gang]:
    """First trial without slots that no agent could run, even if it had room: one for each image where these count. One
    is enough: agents run many of them, so one node will do to begin with."""
    ground = Ground(state, pool)
    able = [item for item in pool.agents if (closed := state.agents[item].closed) is None or not closed.agent]
    told: set[tuple[str, str]] = set()
    for _, _, key in pool.auxiliary_queue:
        experiment = state.experiments[key]
        asked = experiment.constraints or ANYWHERE
        images = _images(experiment, asked, provisioned)
        if images in told or any(ground.allows(asked, item) for item in able):
            continue
        told.add(images)
        yield _Gang(experiment, asked, 0)
        if not provisioned.by_image:
            return
