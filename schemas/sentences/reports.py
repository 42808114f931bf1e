"""Reasons why the tracker deletes a checkpoint or refuses a report: the numbers of its rules, with their sentences."""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.schemas.events.trial import CheckpointDeleted, ReportRefused
from tenuto.schemas.sentences.rules import Data, Numbers, rule

# What `checkpoint_policy` keeps.


@rule(CheckpointDeleted.TYPE, "policy_none.latest")
@dataclass(frozen=True, kw_only=True)
class NotLatest(Numbers):
    """The trial has a newer checkpoint."""

    def sentence(self, about: Data) -> str:
        return "checkpoint_policy none keeps only the latest one while the trial runs."


@rule(CheckpointDeleted.TYPE, "policy_none.over")
@dataclass(frozen=True, kw_only=True)
class TrialOver(Numbers):
    """The checkpoint's trial has finished."""

    def sentence(self, about: Data) -> str:
        return "checkpoint_policy none keeps nothing of a finished trial."


@rule(CheckpointDeleted.TYPE, "policy_best")
@dataclass(frozen=True, kw_only=True)
class NotAmongBest(Numbers):
    """The checkpoint is not one of those that the policy keeps."""

    metric_name: str
    trial_latest: int = 1
    """Number of newest checkpoints kept for each trial."""
    trial_best: int = 1
    """Number of best checkpoints, by metric, kept for each trial."""
    experiment_best: int = 0
    """Number of best checkpoints, by metric, kept for the experiment."""

    def sentence(self, about: Data) -> str:
        if (self.trial_latest, self.trial_best, self.experiment_best) == (1, 1, 0):
            return f"checkpoint_policy best keeps the trial's latest and the one with the best {self.metric_name}."
        return (
            f"checkpoint_policy best keeps the latest {self.trial_latest} and the best {self.trial_best} of each trial, and the"
            f" best {self.experiment_best} of the experiment, by {self.metric_name}."
        )


@rule(CheckpointDeleted.TYPE, "source_needed_no_more")
@dataclass(frozen=True, kw_only=True)
class SourceFreed(Numbers):
    """The checkpoint was kept only as the source of a trial that no longer needs it."""

    started_trial: str
    """Trial that started from the checkpoint, and now has a checkpoint of its own or is over."""

    def sentence(self, about: Data) -> str:
        return f"it was kept only because trial {self.started_trial} started from it, which needs it no more."


# Reports.


@rule(ReportRefused.TYPE, "other_trial")
@dataclass(frozen=True, kw_only=True)
class OtherTrial(Numbers):
    """The report's trial and allocation do not belong together."""

    def sentence(self, about: Data) -> str:
        return f"allocation {about['allocation_id']} does not belong to trial {about['trial_id']}."


@rule(ReportRefused.TYPE, "no_such_trial")
@dataclass(frozen=True, kw_only=True)
class NoSuchTrial(Numbers):
    """No trial with this id is under way."""

    def sentence(self, about: Data) -> str:
        return f"trial {about['trial_id']} has finished or was never requested."


@rule(ReportRefused.TYPE, "released")
@dataclass(frozen=True, kw_only=True)
class Released(Numbers):
    """The trial has no slots."""

    def sentence(self, about: Data) -> str:
        return f"allocation {about['allocation_id']} was released; the trial has no allocation now."


@rule(ReportRefused.TYPE, "not_current")
@dataclass(frozen=True, kw_only=True)
class NotCurrent(Numbers):
    current_allocation: str
    """Current allocation of the trial."""

    def sentence(self, about: Data) -> str:
        return f"allocation {about['allocation_id']} is not current; {self.current_allocation} is."
