"""Rules of an experiment: what the cluster does by itself when something happens to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tenuto.schemas.base import Model
from tenuto.schemas.webhooks import (
    WEBHOOK_NAME_PATTERN,
    CheckpointDamagedTrigger,
    EventTrigger,
    ExperimentTrigger,
    LogTrigger,
    MetricTrigger,
    StallTrigger,
    StragglerTrigger,
    TrialTrigger,
)

RULES_MAX = 20
TIMES_MAX = 100
"""A rule that acts more often needs a program that can tell why (docs/automation.md)."""


class Does(Model):
    do: Literal["pause", "kill", "fork", "webhook"]
    """pause: as `tenuto exp pause`. kill: as `tenuto exp kill`. fork: submit the experiment again, with `overrides`. webhook:
    send a notice to `webhook`."""
    webhook: str | None = Field(default=None, pattern=WEBHOOK_NAME_PATTERN, exclude_if=lambda value: value is None)
    """webhook: name of one of your webhooks; its own triggers and filters are not asked."""
    overrides: dict[str, Any] = Field(default={}, exclude_if=lambda value: not value)
    """fork: settings that differ, in the shape of a configuration. Rules that fork are not handed on, so no fork makes another
    one."""
    times_max: int = Field(default=1, ge=1, le=TIMES_MAX)
    """Most times that the rule acts."""

    @model_validator(mode="after")
    def _fits(self) -> Does:
        if (self.do == "webhook") != (self.webhook is not None):
            raise ValueError("webhook names a webhook where `do: webhook` stands, and is left out elsewhere")
        if self.overrides and self.do != "fork":
            raise ValueError("overrides are for `do: fork`")
        if "template" in self.overrides:
            raise ValueError("overrides cannot name a template: a fork has the recorded configuration, which needs none")
        return self


class OnEvent(Does, EventTrigger):
    """Any event of these types that is about the experiment."""


class OnExperiment(Does, ExperimentTrigger):
    """The experiment has ended in one of these states."""


class OnTrial(Does, TrialTrigger):
    """A trial has ended in one of these states."""


class OnMetric(Does, MetricTrigger):
    """A validation metric of a trial goes beyond a value; again only after it was back. One that is no number is beyond any."""


class OnStall(Does, StallTrigger):
    """The best value of a trial's metric was not bettered by so many validations in a row; again only after it was."""


class OnLog(Does, LogTrigger):
    """A worker printed a line that matches one of the experiment's `log_policies`."""


class OnCheckpointDamaged(Does, CheckpointDamagedTrigger):
    """A run was to resume from a checkpoint that is not what was saved."""


class OnStraggler(Does, StragglerTrigger):
    """A rank of a trial is slow, and holds up the others."""


def _on(value: Any) -> Any:
    """YAML 1.1 reads the bare word `on` as true."""
    if isinstance(value, Mapping) and True in value:
        return {("on" if key is True else key): item for key, item in value.items()}
    return value


Rule = Annotated[
    OnEvent | OnExperiment | OnTrial | OnMetric | OnStall | OnLog | OnCheckpointDamaged | OnStraggler, Field(discriminator="on")
]
AutomationRule = Annotated[Rule, BeforeValidator(_on)]
