"""What users ask for. Owner: gateway. Stream: request/<experiment>."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.resources import NAME_PATTERN
from tenuto.schemas.config.searchers import CONCURRENT_TRIALS_MAX, TRIALS_MAX
from tenuto.schemas.events.registry import EventData, event
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.schemas.record import Origin, Parent


class Request(EventData):
    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "request"

    experiment_id: int

    def stream_key(self) -> str:
        return str(self.experiment_id)


@event("ExperimentSubmitted")
class ExperimentSubmitted(Request):
    VERSION: ClassVar[int] = 2
    """2: an experiment names the store of its checkpoints."""

    config: ExperimentConfig
    seed: int = Field(ge=0, lt=2**63)
    """The experiment's seed: the configured one, or the one drawn by the gateway at submission."""
    context_hash: str
    """SHA-256 (hex) of the packed model directory."""
    context_size_bytes: int
    user: str
    origin: Origin | None = None
    """The command line, its overrides, and the state of the version control."""
    parent: Parent | None = None
    """The experiment that this one reproduces, varies or goes on with."""


@event("ExperimentPauseRequested")
class ExperimentPauseRequested(Request):
    pass


@event("ExperimentResumeRequested")
class ExperimentResumeRequested(Request):
    pass


@event("ExperimentCancelRequested")
class ExperimentCancelRequested(Request):
    kill: bool = False
    """True: workers are killed at once. False: they save a checkpoint first."""


@event("ExperimentPriorityChanged")
class ExperimentPriorityChanged(Request):
    priority: int = Field(ge=1, le=99)


@event("ExperimentWeightChanged")
class ExperimentWeightChanged(Request):
    weight: float = Field(gt=0)


@event("ExperimentSlotLimitChanged")
class ExperimentSlotLimitChanged(Request):
    max_slots: int | None = Field(ge=1)
    """None: no limit."""


@event("ExperimentTrialLimitsChanged")
class ExperimentTrialLimitsChanged(Request):
    """Other limits of the search than the configured ones, from now on. What runs already is not stopped by a lower one."""

    max_trials: int | None = Field(default=None, ge=1, le=TRIALS_MAX)
    """None: it stays as it is."""
    max_concurrent_trials: int | None = Field(default=None, ge=1, le=CONCURRENT_TRIALS_MAX)
    """None: it stays as it is."""


@event("ExperimentMoved")
class ExperimentMoved(Request):
    """To another place among the experiments of its priority."""

    place: float
    """Smaller is earlier. Until it is moved, an experiment's place is its id."""


@event("ExperimentPoolChanged")
class ExperimentPoolChanged(Request):
    """What runs in the old pool leaves it at a checkpoint."""

    pool: str = Field(pattern=NAME_PATTERN)


@event("SearchOperationsRequested")
class SearchOperationsRequested(Request):
    """What a user's own searcher decided on one event. At most one per event: a searcher that decides again changes nothing."""

    searcher: str = Field(min_length=1, max_length=256)
    """Which class decided, such as `my_search.py:MySearch`."""
    cause_id: str
    cause_position: int = Field(ge=1)
    """The event that it decided on."""
    operations: tuple[Operation, ...] = Field(min_length=1, max_length=OPERATIONS_MAX)


class ClusterRequest(EventData):
    """About the cluster and no experiment: all on one stream, request/cluster."""

    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "request"

    def stream_key(self) -> str:
        return "cluster"


PolicyName = Literal["priority", "fair_share", "fifo"]


@event("PoolPolicyChanged")
class PoolPolicyChanged(ClusterRequest):
    pool: str = Field(pattern=NAME_PATTERN)
    policy: PolicyName
    usage_half_life_hours: float | None = Field(default=None, gt=0, le=1e5)
    """fair_share: past use counts against its owner and is forgotten by half in this time. None: only the present counts."""
    preempt: bool = Field(default=False, exclude_if=lambda value: not value)
    """What runs gives way under the new policy, too. Without it, what runs goes on until its workers leave."""


@event("ShareChanged")
class ShareChanged(ClusterRequest):
    """Weight and quota of a workspace or a user, in all pools."""

    owner: Literal["workspace", "user"]
    name: str = Field(min_length=1, max_length=256)
    weight: float = Field(default=1.0, gt=0, le=1e6)
    max_slots: int | None = Field(default=None, ge=1)
    """Most slots that all its experiments use at once. None: no limit. What runs already is not stopped by a lower one."""


USER_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"


@event("UserCreated")
class UserCreated(ClusterRequest):
    """From now on whoever shows the token acts as this user."""

    name: str = Field(pattern=USER_NAME_PATTERN)
    admin: bool = False
    """True: may change everything, and not only the experiments that are the user's own."""
    token_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the token, which itself is nowhere kept. It has 256 random bits, so nobody finds it from this."""
    expires_us: int | None = Field(default=None, ge=0, exclude_if=lambda value: value is None)
    """From then on the token is worth nothing. None: it does not expire."""


@event("TokenCreated")
class TokenCreated(ClusterRequest):
    """One more token of a user: for another program or machine, or in place of one that ends."""

    user: str
    token_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the token, which itself is nowhere kept."""
    label: str = Field(default="", max_length=100)
    """What it is for, in the user's words."""
    expires_us: int | None = Field(default=None, ge=0)
    """From then on it is worth nothing. None: it does not expire."""


@event("TokenRevoked")
class TokenRevoked(ClusterRequest):
    """The token is worth nothing any more."""

    user: str
    token_id: str
    """The first 12 characters of its hash."""


@event("UserRemoved")
class UserRemoved(ClusterRequest):
    """Its tokens are worth nothing any more. What the user submitted goes on, and admins may change it."""

    name: str


@event("SlotsClosed")
class SlotsClosed(ClusterRequest):
    """Nothing new is placed there, also after the agent was lost and came back, until SlotsOpened."""

    agent_id: str
    slot_id: int | None = None
    """None: the whole agent."""
    drain: bool = False
    """True: what runs there goes on to its end. False: it saves a checkpoint and goes on elsewhere."""


@event("SlotsOpened")
class SlotsOpened(ClusterRequest):
    agent_id: str
    slot_id: int | None = None
    """None: the whole agent, with all its slots."""
