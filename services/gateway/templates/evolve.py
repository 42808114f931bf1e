"""Folds what templates of configurations say, and the defaults of workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tenuto.kernel.folding import Fold
from tenuto.schemas.config.layers import canonical, digest
from tenuto.schemas.events import EventData
from tenuto.schemas.events.templates import TemplateRemoved, TemplateSet, WorkspaceDefaultsSet
from tenuto.services.gateway.templates.state import Template, Templates, TemplatesState

OF_TEMPLATES: tuple[type[EventData], ...] = (TemplateSet, TemplateRemoved, WorkspaceDefaultsSet)


def fold(templates: Templates, data: EventData) -> Templates:
    kept = templates.kept
    if isinstance(data, TemplateSet):
        return replace(templates, kept=kept.set(f"{data.workspace or ''}/{data.name}", _kept(data)))
    if isinstance(data, WorkspaceDefaultsSet):
        return replace(templates, kept=kept.set(f"{data.workspace}/", _kept(data)))
    if isinstance(data, TemplateRemoved) and (key := f"{data.workspace or ''}/{data.name}") in kept:
        return replace(templates, kept=kept.delete(key))
    return templates


def _kept(data: TemplateSet | WorkspaceDefaultsSet) -> Template:
    return Template(data.version, digest(data.config), canonical(data.config))


def changed(state: TemplatesState, data: EventData) -> TemplatesState:
    return replace(state, templates=fold(state.templates, data))


FOLDS: Mapping[type[EventData], Fold[Any]] = dict.fromkeys(OF_TEMPLATES, changed)
