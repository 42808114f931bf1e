"""Requests of users. Owner: gateway. Stream: request/<experiment>."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.experiment import NAME_CHARACTERS_MAX
from tenuto.schemas.config.resources import SLOTS_MAX, WALL_HOURS_MAX
from tenuto.schemas.config.searcher_base import CONCURRENT_TRIALS_MAX, TRIALS_MAX
from tenuto.schemas.events.registry import EventData, Reason, event
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.schemas.record import Origin, Parent, Sent


class RequestEvent(EventData):
    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "request"

    experiment_id: int

    def stream_key(self) -> str:
        return str(self.experiment_id)


@event("ExperimentSubmitted")
class ExperimentSubmitted(Sent, RequestEvent):
    VERSION: ClassVar[int] = 2
    """Version 2: an experiment names the store of its checkpoints."""

    config: ExperimentConfig
    seed: int = Field(ge=0, lt=2**63)
    """Seed of the experiment: the configured one, or the one that the gateway drew at submission."""
    context_hash: str
    """SHA-256 (hex) of the packed model directory."""
    context_size_bytes: int
    user: str
    origin: Origin | None = None
    """Command line, its overrides, and the state of the version control. None: the client sent none."""
    parent: Parent | None = None
    """Relation to the parent experiment; None if it has none."""


@event("ExperimentPauseRequested")
class ExperimentPauseRequested(RequestEvent):
    pass


@event("ExperimentResumeRequested")
class ExperimentResumeRequested(RequestEvent):
    pass


@event("ExperimentCancelRequested")
class ExperimentCancelRequested(RequestEvent):
    kill: bool = False
    """True: workers are killed at once. False: they save a checkpoint first."""


@event("ExperimentTimeLimitReached")
class ExperimentTimeLimitReached(RequestEvent):
    """The experiment has run for as long as it may, so it is canceled; the request for that is recorded behind this."""

    reason: Reason


@event("ExperimentPriorityChanged")
class ExperimentPriorityChanged(RequestEvent):
    priority: int = Field(ge=1, le=99)


@event("ExperimentWeightChanged")
class ExperimentWeightChanged(RequestEvent):
    weight: float = Field(gt=0)


@event("ExperimentSlotLimitChanged")
class ExperimentSlotLimitChanged(RequestEvent):
    max_slots: int | None = Field(ge=1)
    """Most slots the experiment uses at once. None: no limit."""


@event("ExperimentTimeLimitChanged")
class ExperimentTimeLimitChanged(RequestEvent):
    """The experiment may run for another time than its configuration says, or than was said since."""

    max_wall_hours: float | None = Field(gt=0, le=WALL_HOURS_MAX)
    """Hours, as `resources.max_wall_hours`. None: no limit but that of its workspace."""


class TrialLimits(Model):
    """Common fields of ExperimentTrialLimitsChanged and the request for it."""

    max_trials: int | None = Field(default=None, ge=1, le=TRIALS_MAX)
    """Most trials of the search. None: unchanged."""
    max_concurrent_trials: int | None = Field(default=None, ge=1, le=CONCURRENT_TRIALS_MAX)
    """Most trials that run at once. None: unchanged."""


@event("ExperimentTrialLimitsChanged")
class ExperimentTrialLimitsChanged(TrialLimits, RequestEvent):
    """New limits of the search in place of the configured ones. Trials that run already are not stopped by a lower limit."""


@event("ExperimentMoved")
class ExperimentMoved(RequestEvent):
    """The experiment gets another place among those of its priority."""

    place: float
    """Order among experiments of one priority; smaller is earlier. By default an experiment's place is its id."""


@event("ExperimentPoolChanged")
class ExperimentPoolChanged(RequestEvent):
    """The experiment moves to another pool. Its trials leave the old pool at a checkpoint."""

    pool: str = Field(pattern=NAME_PATTERN)


NOTE_CHARACTERS_MAX = 10_000
LABELS_MAX = 100
ExperimentName = Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS_MAX)]
Label = Annotated[str, Field(min_length=1, max_length=100)]


class Description(Model):
    """Common fields of ExperimentDescribed and the request for it. None: unchanged."""

    name: ExperimentName | None = Field(default=None, exclude_if=lambda value: value is None)
    """New name of the experiment."""
    labels: tuple[Label, ...] | None = Field(default=None, max_length=LABELS_MAX, exclude_if=lambda value: value is None)
    """All labels of the experiment, in place of those before."""
    note: str | None = Field(default=None, max_length=NOTE_CHARACTERS_MAX, exclude_if=lambda value: value is None)
    """Text for people, in place of the note before."""


@event("ExperimentDescribed")
class ExperimentDescribed(Description, RequestEvent):
    """The experiment has another name, other labels or another note, also after its end. Its configuration is as it was."""


@event("ExperimentArchived")
class ExperimentArchived(RequestEvent):
    """The ended experiment is left out of lists, unless they ask for archived ones. Nothing of it is deleted."""


@event("ExperimentUnarchived")
class ExperimentUnarchived(RequestEvent):
    """The experiment is in lists again."""


@event("ExperimentDeletionRequested")
class ExperimentDeletionRequested(RequestEvent):
    """The ended experiment is to be deleted. Until then the request can be taken back."""

    user: str
    due_us: int
    """Time from which it is deleted."""


@event("ExperimentDeletionCanceled")
class ExperimentDeletionCanceled(RequestEvent):
    """The experiment is kept after all."""


@event("ExperimentDeleted")
class ExperimentDeleted(RequestEvent):
    """The experiment's checkpoints, metrics and log lines are deleted, and its code, unless another experiment has the same.
    The record keeps all events of it."""

    reason: Reason


