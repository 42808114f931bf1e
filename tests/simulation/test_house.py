"""All services together, in seeded random interleavings with faults: the search ends, the record is sound, replay is exact."""

from __future__ import annotations

import pytest
import yaml

from tenuto.schemas.config import ExperimentConfig
from tests.support.house import Faults, House
from tests.support.record import broken_rules

STEPS_MAX = 60_000


def config(searcher: str, slots: int = 1, priority: int = 42) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        {
            "name": "sim",
            "entrypoint": "m:T",
            "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
            "searcher": {"metric": "loss", "max_length": {"batches": 8}, **yaml.safe_load(searcher)},
            "resources": {"slots_per_trial": slots, "priority": priority},
        }
    )


SEARCHES = [
    "{name: asha, max_trials: 8, max_concurrent_trials: 4, divisor: 2, max_rungs: 3}",
    "{name: asha, mode: stopping, max_trials: 8, max_concurrent_trials: 4, divisor: 2, max_rungs: 3}",
    "{name: random, max_trials: 5, max_concurrent_trials: 3}",
    "{name: single}",
]


def run(house: House, experiments: int, disturbances: bool) -> None:
    for number in range(STEPS_MAX):
        if house.ended() == experiments:
            break
        house.turn()
        if disturbances and number < 3_000 and number % 150 == 149:
            house.disturb(experiments)
        if number == 3_000:
            for experiment in range(1, experiments + 1):
                from tenuto.services.gateway.experiments.commands import ResumeExperiment

                house.ask(ResumeExperiment, experiment_id=experiment)
    house.settle()
    tail = [f"{event.position} {event.type} {event.payload.decode()[:150]}" for event in house.log[-20:]]
    assert house.ended() == experiments, "the search hangs:\n" + "\n".join(tail)
    assert broken_rules(house.log) == []
    house.check_replay()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("search", SEARCHES, ids=["promotion", "stopping", "random", "single"])
def test_a_search_with_faults_ends_and_replays(search: str, seed: int) -> None:
    house = House(seed)
    house.submit(config(search), seed)
    run(house, 1, disturbances=False)


@pytest.mark.parametrize("seed", range(20))
def test_several_users_with_gangs_priorities_and_changes_of_mind(seed: int) -> None:
    house = House(seed, agents=3, slots=2, faults=Faults(lose_agent=0.004))
    house.submit(config(SEARCHES[0]), 1)
    house.submit(config(SEARCHES[2], slots=2, priority=10), 2)
    house.submit(config(SEARCHES[1], slots=3, priority=50), 3)
    run(house, 3, disturbances=True)
