"""Places of experiments: their owner and workspace."""

from __future__ import annotations

from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.http.context import Ownership


async def place_of(state: ExperimentsState, views: ExperimentQueries, experiment_id: int) -> Ownership | None:
    """Place of an experiment, also an ended one. None: it does not exist."""
    live = state.live.get(experiment_id)
    found = (live.user, live.workspace) if live is not None else await views.place(experiment_id)
    return None if found is None else Ownership(state.owner(found[0], experiment_id), found[1])
