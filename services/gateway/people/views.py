"""Answers about users, tokens, secrets, roles and workspaces."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.events.access import Description, Holding, RoleSettings, WorkspaceName
from tenuto.schemas.events.request import USER_NAME_PATTERN


class UserView(Model):
    name: str
    admin: bool
    """True if the user may change everything, not only his own."""
    service: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: an account for programs; absent otherwise."""
    owner: str = Field(default="", exclude_if=lambda value: not value)
    """User who keeps the service account's tokens, beside admins; absent without one."""


class TokenView(Model):
    id: str
    """The first characters of its hash."""
    label: str
    created_us: int
    expires_us: int | None
    """Time at which it expires. None: never."""
    session: bool = Field(default=False, exclude_if=lambda value: not value)
    """True: it was given at a sign-in; absent otherwise."""
    permissions: tuple[str, ...] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Names of the permissions that it is limited to. Absent: it may do what its user may."""
    workspace: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Workspace that it is limited to. Absent: all."""
    used_us: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Time of the last request with it, to within a minute. Absent: none is known."""


class WhoamiView(UserView):
    permissions: tuple[str, ...]
    """Permissions in the whole cluster, sorted; a token that is limited to some has no others."""
    token: TokenView | None
    """Token of this request. None: the cluster's own, which does not expire."""


class SecretView(Model):
    name: str
    updated_us: int


class WaysInView(Model):
    provider: bool
    """True: the cluster has a provider of identities, and `GET /sso` leads there. A name with a password is accepted in any
    case."""


class SignedInView(UserView):
    id: str
    """Id of the session, among the user's tokens."""
    expires_us: int | None
    """Time at which the session ends. None: it does not end by itself."""
    token: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Shown here and never again. Absent: it is in the cookie."""


class LinkView(Model):
    name: str
    """User who is signed in by it."""
    code: str
    """Code that begins a session, once. Shown here and never again."""
    expires_us: int


class NewUserView(UserView):
    token: str
    """Shown here and never again."""
    expires_us: int | None
    """Time at which the token expires. None: never."""


class NewTokenView(TokenView):
    token: str
    """Shown here and never again."""


class SecretKeyView(Model):
    secrets: int
    """Number of secrets and webhooks' targets that are sealed with the new key."""
    unreadable: int
    """Number of secrets that were sealed with a key that was lost before: set them anew."""
    position: int
    """Position of the event in the log."""


"""Roles and workspaces in requests and answers of the REST interface."""


class PermissionView(Model):
    name: str
    allows: str
    """Description of what it allows."""


class RoleView(Model):
    name: str
    permissions: tuple[str, ...]
    own: bool
    """True: a role of this cluster's own, which may be changed. False: every cluster has it."""


class NewRoleBody(RoleSettings):
    name: str = Field(pattern=USER_NAME_PATTERN)


class GrantView(Holding):
    workspace: str | None
    """Workspace that the role counts in. null: the whole cluster."""


class WorkspaceView(Model):
    name: str
    private: bool
    """True: only users with a role in it, or in the whole cluster, see it."""
    archived: bool
    """True: it takes no new experiments."""
    description: str
    priority_min: int
    priority_max: int
    """Range of its experiments' priorities; 1 is the most urgent."""
    slots_max: int
    """Most slots that one of its experiments may use at once. 0: no limit."""
    images: tuple[str, ...]
    """Names of the images that its experiments may run in; `*` stands for any text. Empty: any image."""
    storage_bytes_max: int
    """Bytes of kept checkpoints at which it stops taking new experiments. 0: no limit."""
    wall_hours_max: float
    """Longest run time of one of its experiments in hours, in which at least one of its trials holds its slots. 0: no limit."""
    storage_bytes: int | None = None
    """Bytes of its kept checkpoints. null in lists, where they are not counted."""
    projects: int
    """Number of its projects."""
    experiments: int
    """Number of its experiments, ended ones included."""
    permissions: tuple[str, ...]
    """Permissions that you have in it, and in the whole cluster."""


class NewWorkspaceBody(Model):
    name: WorkspaceName
    private: bool = False
    """True: only users with a role in it see it."""
    description: Description = ""


class ProjectView(Model):
    name: str
    archived: bool
    """True: it takes no new experiments."""
    description: str
    experiments: int
    """Number of its experiments, ended ones included."""


class NewProjectBody(Model):
    name: WorkspaceName
    description: Description = ""
