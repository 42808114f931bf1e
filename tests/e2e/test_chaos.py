"""Kill -9 of everything, one at a time, at seeded instants of a real search: the record stays sound and replays to itself.

An instant is a number of events to wait for, so a seed means the same on a fast and on a slow machine.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.live_cluster import ROOT, LiveCluster
from tests.support.record import ENDED, broken_rules
from tests.support.seeds import SEEDS

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

VICTIMS = [
    "searcher", "scheduler", "launcher", "tracker", "gateway", "relay",
    "agent", "worker", "warm", "nats", "nats+disk", "postgres",
]  # fmt: skip
EVENTS_BETWEEN_KILLS = (4, 16)
MODEL = ROOT / "tests" / "e2e" / "models" / "chaos"


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_is_killed_loses_anything(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    victims = rng.sample(VICTIMS, len(VICTIMS))
    print(f"seed {seed}: {victims}")
    cluster = LiveCluster(tmp_path / "cluster")
    try:
        cluster.up()
        experiments = [create(cluster)]
        head = cluster.wait_events(0, 10)

        def go_on(count: int) -> None:
            """Waits for events, or starts the next experiment if all that were started have ended and no more will come."""
            nonlocal head
            head, ended = wait_events_or_end(cluster, head, count)
            if ended:
                experiments.append(create(cluster))

        for victim in victims:
            go_on(rng.randint(*EVENTS_BETWEEN_KILLS))
            cluster.kill(victim, meanwhile=lambda: go_on(0))  # it may have ended since
        for experiment in experiments:
            cluster.cli("exp", "wait", str(experiment), seconds_max=300)
            described = cluster.json("exp", "describe", str(experiment))
            assert described["state"] == "completed", described
            verdict = cluster.cli("exp", "replay", str(experiment), "--verify")
            print(verdict.stdout)
        cluster.check_bus()
        events = cluster.events()
        assert broken_rules(events) == []
        assert sum(event.type in ENDED for event in events) == len(experiments)
        trials = [event for event in events if event.type == "TrialRequested"]
        assert len(trials) == len(experiments) * 8
    finally:
        cluster.down()


def create(cluster: LiveCluster) -> int:
    experiment: int = cluster.json("exp", "create", MODEL / "config.yaml", MODEL)["id"]
    return experiment


def wait_events_or_end(cluster: LiveCluster, after: int, count: int) -> tuple[int, bool]:
    """Waits until `count` more events are recorded than `after`, or the experiment has ended and no more will come. Returns the
    head, and True if it has ended."""
    head, ended = after, False

    def there() -> bool:
        nonlocal head, ended
        try:
            events = cluster.events(after)
        except Exception:
            return False  # being unreachable for a while is allowed
        head = after + len(events)
        ended = any(event.type in ENDED for event in events)
        return ended or len(events) >= count

    cluster.wait_for(there)
    return head, ended
