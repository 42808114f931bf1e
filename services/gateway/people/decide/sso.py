"""Sign-in of users whom a provider of identities knows."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.people import UserGroupsSet, UserLinked
from tenuto.schemas.events.request import UserCreated
from tenuto.services.gateway.people.commands import LinkUser, SignInAtProvider
from tenuto.services.gateway.people.decide.signing_in import begin_session
from tenuto.services.gateway.people.decide.users import check_new, check_no_more, no_user
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.state import PeopleState

ASK = "ask an admin (`tenuto user create {name}`, then `tenuto user link {name}`)"


def link(state: PeopleState, command: LinkUser) -> Sequence[EventData]:
    check_admin(state, command, "user.admin")
    user = state.users.get(command.name)
    if user is None:
        raise no_user(command.name)
    check_no_more(state, command.user, command.name)
    if user.service:
        raise Refused(f"{command.name} is a service account, which has tokens only.", "conflict")
    return [UserLinked(name=command.name)]


def sign_in(state: PeopleState, command: SignInAtProvider) -> Sequence[EventData]:
    name, user = command.user, state.users.get(command.user)
    changed: list[EventData] = []
    if state.linked(command.subject) not in ("", name):
        raise Refused("The user was changed while this was answered: sign in again.", "conflict")
    if user is None:
        if command.subject in state.barred:
            raise Refused(f"{name} was removed from this cluster: {ASK.format(name=name)}.", "forbidden")
        if not command.may_create:
            raise Refused(f"There is no user {name} here: {ASK.format(name=name)}.", "forbidden")
        check_new(state, name)
        changed.append(UserCreated(name=name))
    elif user.subject != command.subject and not user.link_expected:
        raise Refused(
            f"There is a user {name} here already who signs in otherwise: if it is you, ask an admin to link it (`tenuto user "
            f"link {name}`).",
            "forbidden",
        )
    if user is None or user.subject != command.subject:
        changed.append(UserLinked(name=name, subject=command.subject))
    if command.groups != (user.groups if user is not None else ()):
        changed.append(UserGroupsSet(name=name, groups=command.groups))
    return [*changed, *begin_session(state, command)]


DECISIONS = decisions(link, sign_in)
