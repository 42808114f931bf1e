"""State of the gateway, as needed to answer a request: the live experiments with the last requests about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events.access import HolderKind
from tenuto.schemas.record import Parent
from tenuto.services.gateway.policies.access import Access, Subject, is_cluster_admin, sight
from tenuto.services.gateway.policies.acting_state import Acting
from tenuto.services.gateway.policies.joining import Joining
from tenuto.services.gateway.policies.nodes import Nodes
from tenuto.services.gateway.policies.notice_state import HiddenOf, Notices
from tenuto.services.gateway.policies.templates import Templates

ADMIN = "admin"
"""Whoever holds the cluster's own token."""
EARLIER = "an earlier user "
"""Prefix of a removed user's name, if another user has the name now."""
USERS_MAX = 10_000
"""All are kept in memory."""
DELETED_MAX = 1_000
"""Deleted experiments that are remembered for requests that were under way at their deletion; the views know all of them."""


@dataclass(frozen=True)
class Live:
    """An experiment that the search has not ended."""

    experiment_id: int
    priority: int
    weight: float
    max_slots: int | None
    paused: bool = False
    canceled: bool = False
    killed: bool = False
    place: float = 0.0
    """Smaller is earlier among those of its priority."""
    pool: str = "default"
    user: str = ""
    """User who submitted it."""
    workspace: str = "default"
    method: str = ""
    """Name of the searcher: not all can have other limits while they run."""
    created: int = 0
    trials_max: int = 0
    """Of a search by a user's own class: the trials that it asked for so far, and how many it may ask for."""
    origins: tuple[int, ...] = ()
    """Experiments that it was made from, sorted: they are not deleted before it has ended."""
    max_wall_hours: float = 0.0
    workspace_hours_max: float = 0.0
    """Longest time in hours that it may run, as its configuration says, and as its workspace said at the submission. 0: no
    limit."""
    allocations: int = 0
    """Allocations of its trials that are granted and not released."""
    wall_since_us: int = 0
    """Time of the grant since which there was always one; meaningless while there is none."""
    wall_us: int = 0
    """Time in microseconds that it ran before that."""


def origins_of(config: ExperimentConfig, parent: Parent | None) -> tuple[int, ...]:
    """Experiments that one with this configuration is made from: its parent, and those whose checkpoints it starts from."""
    start = config.searcher.source_checkpoint
    checkpoints = [source.checkpoint_id for source in parent.sources] if parent is not None else []
    found = {parent.experiment_id} if parent is not None else set()
    if start is not None:
        checkpoints.append(start.checkpoint_id)
    numbers = [name.partition("-")[0] for name in checkpoints]
    return tuple(sorted(found | {int(number) for number in numbers if number.isdecimal()}))


class Deletion(NamedTuple):
    """A request to delete an experiment, which can still be taken back."""

    user: str
    asked_us: int
    due_us: int


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
    """True: whoever comes from there with this name is this user."""
    groups: tuple[str, ...] = ()
    """As the provider told at the last sign-in."""
    service: bool = False
    """True: an account for programs, which has no password."""
    owner: str = ""
    """User who keeps the service account's tokens, beside admins."""


TOKENS_PER_USER_MAX = 20
"""One for each machine or program of a user; more of them are forgotten ones."""
SESSIONS_PER_USER_MAX = 20
"""The oldest ends when one more begins: a user with many machines is not kept out by forgotten ones."""
TOKEN_ID_CHARACTERS = 12


@dataclass(frozen=True)
class Token:
    token_hash: str
    user: str
    created_us: int
    expires_us: int | None = None
    """From then on it is worth nothing. None: it does not expire."""
    label: str = ""
    session: bool = False
    """True: given at a sign-in."""
    permissions: tuple[str, ...] | None = None
    """Names of the permissions that it is limited to. None: whoever shows it may do what its user may."""
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


UNMANAGED_MAX = 10_000
"""Experiments of unmanaged runs: all are kept in memory."""


class Unmanaged(NamedTuple):
    """An experiment of unmanaged runs."""

    name: str
    user: str
    """User who created it."""
    trials: int = 0


class Share(NamedTuple):
    """Of a workspace or a user, as it was set last."""

    weight: float
    max_slots: int | None


