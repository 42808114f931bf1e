"""Offers of nodes, and free slots of a pool's nodes that come, or have come and are idle, during one pass. Pure.

Rooms are filled in their order: so a later pass finds the same ones for the same gang, and leaves what was requested behind it to
those behind it. Rooms with the same offer are kept by their number of free slots, so that the room for a gang is found without
looking at each: a pass over a thousand demands and five hundred nodes takes milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from tenuto.schemas.events.agent import IMAGES_LABEL, AgentJoined
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.policies.provisioning.limits import payer_of
from tenuto.services.launcher.state import State
from tenuto.services.launcher.state.nodes import Node, ProvisionedPool

OFFERED_SECONDS = 3_600.0
"""Time for which the real offer of a type's last node is trusted: a defective node must not speak for its type for ever."""
RACK = "rack="
"""Prefix of the label that says which nodes are near each other."""
SETTLE_SECONDS = 15.0
"""The scheduler needs so long at most to fill a node that has joined; what waits longer waits for something else."""


class NodeOffer(NamedTuple):
    slots: int
    devices: tuple[str, ...]
    """Names of devices, in lower case; empty: not known."""
    labels: tuple[str, ...]
    image: str = ""
    """Image that it runs in as a whole, for gangs that name it and no others; empty: none."""

    @property
    def rack(self) -> str:
        return next((label for label in self.labels if label.startswith(RACK)), "")


def of_type(pool: ProvisionedPool, node_type: NodeType, now_us: int, image: str = "") -> NodeOffer:
    """Offer of a new node of the type, in the image if one is named and it may run in it. The real offer of the last node is
    trusted more than the settings."""
    seen = pool.offered.get(node_type.name)
    devices = (node_type.device.lower(),) if node_type.device else ()
    labels = (*node_type.labels, IMAGES_LABEL) if node_type.images else node_type.labels
    image = image if node_type.runs_in(image) else ""
    if seen is None or now_us - seen.seen_at_us >= OFFERED_SECONDS * 1e6:
        return NodeOffer(node_type.slots, devices, labels, image)
    return NodeOffer(seen.slots, seen.devices, labels, image)


def of_agent(agent: AgentJoined) -> NodeOffer:
    devices = tuple(sorted({slot.device.lower() for slot in agent.slots}))
    labels = (*agent.labels, IMAGES_LABEL) if agent.runs_images else agent.labels
    return NodeOffer(len(agent.slots), devices, labels, agent.image)


def image_of(demand: CapacityDemand) -> str:
    """Image that a node may run in as a whole for the gang; empty: none."""
    return demand.image if demand.node_image else ""


def serves(offer: NodeOffer, device: str, labels: tuple[str, ...], image: str) -> bool:
    """`image`: that a node may run in as a whole for the gang."""
    if device and offer.devices and not any(device in name for name in offer.devices):
        return False
    if offer.image and offer.image != image:
        return False
    return all(label in offer.labels or (label == IMAGES_LABEL and bool(offer.image)) for label in labels)


