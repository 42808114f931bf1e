"""Packs the demands of one pool, in the queue's order, on nodes that come or are idle, and finds which nodes are missing. Pure.

Of a gang that may be anywhere the scheduler wants only what is missing beside the free slots, which it lays on them; of others
it wants all. A gang is had whole or asks for nothing. One that no number of nodes within the limits could serve is passed over.
One that the limits leave no room for at present holds back all requests behind it: else small gangs would take every node that
ends, and a large one would wait for ever. One that the limit of its workspace leaves no room for holds back those of the same
workspace. One whose image has failed holds back nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.schemas.events.agent import IMAGES_LABEL
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.node_questions import DemandStanding, Hindrance
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.policies.provisioning.coming_slots import (
    FreeRooms,
    GangRequirements,
    NodeOffer,
    Room,
    image_of,
    nodes_for,
    of_type,
    rooms_of,
    slots_of,
)
from tenuto.services.launcher.policies.provisioning.limits import RemainingLimits, WorkspaceCosts, payer_of, retry_of
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Demand, ProvisionedPool, backoff_key


class NodeRequest(NamedTuple):
    """Nodes that are asked for together."""

    node_type: NodeType
    offer: NodeOffer
    nodes: int
    demand: CapacityDemand
    slots_coming: int
    """Slots that the gang has already."""
    types_passed: int


class _Candidate(NamedTuple):
    """A type of nodes that could serve a gang within the limits."""

    node_type: NodeType
    offer: NodeOffer
    whole: int
    """Nodes of it for a gang that has no slots yet."""
    waits: bool
    """True if it is not asked for now."""
    doubtful: bool
    """True if nodes in its image have failed, and none was of use since: it is tried where there is room, and none is made or
    kept for it, as other work would end for a node that may never come."""


class Blocked(NamedTuple):
    """The first gang that the limits leave no room for at present."""

    demand: Demand
    node_type: NodeType
    nodes: int
    """Nodes that it needs."""
    ahead: frozenset[str]
    """Nodes that gangs ahead of it count on."""


DOUBTFUL_FAILURES = 3
"""Failures in a row after which an image is given free room only: a registry may fail once or twice, and each try in a full pool
ends the work of a good node in order."""


@dataclass
class Packing:
    """Result of one pass."""

    rooms: list[Room]
    numbers: int
    """Number of the last node that was requested before it."""
    requests: list[NodeRequest] = field(default_factory=list)
    blocked: Blocked | None = None
    full: dict[str, CapacityDemand] = field(default_factory=dict)
    """Workspace -> the first of its gangs that its limit leaves no room for at present."""
    unserved: dict[int, int] = field(default_factory=dict)
    """Place in the queue -> number of the gangs there for which nothing comes."""

    def comes(self, place: int, demand: Demand) -> bool:
        """True if nodes come for some gangs of the demand at that place of the queue."""
        return self.unserved.get(place, 0) < demand.wanted.count

    def wanted(self) -> frozenset[str]:
        """Nodes that a waiting gang counts on."""
        return frozenset([room.node_id for room in self.rooms if room.wanted])


def _is_doubtful(pool: ProvisionedPool, node_type: NodeType, image: str) -> bool:
    """True for an image whose nodes have failed again and again."""
    before = pool.backoffs.get(backoff_key(node_type, image)) if image else None
    return before is not None and before.failures >= DOUBTFUL_FAILURES


def pack(state: State, pool: ProvisionedPool, now_us: int) -> Packing:
    return _Pass(state, pool, now_us).run()


class _Pass:
    def __init__(self, state: State, pool: ProvisionedPool, now_us: int) -> None:
        self._pool, self._now_us = pool, now_us
        coming, idle = rooms_of(state, pool, now_us)
        self._coming, self._idle = FreeRooms(coming), FreeRooms(idle)
        self._packing = Packing([*coming, *idle], pool.numbers)
        self._limits, self._costs = RemainingLimits(pool), WorkspaceCosts(state, pool)
        types = pool.provisioning.node_types if pool.provisioning.starts_nodes else ()
        self._types = types
        self._candidates: dict[tuple[object, ...], list[_Candidate]] = {}
        """Found once for each kind of gang."""
        self._by_image: dict[str, list[tuple[NodeType, NodeOffer]]] = {}
        self._orders = 1 << 62
        """Order of the last requested room: after all rooms of nodes on record."""

    def run(self) -> Packing:
        for place, demand in enumerate(self._pool.demands):
            left = demand.wanted.count
            while left > 0:
                served = self._serve(demand, left)
                left -= served
                if not served:  # The others of this kind would fare alike.
                    self._packing.unserved[place] = left
                    break
        return self._packing

    def _serve(self, demand: Demand, count: int) -> int:
        """Finds slots for some of these gangs; returns their number."""
        wanted = demand.wanted
        asked, slots = self._asked(wanted), slots_of(wanted)
        if wanted.locality == "agent":
            return self._coming.hold(asked, slots, count) or self._ask(demand, 0, "")
        if held := self._coming.gather(asked, slots, count, in_rack=wanted.locality == "rack"):
            return held
        if wanted.locality == "any":
            return self._ask(demand, self._coming.free(asked), "")
        for rack in self._coming.racks(asked):
            coming = self._coming.free(asked, rack)
            if coming and coming + self._idle_for(wanted, rack) >= slots:
                self._take(wanted, slots, rack)
                return 1
        return self._ask_in_racks(demand)

    def _asked(self, wanted: CapacityDemand) -> GangRequirements:
        return GangRequirements(
            wanted.device, wanted.labels, payer_of(self._pool.provisioning, wanted.workspace), image_of(wanted)
        )

    def _idle_for(self, wanted: CapacityDemand, rack: str) -> int:
        """Free slots of idle nodes that count for a gang in one rack. If they alone would do and the scheduler does not use them,
        there is a reason that is not known here, and they count for nothing. One that may be anywhere was wanted without them."""
        if wanted.locality == "any":
            return 0
        free = self._idle.free(self._asked(wanted), rack)
        return free if free < slots_of(wanted) else 0

    def _take(self, wanted: CapacityDemand, slots: int, rack: str) -> None:
        """Slots of nodes that come first, and the rest of idle ones."""
        asked = self._asked(wanted)
        coming = min(slots, self._coming.free(asked, rack))
        idle = min(slots - coming, self._idle_for(wanted, rack))
        if coming:
            self._coming.spread(asked, coming, rack)
        if idle:
            self._idle.spread(asked, idle, rack)

    def _candidates_for(self, wanted: CapacityDemand) -> list[_Candidate]:
        image = image_of(wanted)
        key = (wanted.device, wanted.labels, image, wanted.locality, wanted.slots, self._costs.limit(wanted.workspace))
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = [
                _Candidate(
                    node_type,
                    offer,
                    whole,
                    waits=retry_of(self._pool, node_type, offer.image, self._now_us) is not None,
                    doubtful=_is_doubtful(self._pool, node_type, offer.image),
                )
                for node_type, offer in self._offers(image)
                if (whole := nodes_for(offer, wanted))
                and self._limits.could_allow(whole, node_type.cost_per_hour)
                and self._costs.could_allow(wanted.workspace, whole * node_type.cost_per_hour)
            ]
        return found

    def _offers(self, image: str) -> list[tuple[NodeType, NodeOffer]]:
        """Types of nodes, each with the offer of a new one. Found once for each image."""
        if image not in self._by_image:
            self._by_image[image] = [(item, of_type(self._pool, item, self._now_us, image)) for item in self._types]
        return self._by_image[image]

    def _ask_in_racks(self, demand: Demand) -> int:
        wanted = demand.wanted
        racks = sorted({item.offer.rack for item in self._candidates_for(wanted)})
        for rack in racks:
            there = self._coming.free(self._asked(wanted), rack) + self._idle_for(wanted, rack) if rack else 0
            if self._ask(demand, there, rack):
                return 1
        return 0

    def _ask(self, demand: Demand, there: int, rack: str) -> int:
        """Requests the nodes that one gang misses beside the slots that it has. Returns 1 if it has all now."""
        if self._packing.blocked is not None and self._packing.blocked.demand is not demand:
            return 0
        wanted, limits, passed = demand.wanted, self._limits, 0
        if self._packing.full.get(wanted.workspace, wanted) is not wanted:
            return 0
        slots, full = slots_of(wanted), False
        hindered: tuple[NodeType, int] | None = None
        for node_type, offer, whole, is_waiting, doubtful in self._candidates_for(wanted):
            if wanted.locality == "rack" and offer.rack != rack:
                continue
            count = 1 if whole == 1 else -(-(slots - there) // offer.slots)
            if is_waiting:
                passed += 1
            elif not self._costs.allow(wanted.workspace, count * node_type.cost_per_hour):
                passed += 1
                full = full or not doubtful
            elif not limits.allow(count, node_type.cost_per_hour):
                passed += 1
                hindered = hindered or (None if doubtful else (node_type, count))
            else:
                self._request(wanted, node_type, offer, count, there if whole > 1 else 0, rack, passed)
                self._packing.blocked = None  # another rack had no room for it
                self._packing.full.pop(wanted.workspace, None)
                return 1
        if hindered is not None and self._packing.blocked is None:
            self._packing.blocked = Blocked(demand, *hindered, self._packing.wanted())
        if full and hindered is None:
            self._packing.full.setdefault(wanted.workspace, wanted)
        return 0

    def _request(
        self, wanted: CapacityDemand, node_type: NodeType, offer: NodeOffer, count: int, there: int, rack: str, passed: int
    ) -> None:
        slots = slots_of(wanted)
        if there:
            self._take(wanted, there, rack)
        self._limits.take(count, node_type.cost_per_hour)
        self._costs.take(wanted.workspace, count * node_type.cost_per_hour)
        self._packing.requests.append(NodeRequest(node_type, offer, count, wanted, there, passed))
        left = slots - there
        for _ in range(count):
            taken = min(left, offer.slots)
            left -= taken
            # Its rest serves what waits behind. A name is given when the request is recorded.
            payer = self._asked(wanted).workspace
            self._orders += 1
            self._coming.add(Room("", offer, offer.slots - taken, self._orders, workspace=payer))


def standings(state: State, pool: ProvisionedPool, now_us: int) -> tuple[DemandStanding, ...]:
    """Nodes that come for each demand, and the reason why no more do: for people who ask; in the queue's order."""
    packing = pack(state, pool, now_us)
    unserved, costs = packing.unserved, WorkspaceCosts(state, pool)
    found: list[DemandStanding] = []
    for place, demand in enumerate(pool.demands):
        missing = unserved.get(place, 0)
        hindrance, retry_at_us = _hindrance(pool, packing, costs, demand.wanted, now_us) if missing else ("", None)
        coming = demand.wanted.count - missing
        found.append(DemandStanding(demand=demand.wanted, gangs_coming=coming, hindrance=hindrance, retry_at_us=retry_at_us))
    return tuple(found)


