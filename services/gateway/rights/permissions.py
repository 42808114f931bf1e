"""Rules by which requests are judged: the permission that a route needs, and where. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tenuto.services.gateway.rights.access import Access, Principal, allowed, is_outside


class Where(Enum):
    """Place in which the subject needs the permission."""

    OPEN = "nowhere: no token is asked for"
    CLUSTER = "in the whole cluster"
    ANYWHERE = "in any workspace; the handler answers with what the subject may see, and judges the workspace that the body names"
    EXPERIMENT = "in the workspace of the experiment, trial or checkpoint that the address names"
    SOURCE = "in the workspace of the new experiment, which the handler judges; the one that the address names must be visible"
    WORKSPACE = "in the workspace that the address names"
    WEBHOOK = "in the whole cluster; more for a webhook of others"
    AUTOMATION = "in the whole cluster; more for an automation of others"
    USER = "in the whole cluster; more for another user than oneself"


class PermissionRule(NamedTuple):
    permission: str
    where: Where = Where.CLUSTER
    others: str = ""
    """Permission that is needed, too, for things of other users. Empty: the owner does not matter."""


OPEN = PermissionRule("", Where.OPEN)
ANY = PermissionRule("")
"""Any token, whatever it is limited to."""
SEES = PermissionRule("cluster.view")
READS = PermissionRule("experiment.view", Where.ANYWHERE)
READS_ONE = PermissionRule("experiment.view", Where.EXPERIMENT)
CREATES_EXPERIMENT = PermissionRule("experiment.create", Where.ANYWHERE)
CHANGES_EXPERIMENT = PermissionRule("experiment.change", Where.EXPERIMENT, "experiment.change_others")
DERIVES = PermissionRule("experiment.create", Where.SOURCE)
CHANGES_WEBHOOK = PermissionRule("webhook.change", Where.WEBHOOK, "webhook.change_others")
CHANGES_AUTOMATION = PermissionRule("automation.change", Where.AUTOMATION, "automation.change_others")
OWN_TOKENS = PermissionRule("token.change", Where.USER, "user.admin")
READS_WORKSPACE = PermissionRule("experiment.view", Where.WORKSPACE)
CHANGES_PROJECTS = PermissionRule("project.change", Where.WORKSPACE)
CHANGES_WORKSPACE = PermissionRule("workspace.admin", Where.WORKSPACE)
CHANGES_TEMPLATES = PermissionRule("template.change", Where.WORKSPACE)
UPKEEP = PermissionRule("upkeep.admin")
POOLS = PermissionRule("pool.admin")
USERS = PermissionRule("user.admin")
ROLES = PermissionRule("role.admin")


def refusal(
    access: Access, subject: Principal, rule: PermissionRule, *, workspace: str = "", owner: str = "", what: str = ""
) -> str:
    """Reason why the subject may not do this, in one sentence; empty if it may. `workspace` and `owner` belong to the requested
    thing (`what`)."""
    needed = rule.permission
    if not needed:
        return ""
    if subject.limited_to is not None and needed not in subject.limited_to:
        return f"This token is limited to other permissions than {needed}; only one that has it may do this."
    if rule.where in (Where.ANYWHERE, Where.SOURCE) and not workspace:
        return ""
    if is_outside(subject, needed, workspace):
        return f"This token is limited to workspace {subject.workspace}; use one that is not for what is beyond it."
    if rule.others and subject.name != owner:
        if allowed(access, subject, rule.others, workspace):
            return ""
        if rule.where is Where.USER:
            return f"Only {owner} and admins may do this, and you are {subject.name}."
        others = f"{owner} or " if " " not in owner and owner != "admin" else ""  # an earlier user has no token
        return f"{what} is {owner}'s; only {others}an admin may change it."
    if allowed(access, subject, needed, workspace):
        return ""
    if workspace:
        return (
            f"{subject.name} may not do this in workspace {workspace}: only a role with the permission {needed} lets you; ask an "
            "admin of the workspace for one."
        )
    return f"Only an admin may change this, and {subject.name} is none ({needed}); ask one."


_PARAMETER = re.compile(r"\{[a-z_]+(?::path)?\}")
"""`{name}` is one part of a path, `{name:path}` the rest of it."""


def _compiled(table: Mapping[str, PermissionRule]) -> list[tuple[str, str, re.Pattern[str]]]:
    """(method, route, pattern of its paths) of each route; those with fewer parameters first, as `checkpoints/gc` is no
    checkpoint."""
    found = []
    for route in sorted(table, key=lambda item: (item.count("{"), item)):
        method, _, template = route.partition(" ")
        given = [name[1:-1].partition(":") for name in _PARAMETER.findall(template)]
        names = [f"(?P<{name}>{'.+' if rest else '[^/]+'})" for name, _, rest in given]
        parts = [re.escape(part) for part in _PARAMETER.split(template)]
        pattern = parts[0] + "".join(name + part for name, part in zip(names, parts[1:], strict=True))
        found.append((method, route, re.compile(pattern)))
    return found


class Permissions:
    """The table by which every request is judged: the rows of all subjects, joined. A route without a row is refused to all."""

    def __init__(self, *tables: Mapping[str, PermissionRule]) -> None:
        """Table of the rows. Raises ValueError for a route that occurs twice."""
        self.rules: dict[str, PermissionRule] = {}
        for table in tables:
            if twice := self.rules.keys() & table.keys():
                raise ValueError(f"{sorted(twice)[0]} is judged by two rows")
            self.rules.update(table)
        self._patterns = _compiled(self.rules)

    def match(self, method: str, path: str) -> tuple[str, Mapping[str, str], tuple[str, ...]]:
        """(route of the table, its parameters, methods that the path knows). The route is empty if there is none."""
        methods: list[str] = []
        for known, route, pattern in self._patterns:
            if (found := pattern.fullmatch(path)) is None:
                continue
            if known == method:
                return route, found.groupdict(), ()
            methods.append(known)
        return "", {}, tuple(sorted(set(methods)))
