"""Commands of users. The decisions on a command are recorded; the command itself is not.

Long, because a reader looks for a command in one list, and each is a few lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.automation import Rule
from tenuto.schemas.events.access import Holding, ProjectSettings, WorkspaceSettings
from tenuto.schemas.events.provisioning import PoolMounts
from tenuto.schemas.events.request import Closing, Description, NewUser, PolicySettings, ShareOwner, ShareSettings, SlotsNamed
from tenuto.schemas.events.unmanaged import UnmanagedState
from tenuto.schemas.operations import Operation
from tenuto.schemas.provisioning import Provisioning
from tenuto.schemas.record import ConfigLayer, Origin, Parent
from tenuto.schemas.webhooks import Filters, TargetKind, Trigger


@dataclass(frozen=True, kw_only=True)
class Asked:
    id: UUID
    time_us: int
    user: str

    @property
    def actor(self) -> str:
        """Recorded actor of the events."""
        return f"user:{self.user}"


@dataclass(frozen=True, kw_only=True)
class SubmitExperiment(Asked):
    config: ExperimentConfig
    seed: int
    """The configured seed, or the one drawn for this submission."""
    context_hash: str
    context_size_bytes: int
    trace: str = ""
    origin: Origin | None = None
    parent: Parent | None = None
    layers: tuple[ConfigLayer, ...] = ()
    """What was merged under the configuration that was sent."""
    sent_hash: str = ""
    """SHA-256 of its text. Empty: it was made from another experiment's."""
    stored_bytes: int | None = None
    """Bytes of the kept checkpoints of its workspace, as the views say. None: nobody counted."""


