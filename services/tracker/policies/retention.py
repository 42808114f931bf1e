"""Which checkpoints of a trial may go."""

from __future__ import annotations

import math

from tenuto.services.tracker.state import Checkpoint, Experiment, Trial


def best(trial: Trial, smaller_is_better: bool) -> Checkpoint | None:
    """The checkpoint with the best searcher metric, measured at the same number of batches; of equals the first one saved.

    Checkpoints that were never validated, or with NaN, cannot be the best.
    """
    chosen: Checkpoint | None = None
    chosen_value = math.nan
    for checkpoint in trial.checkpoints:
        value = trial.validations.get(checkpoint.batches, math.nan)
        if math.isnan(value):
            continue
        better = value < chosen_value if smaller_is_better else value > chosen_value
        if chosen is None or better:
            chosen, chosen_value = checkpoint, value
    return chosen


def expendable(experiment: Experiment, trial: Trial) -> list[tuple[Checkpoint, str]]:
    """The checkpoints that the experiment's policy does not keep while the trial lives, oldest first, each with the reason.

    The latest is always kept: it is what the trial resumes from.
    """
    if experiment.checkpoint_policy == "all":
        return []
    older = trial.checkpoints[:-1]
    if experiment.checkpoint_policy == "none":
        return [(checkpoint, "checkpoint_policy none keeps only the latest one while the trial runs") for checkpoint in older]
    keep = best(trial, experiment.smaller_is_better)
    reason = f"checkpoint_policy best keeps the trial's latest and the one with the best {experiment.metric}"
    return [(checkpoint, reason) for checkpoint in older if checkpoint != keep]


def expendable_at_end(experiment: Experiment, trial: Trial) -> list[tuple[Checkpoint, str]]:
    """The same once the trial is over and will never be resumed."""
    if experiment.checkpoint_policy == "none":
        return [(checkpoint, "checkpoint_policy none keeps nothing of a finished trial") for checkpoint in trial.checkpoints]
    return expendable(experiment, trial)
