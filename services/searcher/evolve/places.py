"""Places of trials, and the rest of a place when the model code refuses the trial's hyperparameters."""

from __future__ import annotations

from tenuto.schemas.events.search import TrialRequested
from tenuto.services.searcher.state import Experiment, PlanPoint, Trial
from tenuto.services.searcher.state.records import copied


def placed(experiment: Experiment, data: TrialRequested, rung: int) -> PlanPoint | None:
    """The place of a trial that is asked for now; None where it is that of its number, or none is kept."""
    if not experiment.keeps_places:
        return None
    if experiment.vacant:
        return experiment.vacant[0]
    place = PlanPoint(experiment.next_place, rung)
    if data.parent_trial_id is not None:
        parent = int(data.parent_trial_id.rsplit("-", 1)[1])
        hyperparameters = experiment.memory.get(parent)
        changes = {"parent": parent, "checkpoint_id": data.source_checkpoint_id, "hyperparameters": hyperparameters}
        return copied(place, changes)
    return None if place.number == data.trial_number else place


def vacated(trial: Trial) -> PlanPoint:
    """The place, for another trial."""
    place = trial.place or PlanPoint(trial.number, trial.rung)
    return copied(place, {"tries": place.tries + 1, "refused": trial.number})
