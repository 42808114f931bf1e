"""Nodes that come and go, with the cores of scheduler and launcher: under a provider that fails, doubles, forgets and takes away,
and a launcher that is killed. A failing seed repeats the run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tenuto.cli.sim_nodes import NodeSimulation, static, unserved
from tenuto.kernel.replay import fold, verify_decisions
from tenuto.schemas.config.environment import Environment
from tenuto.schemas.events import EventData
from tenuto.schemas.events.node import NodeEnded, NodeRequested
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.simulation.fleet import LEASE_US, Fleet
from tenuto.services.launcher.simulation.provider import Faults, SimulatedMachine
from tenuto.services.launcher.simulation.threshold import least_paid_us
from tenuto.services.scheduler.simulation import traces
from tenuto.services.scheduler.simulation.cluster import Costs
from tenuto.services.scheduler.simulation.script import SimulationScript

SECOND = 1_000_000
POLL_US, LATENCY_US, BOOT_US = 30 * SECOND, 20 * SECOND, 120 * SECOND
WATCH_US = 10 * SECOND
KILLS = 50
FAULTS = Faults(fails=0.2, doubled=0.1, late_us=90 * SECOND, shortage=0.2, lost_after_us=15 * 3600 * SECOND, broken=0.05)


def settings(**rest: object) -> Provisioning:
    types = [{"name": "a", "slots": 4, "cost_per_hour": 1.0}, {"name": "b", "slots": 8, "cost_per_hour": 3.0}]
    given = {"provisioner": "slurm", "node_types": types, "nodes_max": 8, "idle_seconds": 300.0, "join_seconds": 300.0}
    return Provisioning.model_validate({**given, **rest})


def load(jobs: int, seed: int) -> SimulationScript:
    """Bursts of gangs of 1 to 8 slots."""
    drawn = traces.generated(jobs, 32, seed, arrivals="bursty", load=0.4, mean_seconds=900)
    return unserved(traces.script_of(drawn, 1, 4))


class Watch:
    """Sees that no machine is paid for that nobody needs, for longer than the provider's failures explain."""

    def __init__(self, run: NodeSimulation) -> None:
        assert run.fleet is not None
        self.run, self.fleet = run, run.fleet
        self.since: dict[str, int] = {}
        self.worst_us = 0
        self.look()

    def look(self) -> None:
        now_us = self.run.now_us
        for machine in self.run.provider.live(now_us):
            if self.needed(machine):
                self.since.pop(machine.provider_id, None)
                continue
            since_us = self.since.setdefault(machine.provider_id, now_us)
            failures = sum(at >= since_us - POLL_US for at in self.run.provider.failed_us)
            self.worst_us = max(self.worst_us, now_us - since_us - failures * POLL_US)
        self.run.at(now_us + WATCH_US, self.look)

    def needed(self, machine: SimulatedMachine) -> bool:
        """It works, is on its way, has not been idle for long, or something waits."""
        pool = self.fleet.pool
        node = pool.nodes.get(machine.node_id) if pool is not None else None
        if pool is None or node is None or node.ending == "failed":
            return False
        if machine.node_id in self.fleet.state.on_agent:
            return True
        if node.ending or node.provider_id not in ("", machine.provider_id):
            return False
        since_us = max(node.idle_since_us or node.requested_at_us, pool.demands_at_us)
        kept = sum(not other.ending for other in pool.nodes.values())
        return kept <= pool.provisioning.nodes_min or bool(pool.demands) or self.run.now_us - since_us <= 300 * SECOND


def killed(run: NodeSimulation, fleet: Fleet, seed: int) -> list[int]:
    """Times of the launcher's deaths, as they come."""
    draw = random.Random(seed)
    times: list[int] = []

    def kill() -> None:
        times.append(run.now_us)
        fleet.kill()
        if len(times) < KILLS:
            run.at(run.now_us + round(draw.expovariate(1 / 300) * SECOND), kill)

    run.at(run.now_us + 60 * SECOND, kill)
    return times


