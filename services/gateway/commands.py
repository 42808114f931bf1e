"""Commands of users. The decisions on a command are recorded; the command itself is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.request import Closing, Description, NewUser, PolicySettings, ShareOwner, ShareSettings, SlotsNamed
from tenuto.schemas.operations import Operation
from tenuto.schemas.record import Origin, Parent
from tenuto.schemas.webhooks import Filters, TargetKind, Trigger


@dataclass(frozen=True, kw_only=True)
class _Asked:
    id: UUID
    time_us: int
    user: str

    @property
    def actor(self) -> str:
        """Recorded actor of the events."""
        return f"user:{self.user}"


@dataclass(frozen=True, kw_only=True)
class SubmitExperiment(_Asked):
    config: ExperimentConfig
    seed: int
    """The configured seed, or the one drawn for this submission."""
    context_hash: str
    context_size_bytes: int
    trace: str = ""
    origin: Origin | None = None
    parent: Parent | None = None


@dataclass(frozen=True, kw_only=True)
class PauseExperiment(_Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class ResumeExperiment(_Asked):
    experiment_id: int


@dataclass(frozen=True, kw_only=True)
class CancelExperiment(_Asked):
    experiment_id: int
    kill: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeExperiment(_Asked):
    """Fields that are "keep" stay as they are."""

    experiment_id: int
    priority: int | Literal["keep"] = "keep"
    weight: float | Literal["keep"] = "keep"
    max_slots: int | Literal["keep"] | None = "keep"
    pool: str = ""
    """Empty: it stays where it is."""
    max_trials: int | None = None
    max_concurrent_trials: int | None = None
    """None: they stay as they are."""


@dataclass(frozen=True, kw_only=True)
class _OfRecord(_Asked):
    """About an experiment that may have ended: the state does not know any more who submitted that."""

    experiment_id: int
    submitter: str
    """User who submitted it, as the views say."""


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
class MoveExperiment(_Asked):
    """To just before or just behind another experiment, whose priority it takes over."""

    experiment_id: int
    other_id: int
    behind: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOperations(_Asked):
    """Decisions of a user's own searcher on one event."""

    experiment_id: int
    searcher: str
    """Class that decided, such as `my_search.py:MySearch`."""
    cause_id: UUID
    cause_position: int
    """The event that it decided on."""
    operations: tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True)
class SetPoolPolicy(_Asked):
    pool: str
    settings: PolicySettings
    """The half-life stays as it is where `settings` was made without one."""


@dataclass(frozen=True, kw_only=True)
class SetShare(_Asked):
    owner: ShareOwner
    name: str
    settings: ShareSettings
    """Fields not set in `settings` stay as they are."""


@dataclass(frozen=True, kw_only=True)
class CloseSlots(_Asked):
    agent_id: str
    closing: Closing


@dataclass(frozen=True, kw_only=True)
class OpenSlots(_Asked):
    agent_id: str
    slots: SlotsNamed


@dataclass(frozen=True, kw_only=True)
class CreateUser(_Asked):
    """With one token."""

    new: NewUser
    token_hash: str
    """SHA-256 of the token."""
    expires_us: int | None = None
    """None: the token does not expire."""


@dataclass(frozen=True, kw_only=True)
class NoteSecretKey(_Asked):
    """The secrets were sealed with a new key."""

    secrets: int
    unreadable: int


@dataclass(frozen=True, kw_only=True)
class RemoveUser(_Asked):
    name: str


@dataclass(frozen=True, kw_only=True)
class CreateToken(_Asked):
    """One more token of a user, or one in place of another."""

    owner: str
    token_hash: str
    """SHA-256 of the token."""
    label: str = ""
    expires_us: int | None = None
    """None: the token does not expire."""
    replaces_id: str = ""
    """Id of the token that is revoked with it. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class RevokeToken(_Asked):
    owner: str
    token_id: str


@dataclass(frozen=True, kw_only=True)
class SetPassword(_Asked):
    """Of another user: who knows it is told to choose another."""

    name: str
    password_id: str
    """Id of the kept hash. Empty: the user has no password any more."""


@dataclass(frozen=True, kw_only=True)
class LinkUser(_Asked):
    """To whoever comes with this name from the provider of identities."""

    name: str


@dataclass(frozen=True, kw_only=True)
class BeginSession(_Asked):
    token_hash: str
    """SHA-256 of the session's token."""
    expires_us: int | None
    label: str = ""


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
class CreateWebhook(_Asked):
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
class ChangeWebhook(_Asked):
    """None: as before."""

    name: str
    triggers: tuple[Trigger, ...] | None = None
    filters: Filters | None = None
    group_seconds: float | None = None
    recoveries: bool | None = None
    paused: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RemoveWebhook(_Asked):
    name: str


@dataclass(frozen=True, kw_only=True)
class ChangeWebhookSecret(_Asked):
    name: str
    sealed_id: str
    old_until_us: int
    """Messages are signed with the old secret, too, until then."""


@dataclass(frozen=True, kw_only=True)
class TryWebhook(_Asked):
    """A notice that is about nothing."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Redeliver(_Asked):
    name: str
    numbers: tuple[int, ...] = ()
    """Of parked notices. None: all of them."""


@dataclass(frozen=True, kw_only=True)
class TellWaits:
    """Trials that wait for too long at this time are told of: the gateway itself looks."""

    id: UUID
    time_us: int


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
RecordCommand = DescribeExperiment | ArchiveExperiment | UnarchiveExperiment | DeleteExperiment | KeepExperiment
ClusterCommand = (
    NoteSecretKey | SetPoolPolicy | SetShare | CloseSlots | OpenSlots | CreateUser | RemoveUser | SetPassword | LinkUser
)
"""For admins."""
TokenCommand = CreateToken | RevokeToken
WebhookCommand = CreateWebhook | ChangeWebhook | RemoveWebhook | ChangeWebhookSecret | TryWebhook | Redeliver
UserCommand = TokenCommand | BeginSession
GatewayCommand = SubmitExperiment | ExperimentCommand | RecordCommand | ClusterCommand | UserCommand | WebhookCommand
