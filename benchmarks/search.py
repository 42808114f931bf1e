"""Speed of the searcher's core, and its memory per finished trial.

    python benchmarks/search.py [--trials 10000 100000]

A decision is one decided event: a trial starts, goes on, waits or stops, with its reason. What is timed is the pure core as the
service, the replay and the simulator call it: fold the input, decide, and fold what was decided. The answers of the trials are
made outside of it. Time is the process's CPU time, so that what else the machine does matters less; the machine's speed at the
time is told beside it (`machine_speed`).
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
import tracemalloc
from collections import deque
from typing import Any

from figures import figure, parse

from tenuto.kernel.service import spare_collector
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.events import EventData
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import TrialExtended, TrialRequested, TrialStopped
from tenuto.schemas.events.trial import TrialFinished, ValidationReported
from tenuto.services.searcher.decide import settle
from tenuto.services.searcher.evolve import evolve
from tenuto.services.searcher.methods import RULE_VERSION
from tenuto.services.searcher.methods.sampling import draw_bits
from tenuto.services.searcher.state import SearcherState, initial

PARALLEL = 64
CALIBRATION_ROUNDS = 3_000_000
"""A third of a second."""
SPACE = {
    "lr": {"type": "log", "minval": -5, "maxval": -1},
    "momentum": {"type": "double", "minval": 0.5, "maxval": 0.99},
    "width": {"type": "int", "minval": 16, "maxval": 512},
    "activation": {"type": "categorical", "vals": ["relu", "tanh", "gelu"]},
}


def submission(trials: int, mode: str) -> ExperimentSubmitted:
    config = ExperimentConfig.model_validate(
        {
            "name": "benchmark",
            "entrypoint": "m:T",
            "hyperparameters": SPACE,
            "searcher": {
                "name": "asha",
                "metric": "loss",
                "max_length": {"batches": 1024},
                "max_trials": trials,
                "max_concurrent_trials": PARALLEL,
                "mode": mode,
            },
        }
    )
    return ExperimentSubmitted(experiment_id=1, config=config, seed=1, context_hash="", context_size_bytes=0, user="u")


class Search:
    """Answers decisions in their order; times what the core does with all answers that wait, and not what the harness does."""

    def __init__(self, trials: int, mode: str) -> None:
        self.state: SearcherState = initial()
        self.seconds = 0.0
        self.decisions = 0
        self.reports = 0
        self.inputs = 0
        self.todo: deque[EventData] = deque([submission(trials, mode)])

    def run(self, decisions_max: int | None = None) -> None:
        while self.todo and (decisions_max is None or self.decisions < decisions_max):
            waiting = list(self.todo)
            self.todo.clear()
            state, made = self.state, []
            began = time.process_time()
            for data in waiting:
                state = evolve(state, data)
                decided, state = settle(state, data, RULE_VERSION)
                made += decided
            self.seconds += time.process_time() - began
            self.state = state
            self.inputs += len(waiting)
            self.reports += sum(isinstance(data, ValidationReported) for data in waiting)
            self.decisions += len(made)
            for data in made:
                self.answer(data)

    def answer(self, made: EventData) -> None:
        if isinstance(made, (TrialRequested, TrialExtended)):
            number = int(made.trial_id.split("-")[1])
            loss = draw_bits(0, number, "loss") / 2**128 + 1 / made.target_length
            self.todo.append(
                ValidationReported(
                    trial_id=made.trial_id,
                    allocation_id="a",
                    batches=made.target_length,
                    length=made.target_length,
                    metrics={"loss": loss},
                )
            )
        elif isinstance(made, TrialStopped):
            self.todo.append(TrialFinished(trial_id=made.trial_id, batches=1, length=1, checkpoint_id=None))


def measure(trials: int, mode: str) -> dict[str, Any]:
    gc.collect()
    speed = machine_speed()
    search = Search(trials, mode)
    search.run()
    speed = (speed + machine_speed()) / 2
    assert not search.state.experiments, "the search did not end"
    return {
        "trials": trials,
        "mode": mode,
        "reports": search.reports,
        "decisions": search.decisions,
        "inputs": search.inputs,
        "seconds": round(search.seconds, 3),
        "decisions_per_second": round(search.decisions / search.seconds),
        "inputs_per_second": round(search.inputs / search.seconds),
        "machine_speed": round(speed, 1),
    }


def machine_speed() -> float:
    """Millions of tuples a second that plain Python makes and puts into a dictionary: what this machine, which may be shared,
    gave just now. Rates of different runs are compared by it."""
    table: dict[int, tuple[int, int]] = {}
    began = time.process_time()
    for number in range(CALIBRATION_ROUNDS):
        table[number & 0xFFFF] = (number, number + 1)
    return CALIBRATION_ROUNDS / (time.process_time() - began) / 1e6


def memory(trials: int, mode: str) -> float:
    """Bytes that the state holds per finished trial, near the end of the search."""
    gc.collect()
    search = Search(trials, mode)
    tracemalloc.start()
    search.run(decisions_max=trials * 2)
    search.todo.clear()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    [(_, experiment)] = search.state.experiments.items()
    return held / max(1, experiment.requested - experiment.active)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--modes", nargs="+", default=["promotion", "stopping"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-trials", type=int, default=10_000, help="of the search whose state is weighed")
    options = parse(parser, trials=[100], memory_trials=100)
    spare_collector()  # as every service does
    rows = [measure(trials, mode) for mode in options.modes for trials in options.trials]
    held = {mode: round(memory(options.memory_trials, mode)) for mode in options.modes}
    for row in rows:
        bar = "at least 20,000/s at 10,000 trials"
        figure(f"decisions, {row['mode']}, {row['trials']:,} trials", row["decisions_per_second"], "/s", bar=bar)
    for mode, size in held.items():
        figure(f"state of a finished trial, {mode}", size, "bytes", bar="at most 1,000 bytes")
    if options.json:
        print(json.dumps({"decisions": rows, "bytes_per_finished_trial": held}))
        return
    print(f"python {sys.version.split()[0]} on {platform.machine()}")
    for row in rows:
        print(
            f"{row['mode']:>10} {row['trials']:>8,} trials: {row['decisions']:,} decisions on {row['reports']:,} reports in"
            f" {row['seconds']:.2f} s, {row['decisions_per_second']:,}/s ({1e6 / row['decisions_per_second']:.1f} us each)"
            f" while the machine's speed was {row['machine_speed']}"
        )
    for mode, size in held.items():
        print(f"{mode:>10}: {size} bytes of state per finished trial, at {options.memory_trials:,} trials")


if __name__ == "__main__":
    main()
