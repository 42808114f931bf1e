"""Requests about templates of configurations, and the defaults of workspaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.kernel.core import Refused
from tenuto.kernel.decision_tables import decisions
from tenuto.schemas.config.layers import canonical
from tenuto.schemas.events import EventData
from tenuto.schemas.events.templates import TemplateRemoved, TemplateSet, WorkspaceDefaultsSet
from tenuto.services.gateway.rights.checks import check_admin
from tenuto.services.gateway.rights.permissions import CHANGES_TEMPLATES, CHANGES_WORKSPACE
from tenuto.services.gateway.rights.workspaces import check_workspace
from tenuto.services.gateway.templates.commands import RemoveTemplate, SetDefaults, SetTemplate
from tenuto.services.gateway.templates.state import (
    ALL_BYTES_MAX,
    NOTHING,
    PER_WORKSPACE_MAX,
    TEMPLATES_MAX,
    Template,
    TemplatesState,
)


def set_template(state: TemplatesState, command: SetTemplate) -> Sequence[EventData]:
    _check_may(state, command)
    place = command.workspace or ""
    named = _workspace_named(command.config)
    if place and named not in (None, place):
        raise Refused(
            f"A template of workspace {place} is for experiments of that workspace, so its resources.workspace cannot be {named};"
            " leave that out, or make it a template of the whole cluster.",
            "invalid",
        )
    known = state.templates.find(place, command.name)
    if known is not None and known.text == canonical(command.config):
        return ()
    if known is None:
        _check_count(state, place)
    _check_bytes(state, known, command.config)
    version = 1 if known is None else known.version + 1
    return [TemplateSet(name=command.name, workspace=command.workspace, version=version, config=dict(command.config))]


def remove_template(state: TemplatesState, command: RemoveTemplate) -> Sequence[EventData]:
    _check_may(state, command)
    if state.templates.find(command.workspace or "", command.name) is None:
        raise no_template(command.workspace or "", command.name)
    return [TemplateRemoved(name=command.name, workspace=command.workspace)]


def set_defaults(state: TemplatesState, command: SetDefaults) -> Sequence[EventData]:
    check_workspace(state, command, CHANGES_WORKSPACE)
    if _workspace_named(command.config) is not None:
        raise Refused(
            "Defaults are those of a workspace that the experiment names, so they cannot say resources.workspace; leave it out.",
            "invalid",
        )
    known = state.templates.find(command.workspace, "")
    if (NOTHING if known is None else known.text) == canonical(command.config):
        return ()
    _check_bytes(state, known, command.config)
    version = 1 if known is None else known.version + 1
    return [WorkspaceDefaultsSet(workspace=command.workspace, version=version, config=dict(command.config))]


def no_template(workspace: str, name: str) -> Refused:
    where = f" of workspace {workspace}" if workspace else " of the whole cluster"
    return Refused(f"There is no template {name}{where}; `tenuto template ls` lists those that you see.", "not_found")


def _check_may(state: TemplatesState, command: SetTemplate | RemoveTemplate) -> None:
    """Raises Refused."""
    if command.workspace is None:
        check_admin(state, command, CHANGES_TEMPLATES.permission)
    else:
        check_workspace(state, command, CHANGES_TEMPLATES)


def _workspace_named(config: Mapping[str, Any]) -> Any:
    resources = config.get("resources")
    return resources.get("workspace") if isinstance(resources, Mapping) else None


def _check_count(state: TemplatesState, place: str) -> None:
    """Raises Refused."""
    everywhere = [workspace for workspace, _, _ in state.templates.named()]
    if everywhere.count(place) >= PER_WORKSPACE_MAX or len(everywhere) >= TEMPLATES_MAX:
        most = f"{PER_WORKSPACE_MAX} of one workspace and {TEMPLATES_MAX} in all"
        raise Refused(f"No more templates are kept: there may be {most}; remove one (`tenuto template rm`).", "conflict")


def _check_bytes(state: TemplatesState, known: Template | None, config: Mapping[str, Any]) -> None:
    """Raises Refused."""
    others = state.templates.all_bytes - (0 if known is None else len(known.text))
    if others + len(canonical(config)) > ALL_BYTES_MAX:
        raise Refused(
            f"Templates and defaults may have {ALL_BYTES_MAX >> 20} MiB together, and there is no room for this one; remove one "
            "(`tenuto template rm`).",
            "conflict",
        )


DECISIONS = decisions(set_template, remove_template, set_defaults)
