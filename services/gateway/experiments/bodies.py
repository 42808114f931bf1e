"""Bodies of requests about experiments, and immediate answers."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from tenuto.schemas.base import Model
from tenuto.schemas.config.automation import RULES_MAX, AutomationRule
from tenuto.schemas.config.experiment import PROJECT_PATTERN
from tenuto.schemas.config.resources import SLOTS_MAX, WALL_HOURS_MAX
from tenuto.schemas.config.yaml_text import CONFIG_BYTES_MAX
from tenuto.schemas.events.request import TrialLimits
from tenuto.schemas.names import NAME_PATTERN
from tenuto.schemas.operations import OPERATIONS_MAX, Operation
from tenuto.schemas.record import OVERRIDES_MAX, ConfigLayer


class ProjectBody(Model):
    project: str = Field(pattern=PROJECT_PATTERN)
    """Project of the experiment's workspace. Empty: none."""


class WorkspaceRulesBody(Model):
    rules: tuple[AutomationRule, ...] = Field(min_length=1, max_length=RULES_MAX)
    """Rules as under `automation` in a configuration, but without forks."""


class WorkspaceRulesView(Model):
    rules: tuple[AutomationRule, ...] = ()
    user: str = ""
    """User who set them, and whose webhooks they name. Empty: there are none."""


class Submitted(Model):
    id: int
    position: int
    """Log position of its ExperimentSubmitted: follow the events from here."""
    rungs: str = Field(default="", exclude_if=lambda value: not value)
    """Lengths at which the search compares trials, and most trials, in words. Absent: it compares at no rungs."""
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Sentences on what is allowed, and may not be what was meant. Absent: there are none."""


class DeletionAsked(Model):
    id: int
    changed: bool
    """False: its deletion at that time or earlier was already requested."""
    due_us: int
    """Time of its deletion; until then `undelete` keeps it."""


class OperationsBody(Model):
    searcher: str = Field(min_length=1, max_length=256)
    """Class that decided, such as `my_search.py:MySearch`."""
    cause_id: UUID
    """The event that it decided on."""
    operations: tuple[Operation, ...] = Field(min_length=1, max_length=OPERATIONS_MAX)


class OperationsRecorded(Model):
    position: int
    searcher: str
    operations: tuple[Operation, ...]
    """Operations on record: those of the first request about this event, whatever was asked for later."""


class ChangeBody(TrialLimits):
    """Changes; a field that is left out stays. `max_slots: null` and `max_wall_hours: null` remove the limit."""

    priority: int | None = Field(default=None, ge=1, le=99)
    weight: float | None = Field(default=None, gt=0, le=1e6)
    max_slots: int | None = Field(default=None, ge=1, le=SLOTS_MAX)
    max_wall_hours: float | None = Field(default=None, gt=0, le=WALL_HOURS_MAX)
    """Longest time in hours that it runs, as `resources.max_wall_hours`; more than it has run."""
    pool: str | None = Field(default=None, pattern=NAME_PATTERN)


class MoveBody(Model):
    """Other experiment to move ahead of or behind, whose priority is taken over. Exactly one of the two fields is given."""

    ahead_of: int | None = Field(default=None, ge=1)
    behind: int | None = Field(default=None, ge=1)


PATH_CHARACTERS_MAX = 1_100
"""Longer than the names down to one value may be together."""


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
    """Name of the template or defaults that gave the value, in words."""


class PreviewView(Model):
    config: dict[str, Any]
    """The merged configuration, as it would be recorded."""
    layers: tuple[ConfigLayer, ...]
    """Layers that were merged under the configuration that was sent, the more specific first."""
    values: tuple[ValueView, ...]
    """All values, built-in ones included; of more than 5,000 the first."""
    wall_hours_max: float | None
    """Longest time in hours that it may run. null: no limit."""
    rungs: str = Field(default="", exclude_if=lambda value: not value)
    """Lengths at which the search compares trials, and most trials, in words. Absent: it compares at no rungs."""
    warnings: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Warnings, as sentences, of settings that are allowed but may not be intended. Absent: there are none."""
    refused: str
    """Reason why a submission of it by you would be refused now. Empty: it would be accepted."""
