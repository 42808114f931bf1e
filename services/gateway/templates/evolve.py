"""Folds templates of configurations, and the defaults of workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.kernel.folding import Fold
from tenuto.schemas.config.layers import canonical, digest
from tenuto.schemas.events import EventData
from tenuto.schemas.events.templates import TemplateRemoved, TemplateSet, WorkspaceDefaultsSet
from tenuto.services.gateway.templates.state import Template, TemplatesState


def template_set(state: TemplatesState, data: TemplateSet) -> TemplatesState:
    return _with(state, f"{data.workspace or ''}/{data.name}", data)


def template_removed(state: TemplatesState, data: TemplateRemoved) -> TemplatesState:
    kept, key = state.templates.kept, f"{data.workspace or ''}/{data.name}"
    return replace(state, templates=replace(state.templates, kept=kept.delete(key))) if key in kept else state


def defaults_set(state: TemplatesState, data: WorkspaceDefaultsSet) -> TemplatesState:
    return _with(state, f"{data.workspace}/", data)


def _with(state: TemplatesState, key: str, data: TemplateSet | WorkspaceDefaultsSet) -> TemplatesState:
    kept = state.templates.kept.set(key, Template(data.version, digest(data.config), canonical(data.config)))
    return replace(state, templates=replace(state.templates, kept=kept))


FOLDS: Mapping[type[EventData], Fold[Any]] = {
    TemplateSet: template_set,
    TemplateRemoved: template_removed,
    WorkspaceDefaultsSet: defaults_set,
}
