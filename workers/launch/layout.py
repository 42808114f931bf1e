"""Layout of a gang: which rank runs where. Pure: the agent, the supervisors and the ranks all derive it from the assignment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

GANG_VARIABLE = "TENUTO_GANG"
"""Variable in a supervisor's environment: a `GangPart` as JSON."""
CHANNEL_VARIABLE = "TENUTO_GANG_CHANNEL"
"""Variable in a rank's environment: descriptor of its socket to the supervisor."""
PROGRESS_VARIABLE = "TENUTO_PROGRESS_FILE"
RENDEZVOUS_FILE = "rendezvous"
"""File in a run's directory with the address of rank 0's supervisor, `host:port`. That supervisor writes it on its own agent;
the agents write it elsewhere."""
PROGRESS_FILE = "progress"


@dataclass(frozen=True)
class GangPart:
    """One agent's part of a gang, as its supervisor gets it."""

    allocation_id: str
    agents: tuple[tuple[str, int], ...]
    """(agent, its number of ranks), in rank order: the first rank of an agent follows the last of the previous one."""
    agent_index: int
    directory: str
    """Directory of the run on this agent."""
    address: str
    """Address of this node for the others; the loopback address if the gang is on one agent."""
    interface: str = ""
    """Name of that address's interface; empty: not known."""
    network: str = ""
    """Docker network that the address is on; empty: the node's own."""
    command: tuple[str, ...] = ()
    """Command of a rank that starts cold."""
    secret: str = ""
    """Secret that the parts on other agents show to rank 0's supervisor, which keeps out processes of other gangs. Empty:
    there are no other parts."""
    progress_seconds_max: float = 1800.0
    """Time without progress after which a rank counts as hung, whatever its earlier steps took."""
    link_seconds_max: float = 10.0
    """Silence after which another agent counts as unreachable."""

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
        """True if rank 0 is on this agent."""
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
    """(agent, number of ranks) of an assignment's `slots`: one rank per slot."""
    return tuple((part.agent_id, len(part.slot_ids)) for part in slots)
