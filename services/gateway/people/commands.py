"""Commands about users, tokens, sign-in, roles and workspaces."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.access import Holding, ProjectSettings, WorkspaceSettings
from tenuto.schemas.events.request import NewUser
from tenuto.services.gateway.rights.commands import UserCommand


@dataclass(frozen=True, kw_only=True)
class CreateUser(UserCommand):
    """Creates a user with one token."""

    new: NewUser
    token_hash: str
    """SHA-256 of the token."""
    expires_us: int | None = None
    """Time at which the token expires; None: never."""


@dataclass(frozen=True, kw_only=True)
class NoteSecretKey(UserCommand):
    """The secrets were sealed with a new key."""

    secrets: int
    unreadable: int


@dataclass(frozen=True, kw_only=True)
class RemoveUser(UserCommand):
    name: str


@dataclass(frozen=True, kw_only=True)
class CreateWorkspace(UserCommand):
    workspace: str
    private: bool = False
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeWorkspace(UserCommand):
    workspace: str
    settings: WorkspaceSettings


@dataclass(frozen=True, kw_only=True)
class CreateProject(UserCommand):
    workspace: str
    project: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class ChangeProject(UserCommand):
    workspace: str
    project: str
    settings: ProjectSettings


@dataclass(frozen=True, kw_only=True)
class CreateRole(UserCommand):
    name: str
    permissions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeRole(UserCommand):
    name: str
    permissions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveRole(UserCommand):
    name: str


@dataclass(frozen=True, kw_only=True)
class GrantRole(UserCommand):
    holding: Holding
    workspace: str | None = None
    """Workspace of the grant; None: the whole cluster."""


@dataclass(frozen=True, kw_only=True)
class RevokeRole(UserCommand):
    holding: Holding
    workspace: str | None = None


@dataclass(frozen=True, kw_only=True)
class CreateToken(UserCommand):
    """One more token of a user, or one in place of another."""

    owner: str
    token_hash: str
    """SHA-256 of the token."""
    label: str = ""
    expires_us: int | None = None
    """Time at which the token expires; None: never."""
    replaces_id: str = ""
    """Id of the token that is revoked with it. Empty: none."""
    permissions: tuple[str, ...] | None = None
    """Names of the permissions that it is limited to. None: those of the replaced token, or else no limit but that of the token
    of the request."""
    limited_to: tuple[str, ...] | None = None
    """Limit of the token of the request."""
    workspace: str = ""
    """Workspace that it is limited to. Empty: that of the replaced token or of the token of the request, or none."""
    shown_workspace: str = ""
    """Workspace that the token of the request is limited to. Empty: none."""


@dataclass(frozen=True, kw_only=True)
class RevokeToken(UserCommand):
    owner: str
    token_id: str


@dataclass(frozen=True, kw_only=True)
class SetPassword(UserCommand):
    """Sets the password of another user, who is told to choose a new one at the sign-in."""

    name: str
    password_id: str
    """Id of the kept hash. Empty: the user has no password any more."""


@dataclass(frozen=True, kw_only=True)
class LinkUser(UserCommand):
    """Links the user to the next identity with this name from the provider of identities."""

    name: str


@dataclass(frozen=True, kw_only=True)
class BeginSession(UserCommand):
    token_hash: str
    """SHA-256 of the session's token."""
    expires_us: int | None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class SignInByLink(BeginSession):
    """Signs in with a link that this user just asked for, with a session or the cluster's own token."""

    asked_by: str
    """SHA-256 of the session's token. Empty: the cluster's own."""


@dataclass(frozen=True, kw_only=True)
class SignInAtProvider(BeginSession):
    """Signs in a user whom the provider of identities knows."""

    subject: str
    groups: tuple[str, ...]
    may_create: bool
    """True: a user that does not exist is made."""


@dataclass(frozen=True, kw_only=True)
class SignIn(BeginSession):
    """Signs in with the user's password, which was just compared with the stored one."""

    password_id: str
    """Id of the hash that it was compared with: another one may have been set meanwhile."""
    new_password_id: str = ""
    """Id of the kept hash of the password that the user chose in place of it. Empty: none."""


TokenCommand = CreateToken | RevokeToken
