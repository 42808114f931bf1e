"""Folds users, their tokens, workspaces and roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from immutables import Map

from tenuto.kernel.folding import Envelope, Fold, WithEnvelope
from tenuto.schemas.events import EventData
from tenuto.schemas.events.people import UserGroupsSet, UserLinked, UserPasswordSet
from tenuto.schemas.events.request import TokenCreated, TokenRevoked, UserCreated, UserRemoved
from tenuto.services.gateway.rights.access import OF_ACCESS, without_holder
from tenuto.services.gateway.rights.access import fold as fold_access
from tenuto.services.gateway.rights.state import PeopleState, Token, User


def user_created(state: PeopleState, data: UserCreated, envelope: Envelope) -> PeopleState:
    since_us = envelope.time_us
    user = User(data.name, data.admin, state.submitted + 1, since_us, service=data.service, owner=data.owner)
    made = replace(_without_user(state, data.name), users=state.users.set(data.name, user))
    return _with_token(made, Token(data.token_hash, data.name, envelope.time_us, data.expires_us)) if data.token_hash else made


def user_removed(state: PeopleState, data: UserRemoved) -> PeopleState:
    user = state.users.get(data.name)
    if user is not None and user.subject:
        state = replace(state, barred=state.barred.set(user.subject, user.name))
    access = without_holder(without_holder(state.access, f"user/{data.name}"), f"service/{data.name}")
    return replace(_without_user(state, data.name), access=access)


def access_changed(state: PeopleState, data: EventData) -> PeopleState:
    return replace(state, access=fold_access(state.access, data))


def token_created(state: PeopleState, data: TokenCreated, envelope: Envelope) -> PeopleState:
    token = Token(
        data.token_hash,
        data.user,
        envelope.time_us,
        data.expires_us,
        data.label,
        permissions=data.permissions,
        workspace=data.workspace or "",
        session=data.session,
    )
    return _with_token(state, token)


def token_revoked(state: PeopleState, data: TokenRevoked) -> PeopleState:
    gone = [token for token in state.tokens_of(data.user) if token.id == data.token_id]
    return replace(state, tokens=_without(state.tokens, gone))


def password_set(state: PeopleState, data: UserPasswordSet) -> PeopleState:
    user = state.users.get(data.name)
    if user is None:
        return state
    user = replace(user, password_id=data.password_id, must_change=data.must_change)
    sessions = [token for token in state.tokens_of(data.name) if token.session]
    return replace(state, users=state.users.set(data.name, user), tokens=_without(state.tokens, sessions))


def user_linked(state: PeopleState, data: UserLinked) -> PeopleState:
    user = state.users.get(data.name)
    if user is None:
        return state
    user = replace(user, subject=data.subject, link_expected=not data.subject)
    barred = state.barred.delete(data.subject) if data.subject in state.barred else state.barred
    return replace(state, users=state.users.set(data.name, user), barred=barred)


def groups_set(state: PeopleState, data: UserGroupsSet) -> PeopleState:
    user = state.users.get(data.name)
    return state if user is None else replace(state, users=state.users.set(data.name, replace(user, groups=data.groups)))


def _with_token(state: PeopleState, token: Token) -> PeopleState:
    """State with the token; the user's expired ones are forgotten."""
    expired = [other for other in state.tokens_of(token.user) if not other.holds(token.created_us)]
    return replace(state, tokens=_without(state.tokens, expired).set(token.token_hash, token))


def _without(tokens: Map[str, Token], gone: Sequence[Token]) -> Map[str, Token]:
    for token in gone:
        tokens = tokens.delete(token.token_hash)
    return tokens


def _without_user(state: PeopleState, name: str) -> PeopleState:
    if name not in state.users:
        return state
    users = state.users.delete(name)
    for other in sorted(users):
        if users[other].owner == name:  # a later user of that name must not own them
            users = users.set(other, replace(users[other], owner=""))
    return replace(state, users=users, tokens=_without(state.tokens, state.tokens_of(name)))


FOLDS: Mapping[type[EventData], Fold[Any]] = {
    **dict.fromkeys(OF_ACCESS, access_changed),
    UserCreated: WithEnvelope(user_created),
    UserRemoved: user_removed,
    TokenCreated: WithEnvelope(token_created),
    TokenRevoked: token_revoked,
    UserPasswordSet: password_set,
    UserLinked: user_linked,
    UserGroupsSet: groups_set,
}
