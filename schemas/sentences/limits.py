"""Reason why an experiment is ended at a limit: the numbers of the gateway's rule, with its sentence."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.request import ExperimentTimeLimitReached
from tenuto.schemas.sentences.amounts import duration
from tenuto.schemas.sentences.rules import Data, Numbers, rule


@rule(ExperimentTimeLimitReached.TYPE, "wall_time_over")
@dataclass(frozen=True, kw_only=True)
class WallTimeOver(Numbers):
    """The experiment has run for as long as it may."""

    limit_hours: float
    wall_seconds: float
    """Time that at least one of its trials held its slots."""
    workspace: str = ""
    """Workspace whose limit it is. Empty: the configuration says it."""

    def sentence(self, about: Data) -> str:
        by = f"an experiment of workspace {self.workspace}" if self.workspace else "it, by resources.max_wall_hours,"
        ran = f"Experiment {about.get('experiment_id')} has run for {duration(self.wall_seconds)}"
        return f"{ran}, and {by} may run for {self.limit_hours:g} h; so it is canceled, and its trials save checkpoints."
