"""Checks that the user of a command has a permission."""

from __future__ import annotations

from tenuto.kernel.core import Refused
from tenuto.services.gateway.rights.commands import UserCommand
from tenuto.services.gateway.rights.permissions import PermissionRule, refusal
from tenuto.services.gateway.rights.state import PeopleState


def check_admin(state: PeopleState, command: UserCommand, permission: str) -> None:
    """Checks that the user has the permission in the whole cluster. Raises Refused."""
    if why := refusal(state.access, state.subject(command.user), PermissionRule(permission)):
        raise Refused(why, "forbidden")
