"""Templates of configurations in requests and answers of the REST interface."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.merging import BYTES_MAX

TEXT_CHARACTERS_MAX = 2 * BYTES_MAX
"""Most characters of a template as YAML, which may have comments."""


class TemplateBody(Model):
    config: str = Field(min_length=1, max_length=TEXT_CHARACTERS_MAX)
    """YAML or JSON in the shape of a configuration, with only the settings of the template."""


class TemplateView(Model):
    name: str
    """Name of the template. Empty: the defaults of the workspace."""
    workspace: str | None
    """Workspace that it belongs to. null: the whole cluster."""
    version: int
    """Number of times that it was set."""
    digest: str
    """SHA-256 (hex) of its settings."""
    size_bytes: int
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Warnings about the text sent now: sentences on values that may not be meant so. Absent: there are none."""


class TemplateDetail(TemplateView):
    config: dict[str, Any]
