"""Templates of configurations in requests and answers of the REST interface."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.yaml_text import CONFIG_BYTES_MAX
from tenuto.schemas.record import OVERRIDES_MAX, ConfigLayer
from tenuto.services.gateway.adapters.merging import BYTES_MAX

TEXT_CHARACTERS_MAX = 2 * BYTES_MAX
"""As YAML, which may have comments."""
PATH_CHARACTERS_MAX = 1_100
"""Longer than the names down to one value may be together."""


class TemplateBody(Model):
    config: str = Field(min_length=1, max_length=TEXT_CHARACTERS_MAX)
    """YAML or JSON in the shape of a configuration, with what the template says only."""


class TemplateView(Model):
    name: str
    """Empty: the defaults of the workspace."""
    workspace: str | None
    """Workspace that it is of. null: the whole cluster."""
    version: int
    """How often it was set."""
    digest: str
    """SHA-256 (hex) of what it says."""
    size_bytes: int
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Of what was sent now: sentences on what may not be what was meant. Absent: there are none."""


class TemplateDetail(TemplateView):
    config: dict[str, Any]


class PreviewBody(Model):
    config: str = Field(min_length=1, max_length=CONFIG_BYTES_MAX)
    """The configuration, YAML or JSON."""
    overrides: tuple[str, ...] = Field(default=(), max_length=OVERRIDES_MAX)
    """Paths of the values in it that a command line set, such as `searcher.max_trials`."""


ValueSource = Literal["command_line", "configuration", "template", "defaults", "built_in"]


class ValueView(Model):
    path: str
    """Path in the configuration, such as `resources.pool`."""
    value: Any
    source: ValueSource
    source_name: str = ""
    """Which template or defaults, in words."""


class PreviewView(Model):
    config: dict[str, Any]
    """The merged configuration, as it would be recorded."""
    layers: tuple[ConfigLayer, ...]
    """What was merged under the configuration that was sent, the more specific first."""
    values: tuple[ValueView, ...]
    """All values, built-in ones included; of more than 5,000 the first."""
    wall_hours_max: float | None
    """Longest time in hours that it may run. null: no limit."""
    rungs: str = Field(default="", exclude_if=lambda value: not value)
    """Lengths at which the search compares trials, and most trials, in words. Absent: it compares at no rungs."""
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Sentences on what is allowed, and may not be what was meant. Absent: there are none."""
    refused: str
    """Why a submission of it by you would be refused now. Empty: it would be taken."""
