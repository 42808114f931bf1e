"""Millions of simulated events: the scheduler's own core under every policy, with bursts, failures and elastic trials.

    python benchmarks/scheduler_events.py [--events 10000000] [--processes 2] [--seed 1]

Each history has its own seed, cluster (2 to 32 agents of 1 to 8 slots), policy, load from 0.5 to 0.95, arrivals, failures, and
elastic trials in every second one. After each of them is checked what must hold whatever happened: every trial ended (nobody
starves below the capacity), no slot was in two allocations at once, gangs were whole, all work was done once and counted, and
no schedule used more than the offline bound (where no agent failed). Every `REPLAY_EACH`-th history is run a second time, and
must decide the same. Ten million events take about ten minutes on two idle cores.

The exit code is 1 if one of these failed; the line names the seed, and `--seed N --events 1` runs that history again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from tenuto.schemas.events.pool import AllocationGranted
from tenuto.services.scheduler.simulation.cluster import Cluster, Costs, Outcome
from tenuto.services.scheduler.simulation.script import Script, segments
from tenuto.services.scheduler.simulation.traces import ARRIVALS, generated, script_of

POLICIES = ("priority", "fair_share", "fifo")
REPLAY_EACH = 10
SECOND = 1_000_000
HISTORIES_AT_ONCE = 16
"""Handed out together: keeps all processes busy and no more in memory than is needed."""


def simulated(seed: int) -> tuple[int, list[str]]:
    """(events, what is wrong) of one history."""
    outcome, cluster = _run(seed)
    wrong = _judged(outcome, cluster)
    events = outcome.events
    if seed % REPLAY_EACH == 0:
        again, _ = _run(seed)
        events += again.events
        if again.history != outcome.history:
            wrong.append("the same history decided otherwise")
    return events, [f"seed {seed}: {what}" for what in wrong]


def _run(seed: int) -> tuple[Outcome, Cluster]:
    draw = random.Random(seed)
    agents, slots = draw.choice((2, 4, 8, 16, 32)), draw.choice((1, 2, 4, 8))
    jobs = generated(
        draw.randint(50, 400), agents * slots, seed, arrivals=draw.choice(ARRIVALS), load=draw.uniform(0.5, 0.95),
        users=draw.randint(1, 8),
    )  # fmt: skip
    script: Script = script_of(jobs, agents, slots, foretold=draw.random() < 0.7, elastic=draw.choice((1, 1, 2, 4)))
    costs = Costs(failures_us=draw.choice((0, 24 * 3600 * SECOND)), checkpoint_us=draw.choice((60, 600)) * SECOND)
    cluster = Cluster(script, draw.choice(POLICIES), costs, seed=seed, keep_history=True)
    return cluster.run(), cluster


def _judged(outcome: Outcome, cluster: Cluster) -> list[str]:
    wrong = []
    if outcome.unfinished:
        wrong.append(f"{outcome.unfinished} trials did not end")
    free_at: dict[tuple[str, int], int] = {}
    for item in sorted(segments(outcome.history, outcome.end_us), key=lambda item: item.start_us):
        key = (item.agent_id, item.slot_id)
        if item.start_us < free_at.get(key, 0):
            wrong.append(f"slot {key} was in two allocations at {item.start_us}")
        free_at[key] = max(item.end_us, free_at.get(key, 0))
    for _, data in outcome.history:
        if isinstance(data, AllocationGranted):
            trial, size = cluster.trials[data.trial_id], sum(len(part.slot_ids) for part in data.slots)
            if not trial.slots <= size <= trial.most:
                wrong.append(f"{data.allocation_id} has {size} slots")
    work = sum(trial.slots * trial.script.work_us for trial in cluster.trials.values())
    if not outcome.unfinished and abs(outcome.useful - work) > 1e-6 * work:
        wrong.append(f"{outcome.useful} of {work} slot-microseconds were trained")
    # The bound is about all agents; what is offered shrinks when they fail.
    if not cluster.costs.failures_us and outcome.utilisation > outcome.bound + 1e-6:
        wrong.append(f"more than the bound was used: {outcome.utilisation} of {outcome.bound}")
    cluster.core.check(cluster.state)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started, total, histories, wrong = time.monotonic(), 0, 0, list[str]()
    seeds = count(given.seed)
    with ProcessPoolExecutor(given.processes) as pool:
        while total < given.events:
            size = 1 if given.events == 1 else HISTORIES_AT_ONCE
            for events, found in pool.map(simulated, list(islice(seeds, size))):
                total, histories = total + events, histories + 1
                wrong += found
                for line in found:
                    print(line, flush=True)
    seconds = time.monotonic() - started
    print(
        f"{total:,} events in {histories} histories, {seconds:.0f} s ({total / seconds:,.0f} a second); "
        f"{len(wrong)} broken promises"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
