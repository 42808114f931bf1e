"""The one table by which every request is judged: the permission that a route needs, and where. A route that is not in it is
refused to everybody. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from tenuto.services.gateway.policies.access import Access, Subject, allowed, is_outside


class Where(Enum):
    """Where the subject needs the permission."""

    OPEN = "nowhere: no token is asked for"
    CLUSTER = "in the whole cluster"
    ANYWHERE = "in any workspace; the handler answers with what the subject may see, and judges the workspace that the body names"
    EXPERIMENT = "in the workspace of the experiment, trial or checkpoint that the address names"
    SOURCE = "in the workspace of the new experiment, which the handler judges; the one that the address names must be visible"
    WORKSPACE = "in the workspace that the address names"
    WEBHOOK = "in the whole cluster; more for a webhook of others"
    AUTOMATION = "in the whole cluster; more for an automation of others"
    USER = "in the whole cluster; more for another user than oneself"


class Rule(NamedTuple):
    permission: str
    where: Where = Where.CLUSTER
    others: str = ""
    """Permission that is needed, too, for what belongs to somebody else. Empty: whose it is does not matter."""


OPEN = Rule("", Where.OPEN)
ANY = Rule("")
"""Any token, whatever it is limited to."""
_SEES = Rule("cluster.view")
_READS = Rule("experiment.view", Where.ANYWHERE)
_READS_ONE = Rule("experiment.view", Where.EXPERIMENT)
CREATES_EXPERIMENT = Rule("experiment.create", Where.ANYWHERE)
CHANGES_EXPERIMENT = Rule("experiment.change", Where.EXPERIMENT, "experiment.change_others")
_DERIVES = Rule("experiment.create", Where.SOURCE)
CHANGES_WEBHOOK = Rule("webhook.change", Where.WEBHOOK, "webhook.change_others")
CHANGES_AUTOMATION = Rule("automation.change", Where.AUTOMATION, "automation.change_others")
OWN_TOKENS = Rule("token.change", Where.USER, "user.admin")
READS_WORKSPACE = Rule("experiment.view", Where.WORKSPACE)
CHANGES_PROJECTS = Rule("project.change", Where.WORKSPACE)
CHANGES_WORKSPACE = Rule("workspace.admin", Where.WORKSPACE)
CHANGES_TEMPLATES = Rule("template.change", Where.WORKSPACE)
_UPKEEP = Rule("upkeep.admin")
_SLOTS = Rule("pool.admin")
_USERS = Rule("user.admin")
_ROLES = Rule("role.admin")

ROUTES: Mapping[str, Rule] = {
    "GET /healthz": OPEN,
    "GET /api/v1/openapi.json": OPEN,
    "GET /api/v1/docs": OPEN,
    # Who signs in has no token yet.
    "GET /api/v1/login": OPEN,
    "POST /api/v1/login": OPEN,
    "POST /api/v1/login/link": OPEN,
    "GET /api/v1/sso": OPEN,
    "GET /api/v1/sso/callback": OPEN,
    "POST /api/v1/sso/token": OPEN,
    # A machine that joins shows a join token, and an agent that it had credentials.
    "POST /api/v1/agents/join": OPEN,
    "POST /api/v1/agents/standing": OPEN,
    "POST /api/v1/logout": ANY,
    # Of the one who asks, by a session.
    "POST /api/v1/login/links": ANY,
    # Where a workspace is not private, its whole record is seen by everybody, so that a group works on what it shares.
    "GET /api/v1/user": ANY,
    "GET /api/v1/users": _SEES,
    "GET /api/v1/experiments": _READS,
    "GET /api/v1/experiments/{experiment_id}": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/trials": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/metrics": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/metrics/curves": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/metrics/table": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/validations": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/logs": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/checkpoints": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/pareto": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/importance": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/files": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/files/content": _READS_ONE,
    "GET /api/v1/experiments/{experiment_id}/reproduction": _READS_ONE,
    "GET /api/v1/sparks": _READS,
    "GET /api/v1/trials/{trial_id}": _READS_ONE,
    "GET /api/v1/trials/{trial_id}/metrics": _READS_ONE,
    "GET /api/v1/trials/{trial_id}/validations": _READS_ONE,
    "GET /api/v1/trials/{trial_id}/logs": _READS_ONE,
    "GET /api/v1/trials/{trial_id}/record": _READS_ONE,
    "GET /api/v1/diff": _READS,
    "GET /api/v1/checkpoints": _READS,
    "GET /api/v1/stores": _SEES,
    "GET /api/v1/checkpoints/{checkpoint_id}": _READS_ONE,
    "GET /api/v1/checkpoints/{checkpoint_id}/download": _READS_ONE,
    "GET /api/v1/events": _READS,
    "GET /api/v1/events/search": _READS,
    "GET /api/v1/events/stream": _READS,
    "GET /api/v1/events/{position}/links": _READS,
    "GET /api/v1/jobs": _SEES,
    "GET /api/v1/cluster": _SEES,
    "GET /api/v1/pools/{pool}/what-if": _SEES,
    "GET /api/v1/pools": _SEES,
    "GET /api/v1/pools/{pool}/provisioning": _SEES,
    "GET /api/v1/pools/{pool}/mounts": _SEES,
    "GET /api/v1/nodes": _SEES,
    "GET /api/v1/shares": _SEES,
    "GET /api/v1/agents": _SEES,
    "GET /api/v1/allocations": _READS,
    "GET /api/v1/status": _SEES,
    "GET /api/v1/parked": _SEES,
    "GET /api/v1/parked/{number}": _SEES,
    "GET /api/v1/webhooks": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}/deliveries": Rule("webhook.view"),
    "GET /api/v1/webhooks/{name}/explanation": Rule("webhook.view"),
    "GET /api/v1/automations": Rule("automation.view"),
    "GET /api/v1/automations/{automation}": Rule("automation.view"),
    # What a user makes is the user's own.
    "GET /api/v1/secrets": Rule("secret.change"),
    "PUT /api/v1/secrets/{name}": Rule("secret.change"),
    "DELETE /api/v1/secrets/{name}": Rule("secret.change"),
    "POST /api/v1/webhooks": Rule("webhook.change"),
    "POST /api/v1/experiments": CREATES_EXPERIMENT,
    "POST /api/v1/preview": CREATES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/reproduce": _DERIVES,
    "POST /api/v1/experiments/{experiment_id}/fork": _DERIVES,
    "POST /api/v1/experiments/{experiment_id}/continue": _DERIVES,
    # MLflow's protocol, for unmanaged runs; a change is judged by the run or experiment that its body names.
    "GET /mlflow/api/2.0/mlflow/experiments/get": _READS,
    "GET /mlflow/api/2.0/mlflow/experiments/get-by-name": _READS,
    "POST /mlflow/api/2.0/mlflow/experiments/search": _READS,
    "POST /mlflow/api/2.0/mlflow/experiments/create": CREATES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/update": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/delete": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/restore": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/set-experiment-tag": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/experiments/delete-experiment-tag": CHANGES_EXPERIMENT,
    "GET /mlflow/api/2.0/mlflow/runs/get": _READS,
    "POST /mlflow/api/2.0/mlflow/runs/search": _READS,
    "POST /mlflow/api/2.0/mlflow/logged-models/search": _READS,
    "GET /mlflow/api/2.0/mlflow/logged-models/{model_id}": _READS,
    "GET /mlflow/api/2.0/mlflow/logged-models/{model_id}/artifacts/directories": _READS,
    "GET /mlflow/api/2.0/mlflow/metrics/get-history": _READS,
    "GET /mlflow/api/2.0/mlflow/artifacts/list": _READS,
    "GET /mlflow/api/2.0/mlflow-artifacts/artifacts": _READS,
    "GET /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": _READS,
    "POST /mlflow/api/2.0/mlflow/runs/create": CREATES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/update": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/delete": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/restore": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-metric": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-parameter": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-batch": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-inputs": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/log-model": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/outputs": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/logged-models": CREATES_EXPERIMENT,
    "PATCH /mlflow/api/2.0/mlflow/logged-models/{model_id}": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow/logged-models/{model_id}": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/logged-models/{model_id}/params": CHANGES_EXPERIMENT,
    "PATCH /mlflow/api/2.0/mlflow/logged-models/{model_id}/tags": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow/logged-models/{model_id}/tags/{tag_key}": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/set-tag": CHANGES_EXPERIMENT,
    "POST /mlflow/api/2.0/mlflow/runs/delete-tag": CHANGES_EXPERIMENT,
    "PUT /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": CHANGES_EXPERIMENT,
    "DELETE /mlflow/api/2.0/mlflow-artifacts/artifacts/{artifact_path:path}": CHANGES_EXPERIMENT,
    # Changes of an experiment, and what reads all of its files.
    "PATCH /api/v1/experiments/{experiment_id}": CHANGES_EXPERIMENT,
    "PATCH /api/v1/experiments/{experiment_id}/description": CHANGES_EXPERIMENT,
    "PUT /api/v1/experiments/{experiment_id}/project": CHANGES_EXPERIMENT,
    "DELETE /api/v1/experiments/{experiment_id}": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/undelete": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/archive": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/unarchive": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/pause": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/resume": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/cancel": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/kill": CHANGES_EXPERIMENT,
    "POST /api/v1/experiments/{experiment_id}/operations": CHANGES_EXPERIMENT,
    "POST /api/v1/jobs/{experiment_id}/move": CHANGES_EXPERIMENT,
    "POST /api/v1/checkpoints/{checkpoint_id}/verify": CHANGES_EXPERIMENT,
    # A user's own webhooks.
    "PATCH /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "DELETE /api/v1/webhooks/{name}": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/test": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/rotate": CHANGES_WEBHOOK,
    "POST /api/v1/webhooks/{name}/redeliver": CHANGES_WEBHOOK,
    # A user's own automations. One that is not there may be started by everybody.
    "PUT /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "PATCH /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "DELETE /api/v1/automations/{automation}": CHANGES_AUTOMATION,
    "POST /api/v1/automations/{automation}/retry": CHANGES_AUTOMATION,
    # A user's own tokens.
    "GET /api/v1/users/{name}/tokens": OWN_TOKENS,
    "POST /api/v1/users/{name}/tokens": OWN_TOKENS,
    "POST /api/v1/users/{name}/tokens/{token_id}/rotate": OWN_TOKENS,
    "DELETE /api/v1/users/{name}/tokens/{token_id}": OWN_TOKENS,
    # The cluster's.
    "POST /api/v1/checkpoints/gc": _UPKEEP,
    "POST /api/v1/log/verify": _UPKEEP,
    "POST /api/v1/log/anchor": _UPKEEP,
    "POST /api/v1/parked/{number}/retry": _UPKEEP,
    "POST /api/v1/views/rebuild": _UPKEEP,
    "POST /api/v1/secrets/rotate-key": _UPKEEP,
    "PUT /api/v1/pools/{pool}": _SLOTS,
    "PUT /api/v1/pools/{pool}/provisioning": _SLOTS,
    "PUT /api/v1/pools/{pool}/mounts": _SLOTS,
    "POST /api/v1/pools/{pool}/check": _SLOTS,
    "POST /api/v1/nodes/{node_id}/release": _SLOTS,
    "GET /api/v1/nodes/{node_id}/logs": _SLOTS,
    "PUT /api/v1/shares/{owner}/{name}": _SLOTS,
    "POST /api/v1/agents/{agent_id}/disable": _SLOTS,
    "POST /api/v1/agents/{agent_id}/enable": _SLOTS,
    "DELETE /api/v1/agents/{agent_id}": _SLOTS,
    "GET /api/v1/join-tokens": _SLOTS,
    "POST /api/v1/join-tokens": _SLOTS,
    "DELETE /api/v1/join-tokens/{token_id}": _SLOTS,
    "POST /api/v1/users": _USERS,
    "DELETE /api/v1/users/{name}": _USERS,
    "PUT /api/v1/users/{name}/password": _USERS,
    "DELETE /api/v1/users/{name}/password": _USERS,
    "PUT /api/v1/users/{name}/link": _USERS,
    "GET /api/v1/permissions": ANY,
    "GET /api/v1/roles": _SEES,
    "POST /api/v1/roles": _ROLES,
    "PUT /api/v1/roles/{role}": _ROLES,
    "DELETE /api/v1/roles/{role}": _ROLES,
    "GET /api/v1/grants": _SEES,
    "POST /api/v1/grants": _ROLES,
    "DELETE /api/v1/grants/{kind}/{name}/{role}": _ROLES,
    "GET /api/v1/workspaces": _READS,
    "POST /api/v1/workspaces": Rule("workspace.create"),
    "GET /api/v1/workspaces/{workspace}": READS_WORKSPACE,
    "PATCH /api/v1/workspaces/{workspace}": CHANGES_WORKSPACE,
    "GET /api/v1/workspaces/{workspace}/rules": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/rules": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/rules": CHANGES_WORKSPACE,
    "GET /api/v1/workspaces/{workspace}/projects": READS_WORKSPACE,
    "POST /api/v1/workspaces/{workspace}/projects": CHANGES_PROJECTS,
    "PATCH /api/v1/workspaces/{workspace}/projects/{project}": CHANGES_PROJECTS,
    "GET /api/v1/workspaces/{workspace}/defaults": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/defaults": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/defaults": CHANGES_WORKSPACE,
    "GET /api/v1/templates": _READS,
    "GET /api/v1/templates/{template}": _READS,
    "PUT /api/v1/templates/{template}": Rule("template.change"),
    "DELETE /api/v1/templates/{template}": Rule("template.change"),
    "GET /api/v1/workspaces/{workspace}/templates/{template}": READS_WORKSPACE,
    "PUT /api/v1/workspaces/{workspace}/templates/{template}": CHANGES_TEMPLATES,
    "DELETE /api/v1/workspaces/{workspace}/templates/{template}": CHANGES_TEMPLATES,
    "POST /api/v1/workspaces/{workspace}/grants": CHANGES_WORKSPACE,
    "DELETE /api/v1/workspaces/{workspace}/grants/{kind}/{name}/{role}": CHANGES_WORKSPACE,
}


def refusal(access: Access, subject: Subject, rule: Rule, *, workspace: str = "", owner: str = "", what: str = "") -> str:
    """Why the subject may not, in one sentence; empty where it may. `workspace` and `owner`: of what is asked for (`what`)."""
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


def _compiled(table: Mapping[str, Rule]) -> list[tuple[str, str, re.Pattern[str]]]:
    """(method, route, pattern of its paths); those with fewer parameters first, as `checkpoints/gc` is no checkpoint."""
    found = []
    for route in sorted(table, key=lambda item: (item.count("{"), item)):
        method, _, template = route.partition(" ")
        given = [name[1:-1].partition(":") for name in _PARAMETER.findall(template)]
        names = [f"(?P<{name}>{'.+' if rest else '[^/]+'})" for name, _, rest in given]
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