def _never(settings: Provisioning, wanted: CapacityDemand) -> Hindrance:
    """Hindrance of a gang that no nodes within the limits serve."""
    if IMAGES_LABEL not in wanted.labels or any(item.images for item in settings.node_types):
        return "never"
    return "never" if any(item.runs_in(image_of(wanted)) for item in settings.node_types) else "image"


def _hindrance(
    pool: ProvisionedPool, packing: Packing, costs: WorkspaceCosts, wanted: CapacityDemand, now_us: int
) -> tuple[Hindrance, int | None]:
    settings, limits = pool.provisioning, RemainingLimits(pool)
    retries: list[int] = []
    able = 0
    for node_type in settings.node_types if settings.starts_nodes else ():
        offer = of_type(pool, node_type, now_us, image_of(wanted))
        whole = nodes_for(offer, wanted)
        if not whole or not limits.could_allow(whole, node_type.cost_per_hour):
            continue
        if not costs.could_allow(wanted.workspace, whole * node_type.cost_per_hour):
            continue
        able += 1
        if (retry_at_us := retry_of(pool, node_type, offer.image, now_us)) is not None:
            retries.append(retry_at_us)
    if not able:
        return _never(settings, wanted), None
    if len(retries) == able:
        return "later", min(retries)
    return ("workspace" if wanted.workspace in packing.full else "limits"), None
