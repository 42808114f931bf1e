"""Commands to the launcher from outside the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.assignments import Heartbeat
from tenuto.schemas.reports import LauncherReport


@dataclass(frozen=True)
class RecordRunReport:
    """An agent's report about the workers of one allocation."""

    id: UUID
    time_us: int
    report: LauncherReport
    trace: str = ""


@dataclass(frozen=True)
class RecordHeartbeat:
    """An agent says that it is there, what it offers and what it has."""

    id: UUID
    time_us: int
    heartbeat: Heartbeat
    fresh: bool
    """No report of this agent overtook the heartbeat, so an allocation that it does not list is one that it does not have."""


@dataclass(frozen=True)
class EndRestartPauses:
    """Trials whose pause before the next start is over by `time_us` may start."""

    id: UUID
    time_us: int


@dataclass(frozen=True)
class ExpireLease:
    """Nothing was heard of an agent for longer than its lease."""

    id: UUID
    time_us: int
    agent_id: str
    reason: str


NodePhase = Literal["pending", "running", "ended"]
StartTrouble = Literal["capacity", "quota", "refused", "unreachable"]


@dataclass(frozen=True)
class SeenNode:
    """A node as its provider shows it. Two may have one id, if the provider took an order twice."""

    node_id: str
    provider_id: str
    phase: NodePhase
    """pending: it waits in the provider's own queue, or boots. ended: nothing of it runs or is paid for."""
    detail: str = ""
    outdated: bool = False
    """True if it was started with another installation than nodes are started with now."""
    image_missing: bool = False
    """True if it does not get on because its image cannot be pulled."""


@dataclass(frozen=True)
class StartFailure:
    """The provider's answer to an order to start a node."""

    node_id: str
    kind: StartTrouble
    """unreachable: not known whether the node starts. It decides nothing: the next look shows it."""
    message: str = ""


@dataclass(frozen=True)
class LookAtNodes:
    """All nodes that a provider has for one pool, beside the record."""

    id: UUID
    time_us: int
    pool: str
    generation: int
    """Number of the pool's settings by which the provider was asked: its nodes of other generations are not judged."""
    nodes: tuple[SeenNode, ...] | None
    """None: the provider did not tell, so nothing follows from a node that is missing."""
    failures: tuple[StartFailure, ...] = ()
    """Orders that failed since the last look."""


@dataclass(frozen=True)
class TickNodes:
    """Time has passed: nodes that are idle, or whose agent does not come, are judged, in all pools."""

    id: UUID
    time_us: int
