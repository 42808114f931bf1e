"""Roles and their grants. Users cannot grant more than they have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.events import EventData
from tenuto.schemas.events.access import Holding, RoleChanged, RoleCreated, RoleGranted, RoleRemoved, RoleRevoked
from tenuto.services.gateway.people.commands import ChangeRole, CreateRole, GrantRole, RemoveRole, RevokeRole
from tenuto.services.gateway.rights.access import (
    ALL,
    GRANTS_MAX,
    OWN_ROLES_MAX,
    PERMISSIONS,
    ROLES,
    Grant,
    held,
    role_permissions,
)
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.permissions import CHANGES_WORKSPACE, refusal
from tenuto.services.gateway.rights.state import PeopleState


def create_role(state: PeopleState, command: CreateRole) -> Sequence[EventData]:
    check_admin(state, command, "role.admin")
    name = command.name
    if name in ROLES or name in state.access.roles:
        raise Refused(f"There is a role {name} already; `tenuto role ls` lists those that there are.", "conflict")
    if len(state.access.roles) >= OWN_ROLES_MAX:
        raise Refused(f"There are {OWN_ROLES_MAX} roles of your own, and no more are kept; remove one.", "conflict")
    return [RoleCreated(name=name, permissions=_given(state, command.user, command.permissions))]


def change_role(state: PeopleState, command: ChangeRole) -> Sequence[EventData]:
    check_admin(state, command, "role.admin")
    _check_own_role(state, command.name)
    permissions = _given(state, command.user, command.permissions)
    if permissions == state.access.roles[command.name]:
        return []
    return [RoleChanged(name=command.name, permissions=permissions)]


def remove_role(state: PeopleState, command: RemoveRole) -> Sequence[EventData]:
    check_admin(state, command, "role.admin")
    _check_own_role(state, command.name)
    return [RoleRemoved(name=command.name)]


def grant(state: PeopleState, command: GrantRole) -> Sequence[EventData]:
    holding, workspace = command.holding, command.workspace
    _check_granting(state, command)
    if holding.role not in ROLES and holding.role not in state.access.roles:
        raise _no_role(holding.role)
    if holding.kind != "group":  # a group is unknown here until one of its members signs in
        found = state.users.get(holding.name)
        if found is None or found.service != (holding.kind == "service"):
            what = "service account" if holding.kind == "service" else "user"
            raise Refused(f"There is no {what} {holding.name}; `tenuto user ls` lists those that there are.", "not_found")
    _check_not_more(state, command.user, role_permissions(state.access, holding.role), workspace or "")
    now = state.access.grants.get(f"{holding.kind}/{holding.name}", ())
    if Grant(holding.role, workspace or "") in now:
        return []
    if len(now) >= GRANTS_MAX:
        raise Refused(f"{_named(holding)} has {GRANTS_MAX} roles, and no more are kept; revoke one.", "conflict")
    return [RoleGranted(**dict(holding), workspace=workspace)]


def revoke(state: PeopleState, command: RevokeRole) -> Sequence[EventData]:
    holding, workspace = command.holding, command.workspace
    _check_granting(state, command)
    if Grant(holding.role, workspace or "") not in state.access.grants.get(f"{holding.kind}/{holding.name}", ()):
        where = f"workspace {workspace}" if workspace else "the whole cluster"
        raise Refused(
            f"{_named(holding)} was not granted the role {holding.role} in {where}; `tenuto role grants` lists what was granted.",
            "not_found",
        )
    return [RoleRevoked(**dict(holding), workspace=workspace)]


def _check_granting(state: PeopleState, command: GrantRole | RevokeRole) -> None:
    """Raises Refused."""
    if not command.workspace:
        check_admin(state, command, "role.admin")
    elif why := refusal(state.access, state.subject(command.user), CHANGES_WORKSPACE, workspace=command.workspace):
        raise Refused(why, "forbidden")


def _given(state: PeopleState, user: str, permissions: Iterable[str]) -> tuple[str, ...]:
    """Permissions of a role, sorted, each once. Raises Refused."""
    wanted = frozenset(permissions)
    if unknown := sorted(wanted - ALL):
        raise Refused(f"permissions: {unknown[0]} is no permission; those are {', '.join(PERMISSIONS)}.", "invalid")
    _check_not_more(state, user, wanted, "")
    return tuple(sorted(wanted))


def _check_not_more(state: PeopleState, user: str, permissions: frozenset[str], workspace: str) -> None:
    """Raises Refused."""
    if more := sorted(permissions - held(state.access, state.subject(user), workspace)):
        raise Refused(f"The role has the permission {more[0]}, which only somebody may give who has it, too.", "forbidden")


def _check_own_role(state: PeopleState, name: str) -> None:
    """Raises Refused."""
    if name in ROLES:
        raise Refused(
            f"The role {name} is the same in every cluster; make one of your own with `tenuto role create`.", "conflict"
        )
    if name not in state.access.roles:
        raise _no_role(name)


def _no_role(name: str) -> Refused:
    return Refused(f"There is no role {name}; `tenuto role ls` lists those that there are.", "not_found")


def _named(holding: Holding) -> str:
    return f"{'The service account' if holding.kind == 'service' else holding.kind.capitalize()} {holding.name}"


DECISIONS = decisions(create_role, change_role, remove_role, grant, revoke)
