"""Roles: their permissions, and their holders in each workspace."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tenuto.schemas.events.access import HOLDER_NAME_CHARACTERS_MAX, HolderKind, Holding, RoleSettings
from tenuto.schemas.events.request import USER_NAME_PATTERN
from tenuto.schemas.names import NAME_PATTERN
from tenuto.services.gateway.http.bodies import RightsChanged
from tenuto.services.gateway.http.context import answer, asked
from tenuto.services.gateway.http.recorded_answers import record_change
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.people.commands import ChangeRole, CreateRole, GrantRole, RemoveRole, RevokeRole
from tenuto.services.gateway.people.door import Door
from tenuto.services.gateway.people.views import GrantView, NewRoleBody, PermissionView, RoleView
from tenuto.services.gateway.rights.access import PERMISSIONS, ROLES, Grant

router = APIRouter(tags=["roles"], route_class=StrictRoute)
RoleName = Annotated[str, Path(pattern=USER_NAME_PATTERN)]
Workspace = Annotated[str, Path(pattern=NAME_PATTERN)]
HolderName = Annotated[str, Path(min_length=1, max_length=HOLDER_NAME_CHARACTERS_MAX)]


@router.get("/permissions", response_model=list[PermissionView])
async def permissions() -> Response:
    """Permissions that roles are made of, and that tokens may be limited to."""
    return answer([PermissionView(name=name, allows=allows) for name, allows in PERMISSIONS.items()])


@router.get("/roles", response_model=list[RoleView])
async def roles(door: Door) -> Response:
    """Roles that every cluster has, then this cluster's own."""
    own = door.state.access.roles
    found = [RoleView(name=name, permissions=tuple(sorted(ROLES[name])), own=False) for name in ROLES]
    found += [RoleView(name=name, permissions=own[name], own=True) for name in sorted(own)]
    return answer(found)


@router.post("/roles", response_model=RightsChanged, status_code=201)
async def create(door: Door, body: NewRoleBody) -> Response:
    """Makes a role of this cluster's own."""
    return await record_change(door, CreateRole(**asked(door), name=body.name, permissions=body.permissions), 201)


@router.put("/roles/{role}", response_model=RightsChanged)
async def change(door: Door, role: RoleName, body: RoleSettings) -> Response:
    """Holders of the role have these permissions from now on, and no more."""
    return await record_change(door, ChangeRole(**asked(door), name=role, permissions=body.permissions))


@router.delete("/roles/{role}", response_model=RightsChanged)
async def remove(door: Door, role: RoleName) -> Response:
    """Holders of the role lose it."""
    return await record_change(door, RemoveRole(**asked(door), name=role))


@router.get("/grants", response_model=list[GrantView])
async def grants(
    door: Door, workspace: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Only what counts in it.")] = None
) -> Response:
    """Granted roles, with their holders and places. The rights of the cluster's own token and of users made with `admin` need no
    grant."""
    granted = door.state.access.grants
    all_of_them = [(holder, grant) for holder in sorted(granted) for grant in granted[holder]]
    return answer([_view(*item) for item in all_of_them if workspace is None or item[1].workspace in ("", workspace)])


@router.post("/grants", response_model=RightsChanged)
async def grant(door: Door, body: Holding) -> Response:
    """Grants a role in the whole cluster."""
    return await record_change(door, GrantRole(**asked(door), holding=body))


@router.delete("/grants/{kind}/{name}/{role}", response_model=RightsChanged)
async def revoke(door: Door, kind: HolderKind, name: HolderName, role: RoleName) -> Response:
    """Revokes a role that was granted in the whole cluster; those granted in workspaces stay."""
    return await record_change(door, RevokeRole(**asked(door), holding=Holding(kind=kind, name=name, role=role)))


@router.post("/workspaces/{workspace}/grants", response_model=RightsChanged)
async def grant_in_workspace(door: Door, workspace: Workspace, body: Holding) -> Response:
    """Grants a role in one workspace."""
    return await record_change(door, GrantRole(**asked(door), holding=body, workspace=workspace))


@router.delete("/workspaces/{workspace}/grants/{kind}/{name}/{role}", response_model=RightsChanged)
async def revoke_in_workspace(door: Door, workspace: Workspace, kind: HolderKind, name: HolderName, role: RoleName) -> Response:
    """Revokes a role that was granted in this workspace."""
    holding = Holding(kind=kind, name=name, role=role)
    return await record_change(door, RevokeRole(**asked(door), holding=holding, workspace=workspace))


def _view(holder: str, grant: Grant) -> GrantView:
    kind, _, name = holder.partition("/")
    found = {"kind": kind, "name": name, "role": grant.role, "workspace": grant.workspace or None}
    return GrantView.model_validate(found)