@event("SearchOperationsRequested")
class SearchOperationsRequested(RequestEvent):
    """Decision of a user's own searcher on one event. At most one counts per event: a second decision changes nothing."""

    searcher: str = Field(min_length=1, max_length=256)
    """Class of the searcher, such as `my_search.py:MySearch`."""
    cause_id: str
    cause_position: int = Field(ge=1)
    """Log position of the event that the searcher decided on."""
    operations: tuple[Operation, ...] = Field(min_length=1, max_length=OPERATIONS_MAX)


class ClusterRequest(EventData):
    """A request about the cluster and not about one experiment; all of them are on one stream, request/cluster."""

    OWNER: ClassVar[str] = "gateway"
    STREAM: ClassVar[str] = "request"

    def stream_key(self) -> str:
        return "cluster"


@event("SecretKeyChanged")
class SecretKeyChanged(ClusterRequest):
    """All secrets are sealed with a new key; the old one opens none of them any more."""

    user: str
    secrets: int = Field(ge=0)
    """Number of users' secrets and webhooks' targets."""
    unreadable: int = Field(ge=0)
    """Number of them that were sealed with a key that was already lost."""


PolicyName = Literal["priority", "fair_share", "fifo"]


class PolicySettings(Model):
    """Common fields of PoolPolicyChanged and the request for it. A half-life that a request does not name stays as it is."""

    policy: PolicyName
    usage_half_life_hours: float | None = Field(default=None, gt=0, le=1e5)
    """Policy fair_share: past use counts against its owner and loses half its weight in this time. None: only present use
    counts."""
    preempt: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: running trials give way under the new policy, too. False: they go on until their workers leave."""


class PoolRequest(ClusterRequest):
    pool: str = Field(pattern=NAME_PATTERN)


@event("PoolPolicyChanged")
class PoolPolicyChanged(PolicySettings, PoolRequest):
    """The policy by which a pool shares its slots, also before it has agents."""


ShareOwner = Literal["workspace", "user"]


class ShareSettings(Model):
    """Common fields of ShareChanged and the request for it. Fields that a request does not name stay as they are."""

    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share relative to others. 1 at first."""
    max_slots: int | None = Field(default=None, ge=1, le=SLOTS_MAX)
    """Most slots that all the owner's experiments use at once. None: no limit, as at first. Trials that run already are not
    stopped by a lower limit."""


class ShareRequest(ClusterRequest):
    owner: ShareOwner
    name: str = Field(min_length=1, max_length=256)


@event("ShareChanged")
class ShareChanged(ShareSettings, ShareRequest):
    """Weight and quota of a workspace or a user, in all pools."""


USER_NAME_PATTERN = r"^[a-z][a-z0-9_.-]{0,62}$"


class NewUser(Model):
    """Common fields of UserCreated and the request for it."""

    name: str = Field(pattern=USER_NAME_PATTERN)
    admin: bool = False
    """True: the user may change everything, not only experiments of their own."""
    service: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: an account for programs: it has tokens and no password."""
    owner: str = Field(default="", max_length=63, exclude_if=lambda value: not value)
    """User who makes and revokes the service account's tokens, beside admins. Empty: admins only."""


@event("UserCreated")
class UserCreated(NewUser, ClusterRequest):
    """A new user. From now on, anybody who shows the token acts as this user."""

    token_hash: str = Field(default="", pattern=r"^([0-9a-f]{64})?$", exclude_if=lambda value: not value)
    """SHA-256 of the token. The token itself is stored nowhere; it has 256 random bits, so it cannot be found from its hash.
    Empty: the user has no token yet, and signs in at a provider of identities."""
    expires_us: int | None = Field(default=None, ge=0, exclude_if=lambda value: value is None)
    """End of the token's validity, in microseconds since 1970. None: it does not expire."""


TokenLabel = Annotated[str, Field(max_length=100)]


@event("TokenCreated")
class TokenCreated(ClusterRequest):
    """One more token of a user: for another program or machine, or in place of one that expires."""

    user: str
    token_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the token. The token itself is stored nowhere."""
    label: TokenLabel = ""
    """Purpose of the token, in the user's words."""
    expires_us: int | None = Field(default=None, ge=0)
    """End of the token's validity, in microseconds since 1970. None: it does not expire."""
    session: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: it was given at a sign-in, and ends with the user's password."""
    permissions: tuple[str, ...] | None = Field(default=None, max_length=100, exclude_if=lambda value: value is None)
    """Names of the permissions that it is limited to. None: its bearer may do all that its user may."""
    workspace: str | None = Field(default=None, pattern=NAME_PATTERN, exclude_if=lambda value: value is None)
    """Workspace that it is limited to. None: all."""


@event("TokenRevoked")
class TokenRevoked(ClusterRequest):
    """The token is no longer valid."""

    user: str
    token_id: str
    """First 12 characters of the token's hash."""


@event("UserRemoved")
class UserRemoved(ClusterRequest):
    """The user's tokens are no longer valid. Experiments of the user go on, and admins may change them."""

    name: str


class SlotsNamed(Model):
    """Common fields of events about an agent's slots and of the requests for them."""

    slot_id: int | None = Field(default=None, ge=0, le=SLOTS_MAX)
    """Number of the slot. None: the whole agent, with all its slots."""


class Closing(SlotsNamed):
    """Common fields of SlotsClosed and the request for it."""

    drain: bool = False
    """True: running trials go on to their end. False: they save a checkpoint and go on elsewhere."""


class AgentRequest(ClusterRequest):
    agent_id: str


@event("SlotsClosed")
class SlotsClosed(Closing, AgentRequest):
    """Nothing new is placed on the slot or agent until SlotsOpened, even if the agent is lost and comes back."""


@event("SlotsOpened")
class SlotsOpened(SlotsNamed, AgentRequest):
    """The slot or agent is in service again."""
