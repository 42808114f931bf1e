"""Free slots of a pool's nodes that come, or have come and are idle, during one pass. Pure.

Rooms are filled in their order: so a later pass finds the same ones for the same gang, and leaves what was requested behind it to
those behind it. Rooms with the same offer are kept by their number of free slots, so that the room for a gang is found without
looking at each: a pass over a thousand demands and five hundred nodes takes milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from tenuto.services.launcher.policies.provisioning.offers import Offer, serves


class Asked(NamedTuple):
    """Requirements of a gang on rooms."""

    device: str
    labels: tuple[str, ...]
    workspace: str = ""
    """Empty: workspaces are not told apart."""


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
    workspace: str = ""
    """Workspace whose gangs alone may count on it; empty: any."""


@dataclass(eq=False)
class _Alike:
    """Rooms with the same offer, for the same workspace."""

    offer: Offer
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


class Rooms:
    def __init__(self, rooms: Iterable[Room]) -> None:
        self._alike: dict[tuple[Offer, str], _Alike] = {}
        self._serving: dict[Asked, list[_Alike]] = {}
        self._racks: dict[Asked, list[str]] = {}
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

    def _that_serve(self, asked: Asked) -> list[_Alike]:
        if asked not in self._serving:
            self._serving[asked] = [
                alike
                for alike in self._alike.values()
                if alike.workspace in ("", asked.workspace) and serves(alike.offer, asked.device, asked.labels)
            ]
        return self._serving[asked]

    def racks(self, asked: Asked) -> list[str]:
        if asked not in self._racks:
            self._racks[asked] = sorted({alike.offer.rack for alike in self._that_serve(asked) if alike.offer.rack})
        return self._racks[asked]

    def free(self, asked: Asked, rack: str = "") -> int:
        """Free slots of all rooms that serve, in that rack if one is named."""
        return sum([alike.free for alike in self._that_serve(asked) if not rack or alike.offer.rack == rack])

    def hold(self, asked: Asked, slots: int, count: int) -> int:
        """Fills the first room that holds a gang of so many slots with as many of them as it holds, at most `count`; returns
        their number."""
        found = self._first(self._that_serve(asked), slots)
        return 0 if found is None else self._fill(*found, slots, count)

    def gather(self, asked: Asked, slots: int, count: int, *, in_rack: bool) -> int:
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

    def spread(self, asked: Asked, slots: int, rack: str = "") -> None:
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
