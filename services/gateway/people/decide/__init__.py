"""Decisions about people: users, their tokens, sign-in, roles and workspaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenuto.schemas.events import EventData
from tenuto.services.gateway.people import commands
from tenuto.services.gateway.people.decide import roles, secrets, signing_in, sso, users, workspaces
from tenuto.services.gateway.rights.commands import UserCommand
from tenuto.services.gateway.rights.state import PeopleState

DECISIONS: Mapping[type, Callable[[Any, Any], Sequence[EventData]]] = {
    commands.CreateUser: users.create,
    commands.RemoveUser: users.remove,
    commands.CreateToken: users.create_token,
    commands.RevokeToken: users.revoke_token,
    commands.SetPassword: signing_in.set_password,
    commands.SignIn: signing_in.sign_in,
    commands.SignInByLink: signing_in.sign_in_by_link,
    commands.LinkUser: sso.link,
    commands.SignInAtProvider: sso.sign_in,
    commands.CreateRole: roles.create_role,
    commands.ChangeRole: roles.change_role,
    commands.RemoveRole: roles.remove_role,
    commands.GrantRole: roles.grant,
    commands.RevokeRole: roles.revoke,
    commands.CreateWorkspace: workspaces.create,
    commands.ChangeWorkspace: workspaces.change,
    commands.CreateProject: workspaces.create_project,
    commands.ChangeProject: workspaces.change_project,
    commands.NoteSecretKey: secrets.note_secret_key,
}
"""Command -> what decides it."""


def check(state: PeopleState, command: UserCommand) -> None:
    """Whether the command would be carried out now. Raises Refused."""
    DECISIONS[type(command)](state, command)
