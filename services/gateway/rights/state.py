"""State of the people that use the cluster: users, tokens, workspaces, and their rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from immutables import Map

from tenuto.schemas.events.access import HolderKind
from tenuto.services.gateway.rights.access import Access, Principal, is_cluster_admin, sight

ADMIN = "admin"
"""User of the cluster's own token."""
EARLIER = "an earlier user "
"""Prefix of a removed user's name, if another user has the name now."""
USERS_MAX = 10_000
"""Most users; all are kept in memory."""


@dataclass(frozen=True)
class User:
    name: str
    admin: bool
    first_experiment: int = 1
    """First experiment that may be this user's: earlier ones were submitted by an earlier user of the same name."""
    since_us: int = 0
    """Time at which the user was created: unmanaged runs that were started before are an earlier user's."""
    password_id: str = ""
    """Id of the kept hash of the password. Empty: the user has none, and signs in with tokens."""
    must_change: bool = False
    """True: the password was set by an admin, and serves only to choose another."""
    subject: str = ""
    """Issuer and subject at the provider of identities. Empty: the user does not sign in there."""
    link_expected: bool = False
    """True: the next identity that comes from there with this name is linked to this user."""
    groups: tuple[str, ...] = ()
    """Groups that the provider named at the last sign-in."""
    service: bool = False
    """True: an account for programs, which has no password."""
    owner: str = ""
    """User who keeps the service account's tokens, beside admins."""


TOKENS_PER_USER_MAX = 20
"""Most tokens of a user: one for each machine or program; more of them are forgotten ones."""
SESSIONS_PER_USER_MAX = 20
"""Most sessions of a user; the oldest ends when one more begins, so that forgotten ones do not keep out a user with many
machines."""
TOKEN_ID_CHARACTERS = 12


@dataclass(frozen=True)
class Token:
    token_hash: str
    user: str
    created_us: int
    expires_us: int | None = None
    """Time from which it is no longer valid. None: it does not expire."""
    label: str = ""
    session: bool = False
    """True: it was given at a sign-in."""
    permissions: tuple[str, ...] | None = None
    """Names of the permissions that it is limited to. None: it allows all that its user may do."""
    workspace: str = ""
    """Workspace that it is limited to. Empty: none."""

    @property
    def is_limited(self) -> bool:
        return self.permissions is not None or bool(self.workspace)

    @property
    def id(self) -> str:
        return self.token_hash[:TOKEN_ID_CHARACTERS]

    def holds(self, time_us: int) -> bool:
        return self.expires_us is None or time_us < self.expires_us


@dataclass(frozen=True)
class PeopleState:
    """The gateway's record of people: users, their tokens, and their rights."""

    users: Map[str, User] = field(default_factory=Map)
    """Users by name; the user of the cluster's own token is not among them."""
    tokens: Map[str, Token] = field(default_factory=Map)
    """Tokens by hash. Expired ones stay until their user makes another, so that they can be shown and told from wrong ones."""
    barred: Map[str, str] = field(default_factory=Map)
    """Issuer and subject -> name of the removed user, who is not created anew at the next sign-in."""
    access: Access = field(default_factory=Access)
    """Workspaces, roles, and their holders."""
    submitted: int = 0
    """Number of experiments so far; their ids are 1..submitted. None of them belongs to a user who is created now."""

    def running_of(self, user: str) -> Sequence[int]:
        """Experiments of the user that have not ended, sorted."""
        return ()

    def tokens_of(self, user: str) -> tuple[Token, ...]:
        """Tokens of the user, the oldest first."""
        found = (self.tokens[key] for key in sorted(self.tokens) if self.tokens[key].user == user)
        return tuple(sorted(found, key=lambda token: (token.created_us, token.token_hash)))

    def owner(self, submitter: str, experiment_id: int) -> str:
        """Owner of an experiment with this recorded submitter. Earlier users get a name that no present user has."""
        user = self.users.get(submitter)
        return submitter if user is None or experiment_id >= user.first_experiment else f"{EARLIER}{submitter}"

    def linked(self, subject: str) -> str:
        """Name of the user who signs in as this subject; empty if there is none."""
        return next((name for name in sorted(self.users) if subject and self.users[name].subject == subject), "")

    def acts_for(self, user: str, name: str) -> bool:
        """True if the user may manage the tokens of `name`: the user's own, and those of the user's service accounts."""
        return user == name or (name in self.users and bool(user) and self.users[name].owner == user)

    def subject(self, name: str, token: Token | None = None) -> Principal:
        """Principal for the user of that name. `token`: that of the request, which may be limited."""
        user = self.users.get(name)
        limited_to = None if token is None or token.permissions is None else frozenset(token.permissions)
        kind: HolderKind = "service" if user is not None and user.service else "user"
        groups = () if user is None else user.groups
        admin = name == ADMIN or (user is not None and user.admin)
        return Principal(name, kind, groups, admin, limited_to, "" if token is None else token.workspace)

    def hidden_of(self, user: str) -> frozenset[str]:
        """Workspaces that the user does not see."""
        return sight(self.access, self.subject(user)).hidden

    @property
    def hidden_from(self) -> Callable[[str], frozenset[str]] | None:
        """`hidden_of`; None if all users see everything."""
        return self.hidden_of if self.access.has_private else None

    def run_owner(self, user_name: str, started_us: int) -> str:
        """Owner of an unmanaged run that this recorded user started at that time by the log."""
        user = self.users.get(user_name)
        return user_name if user is None or started_us >= user.since_us else f"{EARLIER}{user_name}"

    def may_all(self, user: str) -> bool:
        return is_cluster_admin(self.access, self.subject(user))


def check_people(state: PeopleState) -> None:
    """Asserts the invariants that hold after every event."""
    for key in sorted(state.tokens):
        token = state.tokens[key]
        assert token.token_hash == key
        assert token.user == ADMIN or token.user in state.users