def nodes_for(offer: NodeOffer, demand: CapacityDemand) -> int:
    """Nodes with this offer that one gang needs; 0: no number of them serves it."""
    slots = slots_of(demand)
    if offer.slots < 1 or not serves(offer, demand.device, demand.labels, image_of(demand)):
        return 0
    if slots <= offer.slots:
        return 1
    if demand.locality == "agent" or (demand.locality == "rack" and not offer.rack):
        return 0
    return -(-slots // offer.slots)


def slots_of(demand: CapacityDemand) -> int:
    """Slots that a gang takes on nodes: one that needs none still needs an agent to run on."""
    return max(1, demand.slots)


class GangRequirements(NamedTuple):
    """Requirements of a gang on rooms."""

    device: str
    labels: tuple[str, ...]
    workspace: str = ""
    """Empty: workspaces are not told apart."""
    image: str = ""
    """Image that a node may run in as a whole for it; empty: none."""


@dataclass(eq=False)
class Room:
    """Free slots on one node."""

    node_id: str
    offer: NodeOffer
    free: int
    order: int
    """Rooms of a lower number are filled first."""
    wanted: bool = False
    """True if a waiting gang counts on it."""
    workspace: str = ""
    """Workspace whose gangs alone may count on it; empty: any."""


@dataclass(eq=False)
class _Alike:
    """Rooms with the same offer, for the same workspace."""

    offer: NodeOffer
    workspace: str
    levels: list[int] = field(default_factory=list)
    """Numbers of free slots that any room may have, ascending."""
    by_free: dict[int, list[tuple[int, Room]]] = field(default_factory=dict)
    """Number of free slots -> heap of (order, room); rooms that have another number by now are left in it."""
    free: int = 0

    def put(self, room: Room) -> None:
        """A room with its present number of free slots."""
        if room.free < 1:
            return
        if room.free not in self.by_free:
            insort(self.levels, room.free)
            self.by_free[room.free] = []
        heappush(self.by_free[room.free], (room.order, room))
        self.free += room.free

    def pop(self, level: int) -> Room | None:
        """The first room with exactly so many free slots."""
        heap = self.by_free[level]
        if not heap:
            del self.by_free[level]
            self.levels.remove(level)
            return None
        room = heappop(heap)[1]
        self.free -= room.free
        return room

    def first(self, slots: int) -> tuple[int, int] | None:
        """(order, free slots) of the first room that has so many free slots."""
        if not self.free:
            return None
        levels = self.levels[bisect_left(self.levels, slots) :]
        return min([(self.by_free[level][0][0], level) for level in levels if self.by_free[level]], default=None)


class FreeRooms:
    def __init__(self, rooms: Iterable[Room]) -> None:
        self._alike: dict[tuple[NodeOffer, str], _Alike] = {}
        self._serving: dict[GangRequirements, list[_Alike]] = {}
        self._racks: dict[GangRequirements, list[str]] = {}
        for room in rooms:
            self.add(room)

    def add(self, room: Room) -> None:
        key = room.offer, room.workspace
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = _Alike(*key)
            self._serving.clear()
            self._racks.clear()
        alike.put(room)

    def _that_serve(self, asked: GangRequirements) -> list[_Alike]:
        if asked not in self._serving:
            self._serving[asked] = [
                alike
                for alike in self._alike.values()
                if alike.workspace in ("", asked.workspace) and serves(alike.offer, asked.device, asked.labels, asked.image)
            ]
        return self._serving[asked]

    def racks(self, asked: GangRequirements) -> list[str]:
        if asked not in self._racks:
            self._racks[asked] = sorted({alike.offer.rack for alike in self._that_serve(asked) if alike.offer.rack})
        return self._racks[asked]

    def free(self, asked: GangRequirements, rack: str = "") -> int:
        """Free slots of all rooms that serve, in that rack if one is named."""
        return sum([alike.free for alike in self._that_serve(asked) if not rack or alike.offer.rack == rack])

    def hold(self, asked: GangRequirements, slots: int, count: int) -> int:
        """Fills the first room that holds a gang of so many slots with as many of them as it holds, at most `count`; returns
        their number."""
        found = self._first(self._that_serve(asked), slots)
        return 0 if found is None else self._fill(*found, slots, count)

    def gather(self, asked: GangRequirements, slots: int, count: int, *, in_rack: bool) -> int:
        """The same for gangs on several nodes: goes through the rooms in their order until one holds a gang, or those before it
        do together, in one rack if they must."""
        serving = self._that_serve(asked)
        free: dict[str, int] = {}
        for alike in serving:
            rack = alike.offer.rack if in_rack else ""
            free[rack] = free.get(rack, 0) + alike.free
        if in_rack:
            free.pop("", None)  # rooms without a rack are near no others
        if max(free.values(), default=0) < slots and (not in_rack or self._first(serving, slots) is None):
            return 0
        passed: list[tuple[_Alike, Room]] = []
        gangs, left = 0, dict.fromkeys(free, slots)
        together: str | None = None
        while not gangs and together is None:
            found = self._first(serving, 1)
            assert found is not None
            alike, level = found
            if level >= slots:
                gangs = self._fill(alike, level, slots, count)
            elif (room := alike.pop(level)) is not None:
                passed.append((alike, room))
                rack = alike.offer.rack if in_rack else ""
                if rack in left:
                    left[rack] -= room.free
                    together = rack if left[rack] <= 0 else None
        for alike, room in passed:
            if together is not None and together == (alike.offer.rack if in_rack else ""):
                room.free = -left[together] if room is passed[-1][1] else 0
                room.wanted = True
            alike.put(room)
        return gangs or 1

    def _first(self, serving: list[_Alike], slots: int) -> tuple[_Alike, int] | None:
        """(rooms among which is the one that is filled first of those with so many free slots, their number of free slots)."""
        found: tuple[int, int] | None = None
        where: _Alike | None = None
        for alike in serving:
            if (first := alike.first(slots)) is not None and (found is None or first < found):
                found, where = first, alike
        return None if found is None or where is None else (where, found[1])

    def _fill(self, alike: _Alike, level: int, slots: int, count: int) -> int:
        room = alike.pop(level)
        assert room is not None
        gangs = min(count, room.free // slots)
        room.free -= gangs * slots
        room.wanted = True
        alike.put(room)
        return gangs

    def spread(self, asked: GangRequirements, slots: int, rack: str = "") -> None:
        """Takes so many slots, which must be free, from rooms in their order."""
        serving = [alike for alike in self._that_serve(asked) if not rack or alike.offer.rack == rack]
        while slots > 0:
            found = self._first(serving, 1)
            assert found is not None
            alike, level = found
            room = alike.pop(level)
            assert room is not None
            taken = min(slots, room.free)
            slots -= taken
            room.free -= taken
            room.wanted = True
            alike.put(room)


def rooms_of(state: State, pool: ProvisionedPool, now_us: int) -> tuple[list[Room], list[Room]]:
    """(nodes that are coming, and those that came a moment ago; nodes and other agents that are idle)."""
    coming: list[tuple[int, Room]] = []
    idle: list[Room] = []
    for node in pool.in_order():
        if node.ending:
            continue
        if node.joined_at_us is None:
            offer = of_type(pool, node.node_type, now_us, node.image)
            offer = offer if node.slots >= offer.slots else offer._replace(slots=node.slots)
            room = Room(node.node_id, offer, offer.slots, node.number, workspace=payer_of(pool.provisioning, node.workspace))
            coming.append((1 if node.started_at_us is not None else 2, room))
        elif now_us - node.joined_at_us < SETTLE_SECONDS * 1e6:
            if (settling := _room_of(state, node.node_id, node.number)) is not None:
                coming.append((0, replace(settling, workspace=payer_of(pool.provisioning, node.workspace))))
        elif node.idle_since_us is not None and (settled := _room_of(state, node.node_id, node.number)) is not None:
            idle.append(settled)
    idle.extend(_others(state, pool))
    # Those that are nearest to service first, so that the last ones are left over if fewer are needed.
    ranked = sorted(coming, key=lambda entry: (entry[0], entry[1].order))
    return [replace(room, order=at) for at, (_, room) in enumerate(ranked)], idle


def _room_of(state: State, agent_id: str, order: int) -> Room | None:
    """Free slots of an agent in service; None where nothing new begins."""
    agent = state.agents.get(agent_id)
    if agent is None or agent.leaving:
        return None
    used = 0
    for allocation_id in state.on_agent.get(agent_id, ()):
        used += sum([len(part.slot_ids) for part in state.allocations[allocation_id].slots if part.agent_id == agent_id])
    offer = of_agent(agent)
    return Room(agent_id, offer, max(0, offer.slots - used), order)


def _others(state: State, pool: ProvisionedPool) -> list[Room]:
    """Idle agents of the pool that people started."""
    found: list[Room] = []
    for agent_id in sorted(state.agents):
        if state.agents[agent_id].pool == pool.pool and agent_id not in pool.nodes and agent_id not in state.on_agent:
            room = _room_of(state, agent_id, (1 << 61) + len(found))
            if room is not None:
                found.append(room)
    return found


def fits(state: State, pool: ProvisionedPool, node: Node, demand: CapacityDemand, now_us: int) -> bool:
    """True if the node could serve a gang of this kind, alone or with others like it."""
    agent = state.agents.get(node.node_id)
    return nodes_for(of_type(pool, node.node_type, now_us, node.image) if agent is None else of_agent(agent), demand) > 0
