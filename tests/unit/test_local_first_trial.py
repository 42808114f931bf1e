"""The trial that is trained without a cluster is the first one that the cluster would request."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.schemas.config import ExperimentConfig
from tenuto.services.searcher.simulation.curves import PowerLaw
from tenuto.services.searcher.simulation.first_trial import NoFirstTrial, first_trial
from tenuto.services.searcher.simulation.run import Simulation, Surroundings

SPACE = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "net": {"width": {"type": "int", "minval": 4, "maxval": 64}, "kind": {"type": "categorical", "vals": ["a", "b", "c"]}},
    "depth": 3,
}
SEARCHERS: dict[str, dict[str, Any]] = {
    "single": {},
    "random": {"max_trials": 4},
    "sobol": {"max_trials": 4},
    "asha": {"max_trials": 4},
    "adaptive_asha": {"max_trials": 9},
    "pbt": {"population_size": 4, "generations": 2},
    "bohb": {"max_trials": 9},
    "tpe": {"max_trials": 4},
    "cmaes": {"max_trials": 4},
}


def config(name: str, **more: Any) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {
            "name": "x",
            "entrypoint": "m:T",
            "hyperparameters": SPACE,
            "searcher": {"name": name, "metric": "loss", "max_length": {"batches": 16}, **more},
        }
    )


@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_it_is_the_one_that_the_search_requests_first(name: str) -> None:
    parsed = config(name, **SEARCHERS[name])
    world = Simulation(parsed, PowerLaw(parsed, 0), Surroundings(workers=1), seed=5)
    world.put(world.submission)
    requested = first_trial(parsed, 5)
    assert requested.hyperparameters == world.trials["1-1"].hyperparameters
    assert requested.hyperparameters["depth"] == 3
    assert first_trial(parsed, 6).hyperparameters != requested.hyperparameters
    assert first_trial(parsed, 6).seed != requested.seed


def test_of_a_search_of_ones_own_it_is_a_draw_and_of_an_impossible_one_there_is_none() -> None:
    assert 4 <= first_trial(config("custom", max_trials=3), 5).hyperparameters["net"]["width"] <= 64
    with pytest.raises(NoFirstTrial, match="constraints"):
        first_trial(config("random", max_trials=2, constraints=["net.width > 64"]), 5)