@pytest.mark.parametrize("seed", range(3))
def test_wanted_and_real_nodes_agree_again_whatever_fails(seed: int) -> None:
    run = NodeSimulation(
        load(30, seed), "priority", Costs(), settings(nodes_min=1), boot_us=BOOT_US, poll_us=POLL_US, seed=seed, faults=FAULTS,
        latency_us=LATENCY_US, keep_log=True,
    )  # fmt: skip
    fleet = run.fleet
    assert fleet is not None
    assert fleet.log is not None
    watch = Watch(run)
    deaths = killed(run, fleet, seed)
    run.cluster.run()
    assert run.cluster.outcome.unfinished == 0, "a gang was starved"
    calm_us = run.now_us + 4 * 3600 * SECOND
    run.cluster.run_on(calm_us)
    # A node may be taken away, and requested anew, to the very end; then all is as it should be at some time soon.
    pool = fleet.pool
    assert pool is not None
    for _ in range(400):
        real = sorted(machine.node_id for machine in run.provider.live(run.now_us))
        if real == sorted(pool.nodes) and len(real) == 1:
            break
        run.cluster.run_on(run.now_us + WATCH_US)
        pool = fleet.pool
        assert pool is not None
    else:
        pytest.fail(f"real: {real}, on record: {sorted(pool.nodes)}")
    assert watch.worst_us <= POLL_US + LATENCY_US + LEASE_US + WATCH_US
    assert len(deaths) == KILLS
    ids = [event.data.node_id for event in fleet.log if isinstance(event.data, NodeRequested)]
    assert len(ids) == len(set(ids)), "an id was given twice"
    assert len({event.data.node_id for event in fleet.log if isinstance(event.data, NodeEnded)}) >= len(ids) - 2
    verdict = verify_decisions(fleet.core, fleet.log)
    assert verdict.ok, verdict.divergences[0]
    assert fleet.core.dump(fold(fleet.core, fleet.log)) == fleet.core.dump(fleet.state)


def test_nodes_cost_little_more_than_who_knows_the_future_would_pay_and_less_than_to_keep_them() -> None:
    script, only = load(40, 7), settings(node_types=[{"slots": 4, "cost_per_hour": 1.0}])
    run = NodeSimulation(script, "priority", Costs(), only, boot_us=BOOT_US, poll_us=POLL_US)
    bill, always = run.run(), static(script, "priority", Costs(), only)
    assert bill.outcome.unfinished == always.outcome.unfinished == 0
    assert bill.cost < always.cost
    assert bill.cost <= 1.25 * run.oracle()[1]


def test_who_knows_the_future_keeps_a_node_only_where_a_boot_would_cost_more() -> None:
    # Two nodes; the second is used again after 3, the first after 20; a boot costs 5.
    changes = [(10, 2), (20, -1), (23, 1), (30, -2), (50, 1), (60, -1)]
    assert least_paid_us(changes, 5) == (20 + 10 + 7) + 10 + (5 + 5 + 3 + 5)


IMAGES = ("example.org/one:1", "example.org/two:1", None)


def in_images(script: SimulationScript) -> SimulationScript:
    """The same load, each experiment in one of two images or in none."""
    facts: list[tuple[int, EventData]] = []
    for time_us, data in script.facts:
        if isinstance(data, ExperimentSubmitted):
            image = IMAGES[data.experiment_id % len(IMAGES)]
            config = data.config.model_copy(update={"environment": Environment(image=image)})
            facts.append((time_us, data.model_copy(update={"config": config})))
        else:
            facts.append((time_us, data))
    return replace(script, facts=facts)


@pytest.mark.parametrize("seed", range(2))
def test_each_gang_trains_on_nodes_of_its_own_image_whatever_fails(seed: int) -> None:
    types = [{"slots": 4, "cost_per_hour": 1.0, "node_images": ["example.org/*"]}]
    script = in_images(load(24, seed))
    wanted = {
        data.experiment_id: data.config.environment.image or ""
        for _, data in script.facts
        if isinstance(data, ExperimentSubmitted)
    }
    granted: list[AllocationGranted] = []

    def observe(data: EventData) -> None:
        if isinstance(data, AllocationGranted):
            granted.append(data)

    run = NodeSimulation(
        script, "priority", Costs(), settings(node_types=types), boot_us=BOOT_US, poll_us=POLL_US, seed=seed, faults=FAULTS,
        latency_us=LATENCY_US, observer=observe, keep_log=True,
    )  # fmt: skip
    assert run.fleet is not None
    killed(run, run.fleet, seed)
    run.cluster.run()
    assert run.cluster.outcome.unfinished == 0, "a gang was starved"
    assert run.fleet.log is not None
    nodes = {event.data.node_id: event.data.image for event in run.fleet.log if isinstance(event.data, NodeRequested)}
    placed = [(wanted[data.experiment_id], {nodes[part.agent_id] for part in data.slots}) for data in granted]
    assert {image for image, _ in placed} == set(wanted.values()) == {image or "" for image in IMAGES}
    assert [(image, found) for image, found in placed if found != {image}] == []
    run.cluster.run_on(run.now_us + 2 * 3600 * SECOND)
    assert run.provider.live(run.now_us) == []
    assert run.fleet.pool is not None
    assert not run.fleet.pool.nodes
    assert not run.fleet.pool.demands
