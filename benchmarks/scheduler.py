"""Cost of one scheduling decision: an event comes in, the state is folded and the pool is planned anew.

    python benchmarks/scheduler.py [--events 2000] [--policy priority] [--growth PICTURE.png]

The pure core, as the live service runs it (`kernel.decision.step`: folding, deciding, building the events), without log and bus.
Each size runs in a process of its own, so that its memory is its own. The cluster is full; trials of 1, 2, 4 and 8 slots wait.
Events: half are workers that exit (their slots are released and granted again), the others are new trials (one in four of a
higher priority, which preempts), trials that are stopped while they wait, changed priorities, and saved checkpoints.

`whole` is a full recomputation: all indexes made anew from the facts, then one pass.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from figures import figure, parse

from tenuto.kernel.decision import step
from tenuto.kernel.service import spare_collector
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, Slot
from tenuto.schemas.events.pool import AllocationPreempted
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentPriorityChanged, ExperimentSubmitted, PoolPolicyChanged
from tenuto.schemas.events.run import WorkersExited
from tenuto.schemas.events.search import TrialRequested, TrialStopped
from tenuto.schemas.events.trial import CheckpointSaved
from tenuto.services.scheduler.core import SchedulerCore

NAMESPACE = UUID("c0ffee00-0000-4000-8000-000000000001")
WHY = Reason(rule="bench")
GANGS = (1, 1, 1, 2, 2, 4, 8)
SIZES = ((1_000, 5_000), (1_250, 100_000))
"""(agents of 8 slots, waiting trials)."""
GROWTH = ((64, 320), (256, 1_280), (1_000, 5_000), (4_000, 20_000), (10_000, 50_000))
TRIALS_EACH = 10


class Bench:
    def __init__(self, agents: int, pending: int, policy: str, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.core, self.position, self.now_us = SchedulerCore(), 0, 1_700_000_000_000_000
        self.state = self.core.initial()
        self.trials: dict[int, int] = {}
        self.cpu_seconds: list[float] = []
        self.preempted: list[int] = []
        """By each measured event."""
        self.preempted_last = 0
        # First the queue, then the agents: so each policy fills the cluster as it wants it, and nothing has to give way. All is
        # only folded, as by a scheduler that was away meanwhile; the last agent's event is decided, and its pass fills them all.
        self.deciding = False
        self.feed(PoolPolicyChanged.model_validate({"pool": "default", "policy": policy}))
        running = agents * 8 * len(GANGS) // sum(GANGS)
        while sum(self.trials.values()) < pending + running:
            self.submit(60)
        for number in range(agents):
            self.deciding = number == agents - 1
            self.feed(joined(f"agent-{number:05}"))
        self.deciding = False  # A policy may have started more, smaller gangs than the average.
        while self.waiting < pending:
            self.submit(60)
        self.deciding = True
        self.submit(60)
        while leaving := self.state.pools["default"].leaving:
            self.exit(leaving[0], "preempted")

    def exit(self, item: str, outcome: str) -> float:
        trial = item.rsplit("-", 1)[0]
        fact = {"allocation_id": item, "trial_id": trial, "outcome": outcome, "exit_code": None}
        return self.feed(WorkersExited.model_validate(fact))

    @property
    def waiting(self) -> int:
        return sum(self.trials.values()) - len(self.state.allocations)

    def event(self, data: EventData) -> Event:
        self.position += 1
        self.now_us += 1_000
        return Event(
            id=uuid5(NAMESPACE, str(self.position)), stream=data.stream(), type=data.TYPE, schema_version=1, time_us=self.now_us,
            payload=data.to_json(), actor="bench", correlation_id="",
        ).recorded(self.position, self.position)  # fmt: skip

    def feed(self, data: EventData) -> float:
        """Seconds that folding and deciding took, by the wall clock; `cpu_seconds` has those of the processor."""
        event = self.event(data)
        assert event.data is not None  # parsed once, as for all that read the stream
        decided: Sequence[Event] = ()
        started, cpu_started = time.perf_counter(), time.process_time()
        self.state = self.core.evolve(self.state, event)
        if self.deciding:
            self.state, decided = step(self.core, self.state, event, seen_position=self.position, time_us=self.now_us)
        self.cpu_seconds.append(time.process_time() - cpu_started)
        took = time.perf_counter() - started
        self.preempted_last = sum(answer.type == AllocationPreempted.TYPE for answer in decided)
        return took

    def submit(self, priority: int) -> float:
        experiment = len(self.trials) + 1
        self.trials[experiment] = 0
        slots = self.random.choice(GANGS)
        self.feed(submitted(experiment, slots, priority, f"user-{experiment % 50}", f"team-{experiment % 7}"))
        return max(self.request(experiment) for _ in range(TRIALS_EACH))

    def request(self, experiment: int) -> float:
        self.trials[experiment] += 1
        number = self.trials[experiment]
        return self.feed(
            TrialRequested(
                experiment_id=experiment, trial_id=f"{experiment}-{number}", trial_number=number, hyperparameters={}, seed=1,
                target_length=1, reason=WHY,
            )
        )  # fmt: skip

    def one(self) -> float:
        choice = self.random.random()
        pool = self.state.pools["default"]
        if choice < 0.5:
            leaving = pool.leaving[0] if pool.leaving else None
            item = leaving or self.random.choice(pool.victims)[3]
            return self.exit(item, "preempted" if leaving else "lost")
        if choice < 0.6:
            self.trials[len(self.trials) + 1] = 0
            fresh = len(self.trials)
            self.feed(submitted(fresh, self.random.choice(GANGS), self.random.choice((60, 60, 60, 42)), "ada", "team-1"))
            return self.request(fresh)
        if choice < 0.75:
            return self.request(self.random.randint(1, len(self.trials)))
        if choice < 0.85:
            item = self.random.choice(pool.victims)[3]
            fact = {"checkpoint_id": "c", "batches": 1, "length": 1, "files": (), "size_bytes": 0, "location": "x"}
            return self.feed(CheckpointSaved.model_validate({"trial_id": item.rsplit("-", 1)[0], "allocation_id": item, **fact}))
        experiment = self.state.experiments[self.random.choice(pool.queue)[2]]
        if choice < 0.95 and experiment.waiting:
            trial = f"{experiment.experiment_id}-{experiment.waiting[-1]}"
            return self.feed(
                TrialStopped(experiment_id=experiment.experiment_id, trial_id=trial, outcome="early_stopped", reason=WHY)
            )
        priority = self.random.choice((42, 60, 60, 70))
        return self.feed(ExperimentPriorityChanged(experiment_id=experiment.experiment_id, priority=priority))

    def whole(self) -> float:
        facts = self.core.dump(self.state)
        started = time.perf_counter()
        state = self.core.load(facts)
        self.core.decide(state, self.event(PoolPolicyChanged.model_validate({"pool": "default", "policy": "priority"})))
        return time.perf_counter() - started


def joined(agent_id: str) -> AgentJoined:
    slots = tuple(Slot(slot_id=number, kind="cuda", device="gpu") for number in range(8))
    return AgentJoined(agent_id=agent_id, pool="default", host=agent_id, slots=slots, version="1")


def submitted(experiment: int, slots: int, priority: int, user: str, workspace: str) -> ExperimentSubmitted:
    config: dict[str, Any] = {
        "name": "bench", "entrypoint": "m:T",
        "searcher": {"name": "random", "metric": "loss", "max_length": {"batches": 10}, "max_trials": 1},
        "resources": {"slots_per_trial": slots, "priority": priority, "workspace": workspace},
    }  # fmt: skip
    return ExperimentSubmitted(
        experiment_id=experiment, config=ExperimentConfig.model_validate(config), seed=1, context_hash="0" * 64,
        context_size_bytes=1, user=user,
    )  # fmt: skip


def measure(agents: int, pending: int, policy: str, events: int) -> dict[str, Any]:
    started = time.perf_counter()
    bench = Bench(agents, pending, policy)
    built = time.perf_counter() - started
    spare_collector()  # as the service does when it has read its snapshot
    times, cpu = [], []
    for _ in range(events):
        times.append(bench.one())
        cpu.append(bench.cpu_seconds[-1])
        bench.preempted.append(bench.preempted_last)
    most = max(bench.preempted)
    most_ms = max(took for took, preempted in zip(times, bench.preempted, strict=True) if preempted == most) * 1e3
    times.sort()
    cpu.sort()
    return {
        "policy": policy, "agents": agents, "slots": agents * 8, "pending": bench.waiting, "events": events,
        "p50_ms": times[len(times) // 2] * 1e3, "p99_ms": times[int(len(times) * 0.99)] * 1e3, "max_ms": times[-1] * 1e3,
        "most_preempted": most, "most_preempted_ms": most_ms,
        "cpu_p50_ms": cpu[len(cpu) // 2] * 1e3, "cpu_p99_ms": cpu[int(len(cpu) * 0.99)] * 1e3,
        "mean_ms": statistics.mean(times) * 1e3, "whole_ms": bench.whole() * 1e3,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "built_s": built,
    }  # fmt: skip


def alone(agents: int, pending: int, policy: str, events: int) -> dict[str, Any]:
    """In a process of its own."""
    arguments = [sys.executable, __file__, "--one", json.dumps([agents, pending, policy, events])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def show(sizes: list[tuple[int, int, str]], events: int) -> list[dict[str, Any]]:
    """Measures, and prints each row as it comes."""
    heads = (
        "policy", "slots", "waiting trials", "p50 ms", "p99 ms", "worst ms", "p50 CPU ms", "p99 CPU ms", "most preempted by one",
        "ms", "whole ms", "MB",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    rows = []
    for agents, pending, policy in sizes:
        row = alone(agents, pending, policy, events)
        rows.append(row)
        times = " | ".join(f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms", "max_ms", "cpu_p50_ms", "cpu_p99_ms"))
        most = f"{row['most_preempted']} | {row['most_preempted_ms']:.1f}"
        cells = f"{row['policy']} | {row['slots']} | {row['pending']} | {times} | {most}"
        print(f"| {cells} | {row['whole_ms']:.0f} | {row['memory_mb']:.0f} |", flush=True)
        where = f"{row['policy']}, {row['slots']:,} slots, {row['pending']:,} waiting"
        of, bar = row["whole_ms"], "p50 at most 20 ms, p99 100 ms at 8,000 slots"
        for name in ("p50", "p99"):
            figure(f"an event, {where}, {name}", row[f"{name}_ms"], "ms", beside="full recomputation", of=of, bar=bar)
    return rows


def draw(rows: list[dict[str, Any]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name in ("p50_ms", "p99_ms"):
        axes.plot([row["agents"] for row in rows], [row[name] for row in rows], marker="o", label=name.removesuffix("_ms"))
    axes.set(xscale="log", yscale="log", xlabel="agents of 8 slots (5 waiting trials each)", ylabel="ms per event")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _size(text: str) -> tuple[int, int]:
    agents, waiting = map(int, text.split(":"))
    return agents, waiting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--policy", choices=("priority", "fair_share", "fifo"), default=None)
    parser.add_argument("--growth", default="", help="measure 64 to 10,000 agents and draw it here")
    parser.add_argument("--sizes", nargs="+", default=SIZES, type=_size, metavar="AGENTS:WAITING", help="agents of 8 slots")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    given = parse(parser, events=20, policy="priority", sizes=[(4, 20)])
    if given.one:
        print(json.dumps(measure(*json.loads(given.one))))
        return
    policies = [given.policy] if given.policy else ["priority", "fair_share", "fifo"]
    show([(agents, pending, policy) for policy in policies for agents, pending in given.sizes], given.events)
    if given.growth:
        draw(show([(agents, pending, policies[0]) for agents, pending in GROWTH], given.events), given.growth)


if __name__ == "__main__":
    main()
