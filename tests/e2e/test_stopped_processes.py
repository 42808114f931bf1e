"""SIGSTOP for five seconds to everything, at seeded instants of a real search, as a machine without time for it does. Unlike a
kill it costs nothing: no process ends for it, no agent is lost, no trial starts again, and all that was reported is there once.

An instant is a number of events to wait for, so a seed means the same on a fast and on a slow machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.live_cluster import ROOT, LiveCluster
from tests.support.record import ENDED, broken_rules
from tests.support.seeds import SEEDS

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

STOPPED_SECONDS = 5.0
"""Shorter than the lease of an agent (10 s), after which it is taken for dead whatever the reason."""
SERVICES = ("searcher", "scheduler", "launcher", "tracker", "gateway", "relay")
VICTIMS = (*SERVICES, "agent", "worker", "leader", "nats", "postgres", "supervisor")
EVENTS_BETWEEN_STOPS = (1, 6)
MODEL = ROOT / "tests/e2e/models/steady"
STEPS_MAX = 80


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_stands_still_for_a_while_costs_anything(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    victims = rng.sample(VICTIMS, len(VICTIMS))
    print(f"seed {seed}: {victims}")
    with LiveCluster(tmp_path / "cluster", cpu_slots=2, warm=False) as cluster:
        pids = {name: cluster.pid(name) for name in (*SERVICES, "agent", "nats", "postgres")}
        experiments = [_create(cluster)]
        for pair in zip(victims[::2], victims[1::2], strict=True):
            _go_on(cluster, rng.randint(*EVENTS_BETWEEN_STOPS), experiments)
            with contextlib.ExitStack() as stack:
                for victim in pair:
                    stack.enter_context(_stopped(cluster, victim, experiments))
                time.sleep(STOPPED_SECONDS)  # the standstill itself
        for experiment in experiments:
            cluster.cli("exp", "wait", experiment)
            assert cluster.json("exp", "describe", experiment)["state"] == "completed"
            cluster.cli("exp", "replay", experiment, "--verify")
        assert {name: cluster.pid(name) for name in pids} == pids, "a process has ended"
        _check(cluster, experiments)
        cluster.check_bus()


def _create(cluster: LiveCluster) -> str:
    return str(cluster.json("exp", "create", MODEL / "config.yaml", MODEL)["id"])


def _go_on(cluster: LiveCluster, count: int, experiments: list[str]) -> None:
    """Waits for more events, or starts the next experiment if all that were started have ended and no more will come."""
    head = len(cluster.events())

    def ended() -> bool:
        return sum(event.type in ENDED for event in cluster.events()) == len(experiments)

    cluster.wait_for(lambda: len(cluster.events()) >= head + count or ended())
    if ended():
        experiments.append(_create(cluster))


@contextlib.contextmanager
def _stopped(cluster: LiveCluster, victim: str, experiments: list[str]) -> Iterator[None]:
    found = _processes(cluster, victim)
    while not found:  # no worker runs
        _go_on(cluster, 1, experiments)
        found = _processes(cluster, victim)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _processes(cluster: LiveCluster, victim: str) -> list[psutil.Process]:
    match victim:
        case "worker":
            return cluster.workers()[:1]
        case "leader":
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                return [psutil.Process(os.getsid(process.pid)) for process in cluster.workers()[:1]]
            return []
        case "supervisor":
            return [psutil.Process(cluster.state()["supervisor_pid"])]
        case "postgres":
            server = psutil.Process(cluster.pid(victim))
            return [server, *server.children()]
    return [psutil.Process(cluster.pid(victim))]


def _check(cluster: LiveCluster, experiments: list[str]) -> None:
    events = cluster.events()
    assert broken_rules(events) == []
    assert [event for event in events if event.type in ("AgentLost", "RestartPauseEnded")] == []
    outcomes = {event.data.outcome for event in events if event.type == "WorkersExited"}  # type: ignore[attr-defined]
    assert outcomes <= {"finished", "paused", "preempted"}
    assert sum(event.type == "TrialFinished" for event in events) == 4 * len(experiments)
    for trial in (event.data for event in events if event.type == "TrialFinished"):
        name, steps = trial.trial_id, trial.batches  # type: ignore[attr-defined]
        said = cluster.log(name, f"step {steps}.", kind="trial")
        assert [said.count(f"step {step}.") for step in range(1, steps + 1)] == [1] * steps, name
        points = cluster.once(
            lambda name=name: list(cluster.json("exp", "metrics", name.partition("-")[0], "--trial", name)),
            lambda found, steps=steps: len(found) >= steps,
        )
        assert [point["batches"] for point in points] == list(range(1, steps + 1)), name
