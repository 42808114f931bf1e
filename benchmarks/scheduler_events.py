"""Millions of simulated events: the scheduler's own core under every policy, with bursts, failures and all that it knows.

    python benchmarks/scheduler_events.py [--events 10000000] [--processes 2] [--seed 1]

Each history has its own seed, cluster (2 to 32 agents of 1 to 16 slots), policy, load from 0.5 to 0.95, arrivals, failures,
and some of: unequal agents, a second pool, loans between pools, constraints, quotas, limits, closed slots, trials that are
elastic, not preemptible, run longer than foretold or take no slots, and changes of priority and place. Afterwards is
checked what must hold whatever happened: every trial ended (nobody starves below the capacity), no trial was preempted
again and again, no slot was in two allocations at once, nothing was placed on closed slots or against constraints, no owner
was above its quota and no experiment above its limit, no agent had more trials without slots than it takes, gangs were
whole, all work was done once and counted, and no schedule used more than the offline bound (where no agent failed or was
closed). In every `FORETOLD_EACH`-th history no gang starts later than was foretold. Every `REPLAY_EACH`-th is run a second
time, and must decide the same.
Ten million events take about ten minutes on two idle cores.

The exit code is 1 if one of these failed; the line names the seed, and `--seed N --events 1` runs that history again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import count
from pathlib import Path

from figures import figure, parse

from tenuto.schemas.events import EventData
from tenuto.services.scheduler.simulation.cluster import Costs, SimulatedCluster, SimulationOutcome
from tenuto.services.scheduler.simulation.script import SimulationScript, segments
from tenuto.services.scheduler.simulation.traces import ARRIVALS, generated, script_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from scheduler_foretold import Foretold

from tests.support.scheduler_mixtures import FEATURES, mixture
from tests.support.scheduler_promises import Livelock, Promises

POLICIES = ("priority", "fair_share", "fifo")
REPLAY_EACH = 10
FORETOLD_EACH = 8
FORETOLD_JOBS = 60
"""Why trials wait is asked before each event of such a history: that takes longer than deciding."""
FORETOLD_FEATURES = ("unequal", "rigid", "foretold")
PLAIN = 0.3
"""Part of the histories with none of the features that `mixture` draws."""
SECOND = 1_000_000
AHEAD = 2
"""Histories handed out for each process: the next one is there when one ends."""
PROGRESS_PARTS = 20
"""Lines that say how far it is."""


def simulated(seed: int) -> tuple[int, list[str]]:
    """(events, what is wrong) of one history."""
    history = History(seed)
    wrong = history.run()
    events = history.cluster.outcome.events
    if seed % REPLAY_EACH == 0 and not wrong:
        again = History(seed)
        again.run()
        events += again.cluster.outcome.events
        if again.cluster.outcome.history != history.cluster.outcome.history:
            wrong.append("the same history decided otherwise")
    return events, [f"seed {seed}: {what}" for what in wrong]


class History:
    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.promises = Promises()
        with_constraints = draw.random() < 0.5
        self.foretold = Foretold(heads_only=with_constraints) if seed % FORETOLD_EACH == 0 else None
        agents, slots = draw.choice((2, 4, 8, 16, 32)), draw.choice((1, 2, 4, 8))
        jobs = generated(
            FORETOLD_JOBS if self.foretold else draw.randint(50, 400), agents * slots, seed, arrivals=draw.choice(ARRIVALS),
            load=draw.uniform(0.5, 0.95), users=draw.randint(1, 8), auxiliary=draw.choice((0.0, 0.0, 0.2)),
        )  # fmt: skip
        self.features = tuple(feature for feature in FEATURES if draw.random() < 0.4)
        policy = draw.choice(POLICIES)
        costs = Costs(failures_us=draw.choice((0, 24 * 3600 * SECOND)), checkpoint_us=draw.choice((60, 600)) * SECOND)
        if self.foretold:
            self.features = (*FORETOLD_FEATURES, "constraints") if with_constraints else FORETOLD_FEATURES
            policy, costs = "fifo", replace(costs, failures_us=0)
        elif draw.random() < PLAIN:
            self.features = ()
        script: SimulationScript = (
            mixture(jobs, agents, slots, seed, self.features)
            if self.features
            else script_of(
                jobs,
                agents,
                slots,
                foretold=draw.random() < 0.7,
                elastic=draw.choice((1, 1, 2, 4)),
                auxiliary_max=draw.choice((1, 2, 100)),
            )
        )
        self.cluster = SimulatedCluster(script, policy, costs, seed=seed, keep_history=True, observer=self._hear)

    def run(self) -> list[str]:
        """Runs the history; returns a sentence for each violation."""
        try:
            outcome = self.cluster.run()
        except Livelock:
            return self.promises.wrong
        return [*self.promises.wrong, *(self.foretold.wrong if self.foretold else ()), *_judged(outcome, self.cluster)]

    def _hear(self, data: EventData) -> None:
        self.promises.hear(data)
        if self.foretold:
            self.foretold.hear(self.cluster, data)


def _judged(outcome: SimulationOutcome, cluster: SimulatedCluster) -> list[str]:
    wrong = []
    if outcome.unfinished:
        wrong.append(f"{outcome.unfinished} trials did not end")
    free_at: dict[tuple[str, int], int] = {}
    for item in sorted(segments(outcome.history, outcome.end_us), key=lambda item: item.start_us):
        key = (item.agent_id, item.slot_id)
        if item.start_us < free_at.get(key, 0):
            wrong.append(f"slot {key} was in two allocations at {item.start_us}")
        free_at[key] = max(item.end_us, free_at.get(key, 0))
    work = sum(trial.slots * trial.script.work_us for trial in cluster.trials.values())
    if not outcome.unfinished and abs(outcome.useful - work) > 1e-6 * work:
        wrong.append(f"{outcome.useful} of {work} slot-microseconds were trained")
    # The bound is about all agents, whether they fail or are closed; `utilisation` is not.
    used = outcome.useful / max(1, outcome.capacity * (outcome.end_us - outcome.start_us))
    if used > outcome.bound + 1e-6:
        wrong.append(f"more than the bound was used: {used} of {outcome.bound}")
    cluster.core.check(cluster.state)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parse(parser, events=1, processes=1)
    started, total, histories, broken, said = time.monotonic(), 0, 0, 0, 0
    seeds = count(given.seed)
    waiting: set[Future[tuple[int, list[str]]]] = set()
    ahead = 1 if given.events == 1 else AHEAD * given.processes
    with ProcessPoolExecutor(given.processes) as pool:
        while total < given.events or waiting:
            while total < given.events and len(waiting) < ahead:
                waiting.add(pool.submit(simulated, next(seeds)))
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for events, found in (item.result() for item in done):
                total, histories, broken = total + events, histories + 1, broken + len(found)
                for line in found:
                    print(line, flush=True)
            if total * PROGRESS_PARTS // given.events > said:
                said = total * PROGRESS_PARTS // given.events
                print(_summary(total, histories, broken, time.monotonic() - started), flush=True)
    print(_summary(total, histories, broken, time.monotonic() - started) + " in all")
    figure("events of one history after the other", total / (time.monotonic() - started), "/s")
    figure("broken promises", broken, f"in {total:,} events", bar="none")
    sys.exit(1 if broken else 0)


def _summary(total: int, histories: int, broken: int, seconds: float) -> str:
    rate = total / max(seconds, 1e-9)
    return f"{total:,} events in {histories} histories, {seconds:.0f} s ({rate:,.0f} a second); {broken} broken promises"


if __name__ == "__main__":
    main()