@dataclass(frozen=True)
class State:
    submitted: int = 0
    """Experiments so far; their ids are 1..submitted."""
    live: Map[int, Live] = field(default_factory=Map)
    users: Map[str, User] = field(default_factory=Map)
    """By name; the one whose token is the cluster's own is not among them."""
    tokens: Map[str, Token] = field(default_factory=Map)
    """By hash. Expired ones stay until their user makes another, so that they can be shown and told from wrong ones."""
    barred: Map[str, str] = field(default_factory=Map)
    """Issuer and subject -> name of the user who was removed: not made anew at the next sign-in."""
    shares: Map[str, Share] = field(default_factory=Map)
    """By `workspace/<name>` and `user/<name>`, where one was set."""
    half_lives: Map[str, float] = field(default_factory=Map)
    """Pool -> hours, where past use counts."""
    access: Access = field(default_factory=Access)
    """Workspaces, roles, and who has them."""
    templates: Templates = field(default_factory=Templates)
    """Of configurations, and the defaults of workspaces."""
    unmanaged: Map[int, Unmanaged] = field(default_factory=Map)
    """By the experiment's id."""
    notices: Notices = field(default_factory=Notices)
    """Webhooks, and what is to be sent to them."""
    acting: Acting = field(default_factory=Acting)
    """Rules of experiments, and how often they have acted."""
    joining: Joining = field(default_factory=Joining)
    """Join tokens, and the agents that joined or were revoked."""
    nodes: Nodes = field(default_factory=Nodes)
    """Pools whose nodes a provisioner starts, and these nodes."""
    deletions: Map[int, Deletion] = field(default_factory=Map)
    """By experiment: those that are not carried out yet."""
    deleted: tuple[int, ...] = ()
    """Experiments that were deleted last, at most DELETED_MAX."""

    def tokens_of(self, user: str) -> tuple[Token, ...]:
        """The oldest first."""
        found = (self.tokens[key] for key in sorted(self.tokens) if self.tokens[key].user == user)
        return tuple(sorted(found, key=lambda token: (token.created_us, token.token_hash)))

    def owner(self, submitter: str, experiment_id: int) -> str:
        """Owner of an experiment with this recorded submitter. No present user is named like an earlier one."""
        user = self.users.get(submitter)
        return submitter if user is None or experiment_id >= user.first_experiment else f"{EARLIER}{submitter}"

    def linked(self, subject: str) -> str:
        """Name of the user who signs in as this subject; empty if there is none."""
        return next((name for name in sorted(self.users) if subject and self.users[name].subject == subject), "")

    def acts_for(self, user: str, name: str) -> bool:
        """Whether the tokens of user `name` are this user's affair: the own ones, and those of service accounts."""
        return user == name or (name in self.users and bool(user) and self.users[name].owner == user)

    def subject(self, name: str, token: Token | None = None) -> Subject:
        """The user of that name. `token`: the one that was shown, which may be limited."""
        user = self.users.get(name)
        limited_to = None if token is None or token.permissions is None else frozenset(token.permissions)
        kind: HolderKind = "service" if user is not None and user.service else "user"
        groups = () if user is None else user.groups
        admin = name == ADMIN or (user is not None and user.admin)
        return Subject(name, kind, groups, admin, limited_to, "" if token is None else token.workspace)

    def hidden_of(self, user: str) -> frozenset[str]:
        """Workspaces that the user does not see."""
        return sight(self.access, self.subject(user)).hidden

    @property
    def hidden_from(self) -> HiddenOf | None:
        """`hidden_of`; None: nobody misses anything."""
        return self.hidden_of if self.access.has_private else None

    def run_owner(self, user_name: str, started_us: int) -> str:
        """Owner of an unmanaged run that this recorded user started at that time by the log."""
        user = self.users.get(user_name)
        return user_name if user is None or started_us >= user.since_us else f"{EARLIER}{user_name}"

    def unmanaged_named(self, name: str) -> int | None:
        """Id of the experiment of unmanaged runs that has this name."""
        return next((key for key in sorted(self.unmanaged) if self.unmanaged[key].name == name), None)

    def may_all(self, user: str) -> bool:
        return is_cluster_admin(self.access, self.subject(user))


def initial() -> State:
    return State()


def check(state: State) -> None:
    """Assert what must hold after every event."""
    for experiment_id in sorted(state.live):
        live = state.live[experiment_id]
        assert live.experiment_id == experiment_id
        assert 1 <= experiment_id <= state.submitted
        assert live.canceled or not live.killed
        assert live.allocations >= 0
        assert live.wall_us >= 0
    for key in sorted(state.tokens):
        token = state.tokens[key]
        assert token.token_hash == key
        assert token.user == ADMIN or token.user in state.users
