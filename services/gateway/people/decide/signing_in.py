"""Passwords, and sessions of those who sign in with them."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.people import UserPasswordSet
from tenuto.schemas.events.request import TokenCreated, TokenRevoked
from tenuto.services.gateway.people.commands import BeginSession, SetPassword, SignIn, SignInByLink
from tenuto.services.gateway.people.decide.users import check_no_more, no_user
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.state import ADMIN, SESSIONS_PER_USER_MAX, PeopleState

CHANGED_MEANWHILE = "The user or the password was changed while this was answered: sign in again."
MUST_CHANGE = "The password of {name} was set by an admin: choose your own with `tenuto login {name}` (`new_password` in REST)."


def set_password(state: PeopleState, command: SetPassword) -> Sequence[EventData]:
    check_admin(state, command, "user.admin")
    if command.name == ADMIN:
        raise Refused("The user admin is whoever holds the cluster's own token, and has no password.", "conflict")
    if command.name not in state.users:
        raise no_user(command.name)
    check_no_more(state, command.user, command.name)
    if state.users[command.name].service:
        raise Refused(f"{command.name} is a service account, which has tokens and no password.", "conflict")
    if not command.password_id and not state.users[command.name].password_id:
        raise Refused(f"{command.name} has no password.", "conflict")
    must_change = bool(command.password_id) and command.name != command.user
    return [UserPasswordSet(name=command.name, password_id=command.password_id, must_change=must_change)]


def sign_in(state: PeopleState, command: SignIn) -> Sequence[EventData]:
    user = state.users.get(command.user)
    if user is None or not user.password_id or user.password_id != command.password_id:
        raise Refused(CHANGED_MEANWHILE, "conflict")
    changed: list[EventData] = []
    if command.new_password_id:
        changed = [UserPasswordSet(name=user.name, password_id=command.new_password_id)]
    elif user.must_change:
        raise Refused(MUST_CHANGE.format(name=user.name), "password_change")
    return [*changed, *begin_session(state, command, keep_others=not changed)]


def sign_in_by_link(state: PeopleState, command: SignInByLink) -> Sequence[EventData]:
    """The session that asked for the link must not have ended meanwhile."""
    asking = state.tokens.get(command.asked_by)
    gone = asking is None or asking.user != command.user or not asking.holds(command.time_us)
    if gone if command.asked_by else command.user != ADMIN:
        raise Refused("The session that this link was made from has ended: sign in again.", "forbidden")
    return begin_session(state, command)


def begin_session(state: PeopleState, command: BeginSession, *, keep_others: bool = True) -> Sequence[EventData]:
    """Events that begin a session. `keep_others`: False: the others end already. Beyond the limit the oldest ends."""
    live = [token for token in state.tokens_of(command.user) if token.session and token.holds(command.time_us)]
    sessions = live if keep_others else []
    over = sessions[: max(0, len(sessions) - SESSIONS_PER_USER_MAX + 1)]
    created = TokenCreated(
        user=command.user, token_hash=command.token_hash, label=command.label, expires_us=command.expires_us, session=True
    )
    return [created, *(TokenRevoked(user=command.user, token_id=token.id) for token in over)]


DECISIONS = decisions(set_password, sign_in, sign_in_by_link)
