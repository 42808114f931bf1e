"""Questions to the launcher about what provisioners have, and its answers. They decide nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.pool import CapacityDemand
from tenuto.schemas.names import AGENT_NAME_PATTERN, NAME_PATTERN
from tenuto.schemas.provisioning import Provisioning

LOG_LINES_MAX = 10_000


class NodesQuestion(Model):
    about: Literal["check", "known", "logs", "standings"]
    pool: str = Field(pattern=NAME_PATTERN)
    provisioning: Provisioning | None = None
    """check: of these settings; None: of those that the pool has. known: the launcher has the provisioner of these."""
    node_id: str = Field(default="", pattern=rf"^$|{AGENT_NAME_PATTERN}")
    """logs: of this node."""
    lines_max: int = Field(default=200, ge=1, le=LOG_LINES_MAX)


class CheckFinding(Model):
    what: str
    """Subject of the check, such as `partition gpu`."""
    problem: str = ""
    """Fault and remedy, as a sentence. Empty: there is none."""
    note: str = ""
    """Warning of a setting that is right for some clusters and wrong for others, as a sentence. Empty: none."""


Hindrance = Literal["", "never", "image", "limits", "workspace", "later"]
"""never: no number of nodes within the limits serves it. image: no type of nodes runs its image, or has what it asks of a
container. limits: so many other nodes exist, or a gang before it waits for some to end. workspace: the same of nodes and gangs of
its workspace. later: nodes of the types that serve it could not be had just now. Empty: nothing hinders it."""


class DemandStanding(Model):
    """Nodes that come for gangs that wait, and the reason why no more do."""

    demand: CapacityDemand
    gangs_coming: int
    """Gangs with slots on nodes that come or are being requested."""
    hindrance: Hindrance = ""
    """Reason why the other gangs get no nodes."""
    retry_at_us: int | None = None
    """later: time at which the first of the types is asked for again."""


class NodeWords(Model):
    """The provider's words on a node that has not joined: why it is pending, or does not get on."""

    node_id: str
    words: str


class NodesAnswer(Model):
    standings: tuple[DemandStanding, ...] = ()
    words: tuple[NodeWords, ...] = ()
    """standings: on nodes that the provider said something of when it was last asked."""
    trouble: str = ""
    """standings: why the provider cannot be asked, or starts nothing, just now, as a sentence. Empty: it can."""
    findings: tuple[CheckFinding, ...] = ()
    logs: str = ""
    error: str = ""
    """Reason why there is no answer, as a sentence."""
    code: Literal["", "not_found", "unavailable"] = ""
    """not_found, to known: the launcher has no such provisioner."""
