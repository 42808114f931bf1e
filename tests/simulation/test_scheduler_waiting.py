"""Nobody starves: under a load that goes on for ever and leaves slots over, no trial is delayed beyond a bound."""

from __future__ import annotations

import random
from dataclasses import replace
from unittest.mock import patch

import pytest

from tenuto.schemas.events import EventData
from tenuto.services.scheduler import decide
from tenuto.services.scheduler.evolve import apply
from tenuto.services.scheduler.policies import priority
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster
from tenuto.services.scheduler.simulation.traces import TraceJob, script_of
from tenuto.services.scheduler.state import Pool, State
from tests.support.scheduler_mixtures import mixture
from tests.support.scheduler_promises import Promises

SERVICE_US = 3_600_000_000
"""Mean time that a trial trains."""
SEEDS = (1, 2)
FREE = Costs(startup_us=0, save_us=0, checkpoint_us=0)
GANGS_DELAYED_MAX = 10
"""Mean service times. A gang of all slots waits for the longest of 8 trials (2.7 on average), and some for another such gang."""

DELAYED_MAX = 15
"""The same for gangs of a third of the slots at most, of three priorities."""


def whole_cluster_gangs(seed: int, services: int) -> list[TraceJob]:
    """A load of 0.64 on 8 slots: small trials of three users keep five slots busy, and now and then one wants them all. All 8
    are free by themselves about once in a hundred service times."""
    draw = random.Random(seed)
    found = []
    for each, sizes, users in ((0.3, (1, 1, 2, 2), "abc"), (25.0, (8,), "g")):
        time = draw.expovariate(1 / each)
        while time < services:
            work_us = max(1, round(draw.expovariate(1 / SERVICE_US)))
            found.append(TraceJob(round(time * SERVICE_US), draw.choice(users), draw.choice(sizes), work_us))
            time += draw.expovariate(1 / each)
    return sorted(found, key=lambda job: job.arrives_us)


def delays(cluster: SimulatedCluster, least: int = 1) -> list[float]:
    """Delay of each trial with at least `least` slots beyond its work, in mean service times; of an unended one, up to now."""
    trials = [trial for trial in cluster.trials.values() if trial.slots >= least]
    ends = [(cluster.now_us if trial.ended_us is None else trial.ended_us, trial.script) for trial in trials]
    return [(end_us - script.arrives_us - script.work_us) / SERVICE_US for end_us, script in ends]


@pytest.mark.parametrize("policy", ["priority", "fair_share", "fifo"])
def test_gangs_of_the_whole_cluster_wait_no_longer_than_it_takes_to_empty_it(policy: str) -> None:
    for seed in SEEDS:
        cluster = SimulatedCluster(script_of(whole_cluster_gangs(seed, 150), 2, 4, foretold=seed > 1), policy, FREE)
        assert cluster.run().unfinished == 0
        assert max(delays(cluster, 8)) < GANGS_DELAYED_MAX
        assert max(delays(cluster)) < GANGS_DELAYED_MAX


def test_without_the_hold_they_would_wait_longer() -> None:
    def no_hold(state: State, pool: Pool, now_us: int) -> list[EventData]:
        """Serves as if each experiment were alone."""
        drafts: list[EventData] = []
        for entry in sorted(pool.queue, key=lambda entry: state.experiments[entry[2]].slots_per_trial):
            alone = priority.plan(state, replace(state.pools[pool.name], queue=(entry,)), now_us)
            for draft in alone:
                state = apply(state, draft, now_us)
            drafts += alone
        return drafts

    longest = []
    with patch("tenuto.services.scheduler.core.decide", lambda state, cause: decide.decide(state, cause, no_hold)):
        for seed in SEEDS:
            cluster = SimulatedCluster(script_of(whole_cluster_gangs(seed, 150), 2, 4), "priority", FREE)
            cluster.run()
            longest.append(max(delays(cluster, 8)))
    assert min(longest) > GANGS_DELAYED_MAX


def stationary(seed: int, slots: int, services: int, load: float) -> list[TraceJob]:
    """Gangs of 1, 2, 4 and 8 of four users with three priorities. All need the same time on average."""
    draw = random.Random(seed)
    found, time = [], 0.0
    while (time := time + draw.expovariate(load * slots / 2.4)) < services:
        size = draw.choices((1, 2, 4, 8), (10, 5, 3, 2))[0]
        work_us = max(1, round(draw.expovariate(1 / SERVICE_US)))
        job = TraceJob(round(time * SERVICE_US), draw.choice("abcd"), size, work_us, priority=draw.choice((30, 42, 60)))
        found.append(job)
    return found


@pytest.mark.parametrize("policy", ["priority", "fair_share", "fifo"])
@pytest.mark.parametrize(
    ("agents", "load", "features"),
    [(3, 0.8, ()), (3, 0.8, ("rigid", "foretold", "elastic")), (6, 0.65, ("two pools", "constraints", "foretold"))],
)
def test_nobody_starves_below_the_capacity(policy: str, agents: int, load: float, features: tuple[str, ...]) -> None:
    """Two pools, where half of the gangs may not be everywhere, cannot bear as much as one."""
    for seed in SEEDS:
        promises = Promises()
        script = mixture(stationary(seed, 8 * agents, 30, load), agents, 8, seed, features)
        cluster = SimulatedCluster(script, policy, FREE, observer=promises.hear)
        assert cluster.run().unfinished == 0
        assert promises.wrong == []
        assert max(delays(cluster)) < DELAYED_MAX
