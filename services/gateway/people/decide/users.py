"""Users and their tokens."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import NewUser, TokenCreated, TokenRevoked, UserCreated, UserRemoved
from tenuto.services.gateway.people.commands import CreateToken, CreateUser, RemoveUser, RevokeToken, TokenCommand
from tenuto.services.gateway.rights.access import ALL, held
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.permissions import OWN_TOKENS, refusal
from tenuto.services.gateway.rights.state import ADMIN, TOKENS_PER_USER_MAX, USERS_MAX, PeopleState
from tenuto.services.gateway.rights.workspaces import is_known, no_workspace

RUNNING_NAMED_MAX = 5
"""Most experiments named in one sentence."""


def create(state: PeopleState, command: CreateUser) -> Sequence[EventData]:
    check_admin(state, command, "user.admin")
    check_new(state, command.new.name)
    _check_owner(state, command.new)
    if command.new.admin and not state.may_all(command.user):
        raise Refused("Only who may do everything makes a user who may.", "forbidden")
    return [UserCreated(**dict(command.new), token_hash=command.token_hash, expires_us=command.expires_us)]


def check_new(state: PeopleState, name: str) -> None:
    """Raises Refused if a new user cannot get the name."""
    if name == ADMIN or name in state.users:
        hint = f"`tenuto user token create {name}` makes another token"
        raise Refused(f"There is a user {name} already; {hint}.", "conflict")
    if len(state.users) >= USERS_MAX:
        raise Refused(f"There are {USERS_MAX} users, and no more are kept; remove one.", "conflict")
    if left := _left_behind(state, name):
        raise Refused(left, "conflict")


def remove(state: PeopleState, command: RemoveUser) -> Sequence[EventData]:
    check_admin(state, command, "user.admin")
    if command.name not in state.users:
        raise no_user(command.name)
    return [UserRemoved(name=command.name)]


def create_token(state: PeopleState, command: CreateToken) -> Sequence[EventData]:
    owner, replaces_id = command.owner, command.replaces_id
    _check_self(state, command)
    if owner in state.users and not state.acts_for(command.user, owner):
        check_no_more(state, command.user, owner)
    if replaces_id:
        _check_token(state, owner, replaces_id)
    kept = [token for token in state.tokens_of(owner) if token.holds(command.time_us) and token.id != replaces_id]
    kept = [token for token in kept if not token.session]
    if len(kept) >= TOKENS_PER_USER_MAX:
        raise Refused(f"{owner} has {TOKENS_PER_USER_MAX} tokens, and no more are kept; revoke one.", "conflict")
    created = TokenCreated(
        user=owner,
        token_hash=command.token_hash,
        label=command.label,
        expires_us=command.expires_us,
        permissions=_limit(state, command),
        workspace=_workspace(state, command) or None,
    )
    return [created, TokenRevoked(user=owner, token_id=replaces_id)] if replaces_id else [created]


def _limit(state: PeopleState, command: CreateToken) -> tuple[str, ...] | None:
    """Permissions that the new token is limited to. Raises Refused if it could do more than the token that makes it."""
    wanted, shown = command.permissions, command.limited_to
    if wanted is not None and (unknown := sorted(set(wanted) - ALL)):
        raise Refused(f"{unknown[0]} is no permission; `tenuto role permissions` lists them.", "invalid")
    if wanted is None and command.replaces_id:
        replaced = (token for token in state.tokens_of(command.owner) if token.id == command.replaces_id)
        wanted = next((token.permissions for token in replaced), None)
        if wanted is None and shown is not None:
            raise Refused(f"The token that you use is limited, and {command.replaces_id} is not: use another token.", "forbidden")
    if wanted is None:
        return shown
    if shown is not None and (more := sorted(set(wanted) - set(shown))):
        raise Refused(f"The token that you use is not allowed {more[0]}, and makes none that is.", "forbidden")
    return tuple(sorted(set(wanted)))


def _workspace(state: PeopleState, command: CreateToken) -> str:
    """Workspace that the new token is limited to; empty: none. Raises Refused if it could reach more than the token that makes
    it."""
    wanted, shown = command.workspace, command.shown_workspace
    if wanted and (not is_known(state, wanted) or wanted in state.hidden_of(command.user)):
        raise no_workspace(wanted)
    if not wanted and command.replaces_id:
        replaced = (token for token in state.tokens_of(command.owner) if token.id == command.replaces_id)
        wanted = next((token.workspace for token in replaced), "")
        if not wanted and shown:
            raise Refused(f"The token that you use is limited, and {command.replaces_id} is not: use another token.", "forbidden")
    if shown and (wanted or shown) != shown:
        raise Refused(f"The token that you use is limited to workspace {shown}, and makes none for another.", "forbidden")
    return wanted or shown


def check_no_more(state: PeopleState, actor: str, name: str) -> None:
    """Raises Refused if `name` may do more than the actor: a password or token of that user would give the actor these rights."""
    access, subject, other = state.access, state.subject(actor), state.subject(name)
    granted = (grant.workspace for holder in other.holders for grant in access.grants.get(holder, ()))
    if any(held(access, other, place) - held(access, subject, place) for place in ("", *granted)):
        raise Refused(f"{name} may do more than you: ask an admin who may do as much.", "forbidden")


def revoke_token(state: PeopleState, command: RevokeToken) -> Sequence[EventData]:
    _check_self(state, command)
    _check_token(state, command.owner, command.token_id)
    return [TokenRevoked(user=command.owner, token_id=command.token_id)]


def _check_self(state: PeopleState, command: TokenCommand) -> None:
    """Raises Refused."""
    owner = command.owner
    acting = owner if state.acts_for(command.user, owner) else command.user
    if why := refusal(state.access, state.subject(acting), OWN_TOKENS, owner=owner):
        raise Refused(why, "forbidden")
    if owner != ADMIN and owner not in state.users:
        raise no_user(owner)


def _check_token(state: PeopleState, owner: str, token_id: str) -> None:
    """Raises Refused."""
    if not any(token.id == token_id for token in state.tokens_of(owner)):
        raise Refused(f"{owner} has no token {token_id}; `tenuto user token ls {owner}` lists them.", "not_found")


def no_user(name: str) -> Refused:
    return Refused(f"There is no user {name}; `tenuto user ls` lists those that there are.", "not_found")


def _check_owner(state: PeopleState, new: NewUser) -> None:
    """Raises Refused."""
    if not new.owner:
        return
    if not new.service:
        raise Refused("Only a service account has an owner: leave it out, or make it with `--service`.", "invalid")
    owner = state.users.get(new.owner)
    if owner is None or owner.service:
        raise no_user(new.owner) if owner is None else Refused(f"{new.owner} is a service account and owns none.", "invalid")
    if new.admin and not owner.admin:
        raise Refused(f"{new.owner} is no admin, and would become one by the tokens of this account.", "conflict")


def _left_behind(state: PeopleState, user: str) -> str:
    """Reason why the name of a removed user cannot be taken yet; empty if it can. Experiments that still run under it would be
    the new user's, and get secrets that the new user sets under the same names."""
    running = state.running_of(user)
    if not running:
        return ""
    named = ", ".join(map(str, running[:RUNNING_NAMED_MAX])) + ", ..." * (len(running) > RUNNING_NAMED_MAX)
    return (
        f"Of an earlier user {user} experiments have not ended ({named}): end them with `tenuto exp kill`, wait for their end, "
        "or choose another name."
    )


DECISIONS = decisions(create, remove, create_token, revoke_token)