@dataclass(frozen=True, kw_only=True)
class PauseExperiment(Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class ResumeExperiment(Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class CancelExperiment(Asked):
    experiment_id: int
    kill: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeExperiment(Asked):
    """Fields that are "keep" stay as they are."""

    experiment_id: int
    priority: int | Literal["keep"] = "keep"
    weight: float | Literal["keep"] = "keep"
    max_slots: int | Literal["keep"] | None = "keep"
    max_wall_hours: float | Literal["keep"] | None = "keep"
    pool: str = ""
    """Empty: it stays where it is."""
    max_trials: int | None = None
    max_concurrent_trials: int | None = None
    """None: they stay as they are."""


@dataclass(frozen=True, kw_only=True)
class _OfRecord(Asked):
    """About an experiment that may have ended: the state does not know any more who submitted that."""

    experiment_id: int
    submitter: str
    """User who submitted it, as the views say."""
    workspace: str
    """Workspace that it is in, as the views say."""


@dataclass(frozen=True, kw_only=True)
class DescribeExperiment(_OfRecord):
    """What `description` does not name stays as it is."""

    description: Description


@dataclass(frozen=True, kw_only=True)
class ArchiveExperiment(_OfRecord):
    """Only one that has ended."""


@dataclass(frozen=True, kw_only=True)
class UnarchiveExperiment(_OfRecord):
    pass


@dataclass(frozen=True, kw_only=True)
class DeleteExperiment(_OfRecord):
    """Only one that has ended."""

    grace_us: int
    """Time in which it can be taken back."""


@dataclass(frozen=True, kw_only=True)
class KeepExperiment(_OfRecord):
    """Takes back the request for a deletion that was not carried out yet."""


@dataclass(frozen=True, kw_only=True)
class CarryOutDeletion:
    """A deletion is due: the gateway itself tells."""

    id: UUID
    time_us: int
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class EndOverdue:
    """An experiment has run for as long as it may: the gateway itself tells."""

    id: UUID
    time_us: int
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class NoteStorage:
    """What the checkpoints of a workspace have: the gateway itself tells."""

    id: UUID
    time_us: int
    workspace: str
    stored_bytes: int


@dataclass(frozen=True, kw_only=True)
class MoveExperiment(Asked):
    """To just before or just behind another experiment, whose priority it takes over."""

    experiment_id: int
    other_id: int
    behind: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOperations(Asked):
    """Decisions of a user's own searcher on one event."""

    experiment_id: int
    searcher: str
    """Class that decided, such as `my_search.py:MySearch`."""
    cause_id: UUID
    cause_position: int
    """The event that it decided on."""
    operations: tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True)
class SetPoolPolicy(Asked):
    pool: str
    settings: PolicySettings
    """The half-life stays as it is where `settings` was made without one."""


@dataclass(frozen=True, kw_only=True)
class ProvisionPool(Asked):
    pool: str
    settings: Provisioning


@dataclass(frozen=True, kw_only=True)
class SetPoolMounts(Asked):
    pool: str
    mounts: PoolMounts


@dataclass(frozen=True, kw_only=True)
class ReleaseNode(Asked):
    node_id: str
    drain: bool


@dataclass(frozen=True, kw_only=True)
class CreateNodeToken:
    """The launcher asks for a token by which one node's agent joins."""

    id: UUID
    time_us: int
    token_id: str
    secret_hash: str
    node_id: str
    pool: str
    expires_us: int

    @property
    def actor(self) -> str:
        return "launcher"


@dataclass(frozen=True, kw_only=True)
class SetShare(Asked):
    owner: ShareOwner
    name: str
    settings: ShareSettings
    """Fields not set in `settings` stay as they are."""


@dataclass(frozen=True, kw_only=True)
class CloseSlots(Asked):
    agent_id: str
    closing: Closing


@dataclass(frozen=True, kw_only=True)
class OpenSlots(Asked):
    agent_id: str
    slots: SlotsNamed


@dataclass(frozen=True, kw_only=True)
class CreateJoinToken(Asked):
    token_id: str
    secret_hash: str
    """SHA-256 of its secret."""
    pool: str
    expires_us: int
    uses_max: int
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class RevokeJoinToken(Asked):
    token_id: str


@dataclass(frozen=True, kw_only=True)
class Enroll:
    """An agent asks to join, and shows a token."""

    id: UUID
    time_us: int
    token_id: str
    secret_hash: str
    agent_id: str
    credential_hash: str
    """SHA-256 of the password that the agent made."""
    taken: bool
    """True: an agent of the name has credentials that did not come from a token."""

    @property
    def actor(self) -> str:
        return f"agent:{self.agent_id}"


@dataclass(frozen=True, kw_only=True)
class RevokeAgent(Asked):
    agent_id: str
    has_credentials: bool
    """True: the bus knows a user of the agent, as the gateway saw."""


@dataclass(frozen=True, kw_only=True)
class CreateUser(Asked):
    """With one token."""

    new: NewUser
    token_hash: str
    """SHA-256 of the token."""
    expires_us: int | None = None
    """None: the token does not expire."""


@dataclass(frozen=True, kw_only=True)
class NoteSecretKey(Asked):
    """The secrets were sealed with a new key."""

    secrets: int
    unreadable: int


@dataclass(frozen=True, kw_only=True)
class RemoveUser(Asked):
    name: str


@dataclass(frozen=True, kw_only=True)
class PutIntoProject(_OfRecord):
    """Another project of its workspace."""

    project: str
    """Empty: none."""


@dataclass(frozen=True, kw_only=True)
class CreateWorkspace(Asked):
    workspace: str
    private: bool = False
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeWorkspace(Asked):
    workspace: str
    settings: WorkspaceSettings


@dataclass(frozen=True, kw_only=True)
class SetWorkspaceRules(Asked):
    workspace: str
    rules: tuple[Rule, ...]
    """In place of those that there are. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class SetTemplate(Asked):
    name: str
    workspace: str | None
    """None: of the whole cluster."""
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RemoveTemplate(Asked):
    name: str
    workspace: str | None


@dataclass(frozen=True, kw_only=True)
class SetDefaults(Asked):
    workspace: str
    config: Mapping[str, Any]
    """Empty: the workspace has none any more."""


@dataclass(frozen=True, kw_only=True)
class CreateProject(Asked):
    workspace: str
    project: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeProject(Asked):
    workspace: str
    project: str
    settings: ProjectSettings


@dataclass(frozen=True, kw_only=True)
class CreateRole(Asked):
    name: str
    permissions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeRole(Asked):
    name: str
    permissions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveRole(Asked):
    name: str


@dataclass(frozen=True, kw_only=True)
class GrantRole(Asked):
    holding: Holding
    workspace: str | None = None
    """None: in the whole cluster."""


@dataclass(frozen=True, kw_only=True)
class RevokeRole(Asked):
    holding: Holding
    workspace: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreateToken(Asked):
    """One more token of a user, or one in place of another."""

    owner: str
    token_hash: str
    """SHA-256 of the token."""
    label: str = ""
    expires_us: int | None = None
    """None: the token does not expire."""
    replaces_id: str = ""
    """Id of the token that is revoked with it. Empty: none."""
    permissions: tuple[str, ...] | None = None
    """Names of the permissions that it is limited to. None: those of the replaced token, or else no limit but that of the token
    that was shown."""
    limited_to: tuple[str, ...] | None = None
    """Limit of the token that was shown."""
    workspace: str = ""
    """Workspace that it is limited to. Empty: that of the replaced token or of the one that was shown, or none."""
    shown_workspace: str = ""
    """Workspace that the token that was shown is limited to. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class RevokeToken(Asked):
    owner: str
    token_id: str


@dataclass(frozen=True, kw_only=True)
class SetPassword(Asked):
    """Of another user: who knows it is told to choose another."""

    name: str
    password_id: str
    """Id of the kept hash. Empty: the user has no password any more."""


@dataclass(frozen=True, kw_only=True)
class LinkUser(Asked):
    """To whoever comes with this name from the provider of identities."""

    name: str


@dataclass(frozen=True, kw_only=True)
class BeginSession(Asked):
    token_hash: str
    """SHA-256 of the session's token."""
    expires_us: int | None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class SignInByLink(BeginSession):
    """By who holds a link that this user just asked for, with a session or the cluster's own token."""

    asked_by: str
    """SHA-256 of the session's token. Empty: the cluster's own."""


@dataclass(frozen=True, kw_only=True)
class SignInAtProvider(BeginSession):
    """By whom the provider of identities knows."""

    subject: str
    groups: tuple[str, ...]
    may_create: bool
    """True: a user that does not exist is made."""


@dataclass(frozen=True, kw_only=True)
class SignIn(BeginSession):
    """By who knows the user's password, which was just compared with the kept one."""

    password_id: str
    """Id of the hash that it was compared with: another one may have been set meanwhile."""
    new_password_id: str = ""
    """Id of the kept hash of the password that the user chose in place of it. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class CreateWebhook(Asked):
    name: str
    kind: TargetKind
    place: str
    """What may be shown of the target."""
    triggers: tuple[Trigger, ...]
    filters: Filters
    group_seconds: float
    recoveries: bool
    sealed_id: str
    """Under which id its addresses and secrets are kept, encrypted and outside the record."""


@dataclass(frozen=True, kw_only=True)
class ChangeWebhook(Asked):
    """None: as before."""

    name: str
    triggers: tuple[Trigger, ...] | None = None
    filters: Filters | None = None
    group_seconds: float | None = None
    recoveries: bool | None = None
    paused: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RemoveWebhook(Asked):
    name: str


@dataclass(frozen=True, kw_only=True)
class ChangeWebhookSecret(Asked):
    name: str
    sealed_id: str
    old_until_us: int
    """Messages are signed with the old secret, too, until then."""


@dataclass(frozen=True, kw_only=True)
class TryWebhook(Asked):
    """A notice that is about nothing."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Redeliver(Asked):
    name: str
    numbers: tuple[int, ...] = ()
    """Of parked notices. None: all of them."""


@dataclass(frozen=True, kw_only=True)
class TellWaits:
    """Trials that wait for too long at this time are told of: the gateway itself looks."""

    id: UUID
    time_us: int


@dataclass(frozen=True, kw_only=True)
class CreateUnmanagedExperiment(Asked):
    name: str
    or_existing: bool = False
    """True: an experiment that has the name is as good."""


@dataclass(frozen=True, kw_only=True)
class StartUnmanagedTrial(Asked):
    experiment_id: int
    name: str
    started_us: int


@dataclass(frozen=True, kw_only=True)
class ChangeUnmanagedTrial(Asked):
    experiment_id: int
    trial_id: str
    state: UnmanagedState
    ended_us: int | None
    deleted: bool


@dataclass(frozen=True, kw_only=True)
class NoteDelivery:
    """What became of a message: the gateway itself tells."""

    id: UUID
    time_us: int
    webhook: str
    created_us: int
    """Of the webhook that it was sent for: another one may have the name by now."""
    numbers: tuple[int, ...]
    outcome: Literal["delivered", "delayed", "refused", "too_late"]
    attempts: int
    answer: str
    message_id: str = ""
    reference: str = ""
    resume_us: int = 0


ExperimentCommand = PauseExperiment | ResumeExperiment | CancelExperiment | ChangeExperiment | MoveExperiment | RequestOperations
RecordCommand = DescribeExperiment | ArchiveExperiment | UnarchiveExperiment | PutIntoProject | DeleteExperiment | KeepExperiment
WorkspaceCommand = CreateWorkspace | ChangeWorkspace | SetWorkspaceRules | CreateProject | ChangeProject | SetDefaults
TemplateCommand = SetTemplate | RemoveTemplate
NodeCommand = ProvisionPool | SetPoolMounts | ReleaseNode | CreateNodeToken
ClusterCommand = (
    NoteSecretKey | SetPoolPolicy | SetShare | CloseSlots | OpenSlots | CreateUser | RemoveUser | SetPassword | LinkUser
)
"""For admins."""
JoiningCommand = CreateJoinToken | RevokeJoinToken | Enroll | RevokeAgent
AccessCommand = WorkspaceCommand | TemplateCommand | CreateRole | ChangeRole | RemoveRole | GrantRole | RevokeRole
TokenCommand = CreateToken | RevokeToken
UnmanagedCommand = CreateUnmanagedExperiment | StartUnmanagedTrial | ChangeUnmanagedTrial
WebhookCommand = CreateWebhook | ChangeWebhook | RemoveWebhook | ChangeWebhookSecret | TryWebhook | Redeliver
UserCommand = TokenCommand | BeginSession
ExperimentsCommand = SubmitExperiment | ExperimentCommand | RecordCommand | UnmanagedCommand
GatewayCommand = ExperimentsCommand | ClusterCommand | NodeCommand | JoiningCommand | AccessCommand | UserCommand | WebhookCommand
