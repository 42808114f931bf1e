"""Cost of a trial beside its training: `python benchmarks/turnover.py [--trials 30] [--kills 10]`.

A real cluster with one CPU slot, PyTorch, warm workers and cold ones in the same run.

turnover   from the end of one trial's last training step to the beginning of the next trial's first one, on the same slot:
           the last validation and checkpoint, the end of the process, five services' decisions, the next process, its model
           and its data
recovery   from kill -9 of a training process to the next training step of its trial, from its checkpoint

With --phases the warm turnover is taken apart by what is on record between the two steps: median milliseconds from each event to
the next one. The record's time of an event is when it was decided, some milliseconds before others know of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

from embedded_cluster import EmbeddedCluster, directory_for_cluster, up
from figures import figure, parse

MODEL = Path(__file__).with_name("models") / "turnover"


class Cluster(EmbeddedCluster):
    def __init__(self, directory: Path, warm: bool) -> None:
        super().__init__(directory, MODEL, {"TENUTO_WARM_ENVIRONMENTS_MAX": "2" if warm else "0"}, own=not warm)

    def create(self, batches: int, trials: int, step_seconds: float, *, reuse: bool = False) -> str:
        self.steps.write_text("")
        return self.submit(
            {
                "name": "turnover",
                "entrypoint": "model_def:TurnoverTrial",
                **({"environment": {"reuse_worker": True}} if reuse else {}),
                "hyperparameters": {"learning_rate": {"type": "log", "minval": -4, "maxval": -1}},
                "searcher": {
                    "name": "random",
                    "metric": "loss",
                    "max_trials": trials,
                    "max_length": {"batches": batches},
                    **({"max_concurrent_trials": 1} if self.shared else {}),
                },
                "variables": {"STEP_SECONDS": str(step_seconds)},
                "min_checkpoint_period": {"batches": 20},
            }
        )

    def lines(self) -> list[tuple[str, str, float]]:
        return [(allocation, what, float(at)) for allocation, what, at, *_ in self.words()]

    def wait_lines(self, count: int) -> None:
        self.wait(self.lines, lambda lines: len(lines) >= count, f"step {count}")


def turnover(cluster: Cluster, trials: int, *, reuse: bool = False) -> tuple[list[float], float, str]:
    """Seconds between trials; trials per second; the experiment. `reuse`: one process for all trials."""
    experiment = cluster.create(8, trials, 0.0, reuse=reuse)
    cluster.cli("exp", "wait", experiment)
    lines = cluster.lines()
    gaps = [after[2] - before[2] for before, after in itertools.pairwise(lines) if before[0] != after[0]]
    return gaps, (len(gaps)) / (lines[-1][2] - lines[0][2]), experiment


PHASES = (
    "CheckpointSaved",
    "ValidationReported",
    "TrialStopped",
    "WorkersExited",
    "AllocationReleased",
    "AllocationGranted",
    "WorkersStarting",
    "WorkersStarted",
)
"""Events between two trials on one slot, in this order: the first four are about the one that ends."""


def phases(cluster: Cluster, experiment: str) -> dict[str, float]:
    """Median milliseconds until each of PHASES, from the one before it; the last until the next trial's first step."""
    text = cluster.cli("event", "tail", "--from", "1", "--experiment", experiment, "--json", "--no-follow")
    recorded: dict[str, list[float]] = {name: [] for name in PHASES}
    for event in map(json.loads, text.splitlines()):
        recorded.get(event["type"], []).append(event["time_us"] / 1e6)
    lines = cluster.lines()
    parts: dict[str, list[float]] = {}
    for before, after in itertools.pairwise(lines):
        if before[0] == after[0]:
            continue
        at = before[2]
        for name in PHASES:
            found = [at for at in recorded[name] if before[2] <= at <= after[2]]
            if not found:
                break
            parts.setdefault(name, []).append(found[0] - at)
            at = found[0]
        else:
            parts.setdefault("first step", []).append(after[2] - at)
    return {name: round(statistics.median(seconds) * 1e3, 1) for name, seconds in parts.items()}


def recovery(cluster: Cluster, kills: int) -> list[float]:
    experiment = cluster.create(100_000, 1, 0.02)
    cluster.wait_lines(60)
    gaps = []
    for _ in range(kills):
        seen = len(cluster.lines())
        cluster.wait_lines(seen + 60)
        allocation = cluster.lines()[-1][0]
        cluster.leader(allocation).children()[0].kill()  # the training process
        killed = time.time()
        lines = cluster.wait(cluster.lines, lambda lines, name=allocation: lines[-1][0] != name, "the next run")
        gaps.append(next(at for name, what, at in lines if name == lines[-1][0] and what == "begins") - killed)
    cluster.cli("exp", "kill", experiment)
    return gaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--phases", action="store_true", help="take the warm turnover apart, and nothing else")
    parser.add_argument("--kinds", nargs="+", choices=("warm", "cold"), default=["warm", "cold"], help="of workers")
    arguments = parse(parser, trials=2, kills=1, kinds=["warm"])
    report: dict[str, object] = {}
    for warm in [kind == "warm" for kind in (["warm"] if arguments.phases else arguments.kinds)]:
        with directory_for_cluster() as directory:
            cluster = Cluster(directory, warm)
            with up(cluster, 1):
                gaps, rate, experiment = turnover(cluster, arguments.trials if warm else max(arguments.trials // 3, 2))
                if arguments.phases:
                    report = {"turnover_warm_p50_ms": round(statistics.median(gaps) * 1e3), **phases(cluster, experiment)}
                    break
                back = recovery(cluster, arguments.kills if warm else max(arguments.kills // 3, 1))
        kind = "warm" if warm else "cold"
        report[f"turnover_{kind}_p50_ms"] = round(statistics.median(gaps) * 1e3)
        report[f"turnover_{kind}_max_ms"] = round(max(gaps) * 1e3)
        report[f"trials_per_second_{kind}"] = round(rate, 2)
        report[f"recovery_{kind}_p50_ms"] = round(statistics.median(back) * 1e3)
        report[f"recovery_{kind}_max_ms"] = round(max(back) * 1e3)
    print(json.dumps(report, indent=1))
    for name, bar in (("turnover", "at most 150 ms"), ("recovery", "at most 3 s")):
        own, cold = (report.get(f"{name}_{kind}_p50_ms") for kind in ("warm", "cold"))
        if isinstance(own, int):
            peer: dict[str, Any] = {"beside": "a cold process", "of": cold} if isinstance(cold, int) else {}
            figure(f"{name}, warm, p50", own, "ms", bar=bar, **peer)


if __name__ == "__main__":
    main()
