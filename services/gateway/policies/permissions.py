"""Rights of users: the one table by which every request is judged. A route that is not in it is refused to everybody."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum


class Right(Enum):
    """Right that a request needs. An admin has all rights."""

    OPEN = "no token"
    USER = "any token of a user"
    OWNER = "the token of the user whose experiment it is"
    SELF = "the token of the user that is named"
    MAKER = "the token of the user whose webhook or automation it is"
    ADMIN = "the token of an admin"


ROUTES: Mapping[str, Right] = {
    "GET /healthz": Right.OPEN,
    "GET /api/v1/openapi.json": Right.OPEN,
    "GET /api/v1/docs": Right.OPEN,
    # Who signs in has no token yet.
    "POST /api/v1/login": Right.OPEN,
    "GET /api/v1/sso": Right.OPEN,
    "GET /api/v1/sso/callback": Right.OPEN,
    "POST /api/v1/sso/token": Right.OPEN,
    "POST /api/v1/logout": Right.USER,
    # Whoever has a token sees the whole record: experiments of others, too, so that a group works on what it shares.
    "GET /api/v1/user": Right.USER,
    "GET /api/v1/users": Right.USER,
    "GET /api/v1/experiments": Right.USER,
    "GET /api/v1/experiments/{experiment_id}": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/trials": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/metrics": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/metrics/table": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/validations": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/logs": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/checkpoints": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/pareto": Right.USER,
    "GET /api/v1/experiments/{experiment_id}/reproduction": Right.USER,
    "GET /api/v1/trials/{trial_id}": Right.USER,
    "GET /api/v1/trials/{trial_id}/metrics": Right.USER,
    "GET /api/v1/trials/{trial_id}/validations": Right.USER,
    "GET /api/v1/trials/{trial_id}/logs": Right.USER,
    "GET /api/v1/trials/{trial_id}/record": Right.USER,
    "GET /api/v1/diff": Right.USER,
    "GET /api/v1/checkpoints": Right.USER,
    "GET /api/v1/stores": Right.USER,
    "GET /api/v1/checkpoints/{checkpoint_id}": Right.USER,
    "GET /api/v1/checkpoints/{checkpoint_id}/download": Right.USER,
    "GET /api/v1/events": Right.USER,
    "GET /api/v1/events/stream": Right.USER,
    "GET /api/v1/jobs": Right.USER,
    "GET /api/v1/shares": Right.USER,
    "GET /api/v1/agents": Right.USER,
    "GET /api/v1/allocations": Right.USER,
    "GET /api/v1/status": Right.USER,
    "GET /api/v1/parked": Right.USER,
    "GET /api/v1/parked/{number}": Right.USER,
    "GET /api/v1/webhooks": Right.USER,
    "GET /api/v1/webhooks/{name}": Right.USER,
    "GET /api/v1/webhooks/{name}/deliveries": Right.USER,
    "GET /api/v1/webhooks/{name}/explanation": Right.USER,
    "GET /api/v1/automations": Right.USER,
    "GET /api/v1/automations/{automation}": Right.USER,
    # What a user makes is the user's own.
    "GET /api/v1/secrets": Right.USER,
    "PUT /api/v1/secrets/{name}": Right.USER,
    "DELETE /api/v1/secrets/{name}": Right.USER,
    "POST /api/v1/webhooks": Right.USER,
    "POST /api/v1/experiments": Right.USER,
    "POST /api/v1/experiments/{experiment_id}/reproduce": Right.USER,
    "POST /api/v1/experiments/{experiment_id}/fork": Right.USER,
    "POST /api/v1/experiments/{experiment_id}/continue": Right.USER,
    # Changes of an experiment, and what reads all of its files.
    "PATCH /api/v1/experiments/{experiment_id}": Right.OWNER,
    "PATCH /api/v1/experiments/{experiment_id}/description": Right.OWNER,
    "DELETE /api/v1/experiments/{experiment_id}": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/undelete": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/archive": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/unarchive": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/pause": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/resume": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/cancel": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/kill": Right.OWNER,
    "POST /api/v1/experiments/{experiment_id}/operations": Right.OWNER,
    "POST /api/v1/jobs/{experiment_id}/move": Right.OWNER,
    "POST /api/v1/checkpoints/{checkpoint_id}/verify": Right.OWNER,
    # A user's own webhooks.
    "PATCH /api/v1/webhooks/{name}": Right.MAKER,
    "DELETE /api/v1/webhooks/{name}": Right.MAKER,
    "POST /api/v1/webhooks/{name}/test": Right.MAKER,
    "POST /api/v1/webhooks/{name}/rotate": Right.MAKER,
    "POST /api/v1/webhooks/{name}/redeliver": Right.MAKER,
    # A user's own automations. One that is not there may be started by everybody.
    "PUT /api/v1/automations/{automation}": Right.MAKER,
    "PATCH /api/v1/automations/{automation}": Right.MAKER,
    "DELETE /api/v1/automations/{automation}": Right.MAKER,
    "POST /api/v1/automations/{automation}/retry": Right.MAKER,
    # A user's own tokens.
    "GET /api/v1/users/{name}/tokens": Right.SELF,
    "POST /api/v1/users/{name}/tokens": Right.SELF,
    "POST /api/v1/users/{name}/tokens/{token_id}/rotate": Right.SELF,
    "DELETE /api/v1/users/{name}/tokens/{token_id}": Right.SELF,
    # The cluster's.
    "POST /api/v1/checkpoints/gc": Right.ADMIN,
    "POST /api/v1/log/verify": Right.ADMIN,
    "POST /api/v1/log/anchor": Right.ADMIN,
    "POST /api/v1/parked/{number}/retry": Right.ADMIN,
    "POST /api/v1/views/rebuild": Right.ADMIN,
    "PUT /api/v1/pools/{pool}": Right.ADMIN,
    "PUT /api/v1/shares/{owner}/{name}": Right.ADMIN,
    "POST /api/v1/agents/{agent_id}/disable": Right.ADMIN,
    "POST /api/v1/agents/{agent_id}/enable": Right.ADMIN,
    "POST /api/v1/secrets/rotate-key": Right.ADMIN,
    "POST /api/v1/users": Right.ADMIN,
    "DELETE /api/v1/users/{name}": Right.ADMIN,
    "PUT /api/v1/users/{name}/password": Right.ADMIN,
    "DELETE /api/v1/users/{name}/password": Right.ADMIN,
    "PUT /api/v1/users/{name}/link": Right.ADMIN,
}


def refusal(right: Right, user: str, *, admin: bool, owner: str = "", what: str = "") -> str:
    """Why `user` may not, in one sentence; empty where it may. `owner`: of what is asked for, such as `what`."""
    if admin or right in (Right.OPEN, Right.USER):
        return ""
    if right in (Right.OWNER, Right.MAKER):
        others = f"{owner} or " if owner != "admin" and " " not in owner else ""  # an earlier user has no token
        return "" if user == owner else f"{what} is {owner}'s; only {others}an admin may change it."
    if right is Right.SELF:
        return "" if user == owner else f"Only {owner} and admins may do this, and you are {user}."
    return f"Only an admin may change this, and {user} is none; ask one."


_PARAMETER = re.compile(r"\{[a-z_]+\}")


def _compiled(table: Mapping[str, Right]) -> list[tuple[str, str, re.Pattern[str]]]:
    """(method, route, pattern of its paths); those with fewer parameters first, as `checkpoints/gc` is no checkpoint."""
    found = []
    for route in sorted(table, key=lambda item: (item.count("{"), item)):
        method, _, template = route.partition(" ")
        names = [f"(?P<{name[1:-1]}>[^/]+)" for name in _PARAMETER.findall(template)]
        parts = [re.escape(part) for part in _PARAMETER.split(template)]
        pattern = parts[0] + "".join(name + part for name, part in zip(names, parts[1:], strict=True))
        found.append((method, route, re.compile(pattern)))
    return found


_PATTERNS = _compiled(ROUTES)


def match(method: str, path: str) -> tuple[str, Mapping[str, str], tuple[str, ...]]:
    """(the route of the table, its parameters, the methods that the path knows). The route is empty where there is none."""
    methods: list[str] = []
    for known, route, pattern in _PATTERNS:
        if (found := pattern.fullmatch(path)) is None:
            continue
        if known == method:
            return route, found.groupdict(), ()
        methods.append(known)
    return "", {}, tuple(sorted(set(methods)))
