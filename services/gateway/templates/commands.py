"""Commands about templates and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.services.gateway.rights.commands import UserCommand


@dataclass(frozen=True, kw_only=True)
class SetTemplate(UserCommand):
    name: str
    workspace: str | None
    """Workspace of the template. None: the whole cluster."""
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RemoveTemplate(UserCommand):
    name: str
    workspace: str | None


@dataclass(frozen=True, kw_only=True)
class SetDefaults(UserCommand):
    workspace: str
    config: Mapping[str, Any]
    """The new defaults. Empty: the workspace has none any more."""
