"""Free slots of a pool's nodes that come, or have come and are idle, during one pass. Pure.

Rooms with the same offer are kept by their number of free slots, so that the room for a gang is found without looking at each:
a pass over a thousand demands and five hundred nodes takes milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tenuto.services.launcher.policies.provisioning.offers import Offer, serves


@dataclass(eq=False)
class Room:
    """Free slots on one node."""

    node_id: str
    offer: Offer
    free: int
    order: int
    """Rooms of a lower number are filled first."""
    wanted: bool = False
    """True if a waiting gang counts on it."""


@dataclass(eq=False)
class _Alike:
    """Rooms with the same offer."""

    offer: Offer
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

    def smallest(self, slots: int) -> Room | None:
        """The room where so many slots leave least over, taken out."""
        at = bisect_left(self.levels, slots)
        while at < len(self.levels):
            if (room := self.pop(self.levels[at])) is not None:
                return room
        return None

    def largest(self) -> Room | None:
        while self.levels:
            if (room := self.pop(self.levels[-1])) is not None:
                return room
        return None


class Rooms:
    def __init__(self, rooms: Iterable[Room]) -> None:
        self._alike: dict[Offer, _Alike] = {}
        self._serving: dict[tuple[str, tuple[str, ...]], list[_Alike]] = {}
        self._racks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for room in rooms:
            self.add(room)

    def add(self, room: Room) -> None:
        alike = self._alike.get(room.offer)
        if alike is None:
            alike = self._alike[room.offer] = _Alike(room.offer)
            self._serving.clear()
            self._racks.clear()
        alike.put(room)

    def _that_serve(self, device: str, labels: tuple[str, ...]) -> list[_Alike]:
        key = (device, labels)
        if key not in self._serving:
            self._serving[key] = [alike for alike in self._alike.values() if serves(alike.offer, device, labels)]
        return self._serving[key]

    def racks(self, device: str, labels: tuple[str, ...]) -> list[str]:
        key = (device, labels)
        if key not in self._racks:
            self._racks[key] = sorted({alike.offer.rack for alike in self._that_serve(device, labels) if alike.offer.rack})
        return self._racks[key]

    def free(self, device: str, labels: tuple[str, ...], rack: str = "") -> int:
        """Free slots of all rooms that serve, in that rack if one is named."""
        return sum([alike.free for alike in self._that_serve(device, labels) if not rack or alike.offer.rack == rack])

    def hold(self, device: str, labels: tuple[str, ...], slots: int, count: int) -> int:
        """Fills one room with as many gangs of so many slots as it holds, at most `count`; returns their number."""
        found: tuple[int, int, _Alike] | None = None
        for at, alike in enumerate(self._that_serve(device, labels)):
            level = bisect_left(alike.levels, slots)
            if level < len(alike.levels) and (found is None or (alike.levels[level], at) < found[:2]):
                found = (alike.levels[level], at, alike)
        if found is None:
            return 0
        room = found[2].smallest(slots)
        if room is None:  # The levels held only rooms that had gone: others may have it.
            return self.hold(device, labels, slots, count)
        gangs = min(count, room.free // slots)
        room.free -= gangs * slots
        room.wanted = True
        found[2].put(room)
        return gangs

    def spread(self, device: str, labels: tuple[str, ...], slots: int, rack: str = "") -> None:
        """Takes so many slots, which must be free, from as few rooms as possible."""
        for alike in self._that_serve(device, labels):
            if rack and alike.offer.rack != rack:
                continue
            while slots > 0 and (room := alike.largest()) is not None:
                taken = min(slots, room.free)
                slots -= taken
                room.free -= taken
                room.wanted = True
                alike.put(room)
        assert slots <= 0
