"""Which rank runs where. Pure: the agent, the supervisors and the ranks all read it off the assignment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

GANG_VARIABLE = "TENUTO_GANG"
"""In a supervisor's environment: a `GangPart` as JSON."""
CHANNEL_VARIABLE = "TENUTO_GANG_CHANNEL"
"""In a rank's environment: the descriptor of its socket to the supervisor."""
PROGRESS_VARIABLE = "TENUTO_PROGRESS_FILE"
RENDEZVOUS_FILE = "rendezvous"
"""In a run's directory: where rank 0's supervisor listens, `host:port`. Written by that supervisor on its agent, by the agents
elsewhere."""
PROGRESS_FILE = "progress"


@dataclass(frozen=True)
class GangPart:
    """One agent's part of a gang, as its supervisor is told."""

    allocation_id: str
    agents: tuple[tuple[str, int], ...]
    """(agent, its number of ranks), in rank order: the first rank of an agent follows the last of the one before."""
    agent_index: int
    directory: str
    """The run's, on this agent."""
    address: str
    """Of this node, as the others reach it; the loopback address where the gang is on one agent."""
    interface: str = ""
    """Name of that address's interface; empty: not known."""
    command: tuple[str, ...] = ()
    """Of a rank that starts cold."""
    secret: str = ""
    """What the parts on other agents show to rank 0's supervisor: it keeps processes of other gangs out. Empty where there are
    none."""
    progress_seconds_max: float = 1800.0
    """A rank that does not get on for so long is hung, whatever its steps took before."""
    link_seconds_max: float = 10.0
    """Another agent of which nothing is heard for so long cannot be reached."""

    @property
    def agent_id(self) -> str:
        return self.agents[self.agent_index][0]

    @property
    def world_size(self) -> int:
        return sum(count for _, count in self.agents)

    @property
    def local_size(self) -> int:
        return self.agents[self.agent_index][1]

    @property
    def first_rank(self) -> int:
        return sum(count for _, count in self.agents[: self.agent_index])

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + self.local_size)

    @property
    def leads(self) -> bool:
        """Rank 0 is here."""
        return self.agent_index == 0

    def agent_of(self, rank: int) -> str:
        for agent_id, count in self.agents:
            if rank < count:
                return agent_id
            rank -= count
        raise IndexError("there is no such rank")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GangPart:
        values: dict[str, Any] = json.loads(text)
        agents = tuple((name, count) for name, count in values["agents"])
        return cls(**{**values, "agents": agents, "command": tuple(values["command"])})


def gang_agents(slots: Sequence[Any]) -> tuple[tuple[str, int], ...]:
    """Of an assignment's `slots`: one rank per slot."""
    return tuple((part.agent_id, len(part.slot_ids)) for part in slots)
