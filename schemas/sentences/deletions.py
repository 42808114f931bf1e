"""Reason why an experiment is deleted: the numbers of the gateway's rule, with its sentence."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.request import ExperimentDeleted
from tenuto.schemas.sentences.rules import Data, Numbers, rule


@rule(ExperimentDeleted.TYPE, "grace_over")
@dataclass(frozen=True, kw_only=True)
class GraceOver(Numbers):
    """The time in which the request for a deletion could be taken back is over."""

    user: str
    """User who asked for the deletion."""
    grace_seconds: float

    def sentence(self, about: Data) -> str:
        after = f" {self.grace_seconds / 3_600:g} h before" if self.grace_seconds > 0 else ", at once"
        return f"{self.user} asked for the deletion of experiment {about.get('experiment_id')}{after}."
