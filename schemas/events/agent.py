"""Events about agents and the slots they offer. Owner: launcher. Stream: agent/<id>."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.registry import EventData, event

IMAGES = "docker"
"""Word among the runtimes of an offer that says that the agent runs images, whichever of its runtimes does: on record it is the
name of the first one that did."""
IMAGES_LABEL = "runtime:docker"
"""Label that the scheduler gives to agents that run images, and asks for trials that name one. No user's label has a colon."""
AUXILIARY_TRIALS_MAX = 100
"""Default limit of trials without slots on one agent. Such trials mostly wait and need little, but each is a process with its
own interpreter."""


IMAGE_CHARACTERS_MAX = 512
"""Most characters of an image's name, as in a configuration."""
UNLIMITED_CHARACTERS_MAX = 1_000
"""A sentence for each of two limits, with paths of cgroups."""
NOTICE_CHARACTERS_MAX = 200
"""A few words with a time."""
TIME_US_MAX = 253_402_300_799_000_000
"""Latest time that an agent may name: the end of the year 9999, the last that is shown as a date."""
Leaving = Literal["", "soon", "now"]
"""Nearness of an agent's end. soon: its allocations go on, and no new ones begin there. now: they save a checkpoint and go on
elsewhere. Empty: it is not near."""


class Slot(Model):
    slot_id: int
    kind: Literal["cpu", "cuda"]
    device: str
    """The device's name as its driver gives it, or "cpu"."""
    uuid: str = ""
    """Stable device id (GPU UUID); empty for CPU slots."""


class AgentEvent(EventData):
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
    """Names of the runtimes by which the agent can run workers, such as process, and IMAGES if one of them runs images."""
    image: str = Field(default="", max_length=IMAGE_CHARACTERS_MAX, exclude_if=lambda value: not value)
    """Image in which the agent runs with all its trials, because these name it: others do not run there. Empty: none."""
    unlimited: str = Field(default="", max_length=UNLIMITED_CHARACTERS_MAX, exclude_if=lambda value: not value)
    """Reason why runs on the agent lack some limits that its operator set; empty: they have them, or none are set."""
    leaving: Leaving = Field(default="", exclude_if=lambda value: not value)
    leaves_at_us: int | None = Field(default=None, ge=0, le=TIME_US_MAX, exclude_if=lambda value: value is None)
    """Time at which the agent has to be gone, such as the end of its Slurm job. None: it has none, or it is not known."""
    notice: str = Field(default="", max_length=NOTICE_CHARACTERS_MAX, exclude_if=lambda value: not value)
    """Words of the provider of its machine on that end, such as a preemption; empty: it gave no notice."""

    @property
    def runs_images(self) -> bool:
        return IMAGES in self.runtimes


@event("AgentJoined")
class AgentJoined(Offer, AgentEvent):
    """The agent was seen for the first time, again after it was lost, or with another offer than before."""


@event("AgentLost")
class AgentLost(AgentEvent):
    reason: str
    announced: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: the agent itself has said that it ends; nothing is wrong with it. Its last word need not have come: it is enough that
    the last AgentJoined has `leaving: now`, or `soon` for an agent without work."""
