"""The first trial of a search, as the cluster requests it: by the live core and samplers, from the same seed."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentSubmitted, SearchOperationsRequested
from tenuto.schemas.events.search import ExperimentFailed, TrialRequested
from tenuto.schemas.operations import Create
from tenuto.services.searcher.adapters.samplers import propose, wanting
from tenuto.services.searcher.decide import propose as decide_proposal
from tenuto.services.searcher.decide import settle
from tenuto.services.searcher.evolve import evolve
from tenuto.services.searcher.methods import RULE_VERSION
from tenuto.services.searcher.state import initial


class NoFirstTrial(Exception):
    """The search cannot begin. The text is for the user."""


def first_trial(config: ExperimentConfig, seed: int) -> TrialRequested:
    """`seed`: of the experiment. Of a search of the user's own (`custom`), whose class may ask for anything: what is drawn if it
    gives no hyperparameters. Raises NoFirstTrial, and SamplerMissing."""
    submission = ExperimentSubmitted(
        experiment_id=1, config=config, seed=seed, context_hash="", context_size_bytes=0, user="local"
    )
    decided, state = settle(evolve(initial(), submission), submission, RULE_VERSION)
    if (found := _requested(decided)) is not None:
        return found
    for experiment in wanting(state):
        if (found := _requested(decide_proposal(state, propose(experiment)))) is not None:
            return found
    if config.searcher.DECIDED_OUTSIDE:
        asked = SearchOperationsRequested(
            experiment_id=1,
            searcher="local",
            cause_id="1",
            cause_position=1,
            operations=(Create(length=config.searcher.max_length.value),),
        )
        if (found := _requested(settle(evolve(state, asked), asked, RULE_VERSION)[0])) is not None:
            return found
    failed = next((data for data in decided if isinstance(data, ExperimentFailed)), None)
    raise NoFirstTrial(
        failed.error if failed is not None else f"the search {config.searcher.name} requests no trial at its start"
    )


def _requested(decided: Iterable[EventData]) -> TrialRequested | None:
    return next((data for data in decided if isinstance(data, TrialRequested)), None)
