"""The coordinator: decisions that concern all ranks of a gang, made in rank 0's supervisor. Pure: messages in, messages out.

Agreement on a boundary: when rank 0 gets a new directive, every rank answers with the next boundary at which it could act (it
stops there until the decision), and all act at the latest of these. So ranks that run freely, without exchanging messages, leave
after the same batch; while there is nothing new, this costs nothing. A rank whose script has ended passes no more boundaries, and
is not waited for.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tenuto.workers.launch.messages import Message

TO_ALL = -1
Sent = list[tuple[int, Message]]
"""(rank or TO_ALL, message)"""


class Coordinator:
    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._asks: deque[Message] = deque()
        self._asked = 0
        self._holds: dict[int, int] | None = None
        """Boundaries by rank, while an agreement is under way."""
        self._done: set[int] = set()
        """Ranks that have trained to their end."""
        self._values: dict[str, Any] = {}
        self._waiting: dict[str, list[tuple[int, int]]] = {}
        """(rank, id) of each request that came before its value, by key."""
        self._gathered: dict[str, dict[int, Any]] = {}

    def receive(self, rank: int, message: Message) -> Sent:
        match message.get("op"):
            case "propose":
                self._asks.append(message)
                return self._next_ask()
            case "hold":
                return self._hold(rank, message)
            case "done":
                self._done.add(rank)
                return self._decide()
            case "leave":  # a rank's node shuts down: rank 0 saves and all leave
                return [(0, message)]
            case "gather":
                return self._gather(rank, message)
            case "put":
                self._values[message["key"]] = message["value"]
                waiting = self._waiting.pop(message["key"], [])
                return [(to, {"op": "value", "id": number, "value": message["value"]}) for to, number in waiting]
            case "get":
                if message["key"] in self._values:
                    return [(rank, {"op": "value", "id": message["id"], "value": self._values[message["key"]]})]
                self._waiting.setdefault(message["key"], []).append((rank, message["id"]))
        return []

    def _next_ask(self) -> Sent:
        if self._holds is not None or not self._asks:
            return []
        self._asked += 1
        self._holds = {}
        return [(TO_ALL, {"op": "ask", "n": self._asked})]

    def _hold(self, rank: int, message: Message) -> Sent:
        if self._holds is None or message["n"] != self._asked:
            return []
        self._holds[rank] = message["at"]
        return self._decide()

    def _decide(self) -> Sent:
        """Decides once every rank that still can has answered."""
        if self._holds is None or len(self._holds.keys() | self._done) < self._world_size:
            return []
        proposed, at = self._asks.popleft(), max(self._holds.values(), default=0)
        self._holds = None
        decided = {**proposed, "op": "decided", "n": self._asked, "at": at}
        return [(TO_ALL, decided), *self._next_ask()]

    def _gather(self, rank: int, message: Message) -> Sent:
        tag = message["tag"]
        values = self._gathered.setdefault(tag, {})
        values[rank] = message["value"]
        if len(values) < self._world_size:
            return []
        del self._gathered[tag]
        return [(TO_ALL, {"op": "gathered", "tag": tag, "values": [values[index] for index in range(self._world_size)]})]
