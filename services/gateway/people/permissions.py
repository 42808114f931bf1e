"""Rights that the routes of people need."""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.services.gateway.rights.permissions import (
    ANY,
    CHANGES_PROJECTS,
    CHANGES_WORKSPACE,
    OPEN,
    OWN_TOKENS,
    READS,
    READS_WORKSPACE,
    ROLES,
    SEES,
    UPKEEP,
    USERS,
    PermissionRule,
)

ROUTES: Mapping[str, PermissionRule] = {
    # Who signs in has no token yet.
    "GET /api/v1/login": OPEN,
    "POST /api/v1/login": OPEN,
    "POST /api/v1/login/link": OPEN,
    "GET /api/v1/sso": OPEN,
    "GET /api/v1/sso/callback": OPEN,
    "POST /api/v1/sso/token": OPEN,
    "POST /api/v1/logout": ANY,
    # A link for the user of the request, who needs a session.
    "POST /api/v1/login/links": ANY,
    # Where a workspace is not private, its whole record is seen by everybody, so that a group works on what it shares.
    "GET /api/v1/user": ANY,
    "GET /api/v1/users": SEES,
    # What a user makes is the user's own.
    "GET /api/v1/secrets": PermissionRule("secret.change"),
    "PUT /api/v1/secrets/{name}": PermissionRule("secret.change"),
    "DELETE /api/v1/secrets/{name}": PermissionRule("secret.change"),
    # A user's own tokens.
    "GET /api/v1/users/{name}/tokens": OWN_TOKENS,
    "POST /api/v1/users/{name}/tokens": OWN_TOKENS,
    "POST /api/v1/users/{name}/tokens/{token_id}/rotate": OWN_TOKENS,
    "DELETE /api/v1/users/{name}/tokens/{token_id}": OWN_TOKENS,
    "POST /api/v1/secrets/rotate-key": UPKEEP,
    "POST /api/v1/users": USERS,
    "DELETE /api/v1/users/{name}": USERS,
    "PUT /api/v1/users/{name}/password": USERS,
    "DELETE /api/v1/users/{name}/password": USERS,
    "PUT /api/v1/users/{name}/link": USERS,
    "GET /api/v1/permissions": ANY,
    "GET /api/v1/roles": SEES,
    "POST /api/v1/roles": ROLES,
    "PUT /api/v1/roles/{role}": ROLES,
    "DELETE /api/v1/roles/{role}": ROLES,
    "GET /api/v1/grants": SEES,
    "POST /api/v1/grants": ROLES,
    "DELETE /api/v1/grants/{kind}/{name}/{role}": ROLES,
    "GET /api/v1/workspaces": READS,
    "POST /api/v1/workspaces": PermissionRule("workspace.create"),
    "GET /api/v1/workspaces/{workspace}": READS_WORKSPACE,
    "PATCH /api/v1/workspaces/{workspace}": CHANGES_WORKSPACE,
    "GET /api/v1/workspaces/{workspace}/projects": READS_WORKSPACE,
    "POST /api/v1/workspaces/{workspace}/projects": CHANGES_PROJECTS,
    "PATCH /api/v1/workspaces/{workspace}/projects/{project}": CHANGES_PROJECTS,
    "POST /api/v1/workspaces/{workspace}/grants": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/grants/{kind}/{name}/{role}": CHANGES_WORKSPACE,
}
