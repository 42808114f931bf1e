"""Events about agents and the slots they offer. Owner: launcher. Stream: agent/<id>."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, event

IMAGES_LABEL = "runtime:docker"
"""Label that the scheduler gives to agents that run images, and asks for trials that name one. No user's label has a colon."""
AUXILIARY_TRIALS_MAX = 100
"""Default limit of trials without slots on one agent. Such trials mostly wait and need little, but each is a process with its
own interpreter."""


class Slot(Model):
    slot_id: int
    kind: Literal["cpu", "cuda"]
    device: str
    """The device's name as its driver gives it, or "cpu"."""
    uuid: str = ""
    """Stable device id (GPU UUID); empty for CPU slots."""


class Agent(EventData):
    OWNER: ClassVar[str] = "launcher"
    STREAM: ClassVar[str] = "agent"

    agent_id: str

    def stream_key(self) -> str:
        return self.agent_id


class Offer(Model):
    """Description of an agent by itself, in its heartbeats and in AgentJoined."""

    pool: str
    host: str
    slots: tuple[Slot, ...]
    version: str
    labels: tuple[str, ...] = ()
    """Labels of the agent, each `key=value`; agents with the same `rack=...` are near each other."""
    auxiliary_trials_max: int = Field(default=AUXILIARY_TRIALS_MAX, ge=0, exclude_if=lambda value: value == AUXILIARY_TRIALS_MAX)
    """Most trials without slots that the agent runs at once."""
    runtimes: tuple[str, ...] = Field(default=("process",), exclude_if=lambda value: value == ("process",))
    """How the agent can run workers: process, docker. A trial that names an image needs docker."""


@event("AgentJoined")
class AgentJoined(Offer, Agent):
    """The agent was seen for the first time, again after it was lost, or with other slots than before."""


@event("AgentLost")
class AgentLost(Agent):
    reason: str
