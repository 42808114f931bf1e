"""A search on a real cluster whose processes are killed.

    python benchmarks/search_kills.py [--trials 100] [--kills 10] [--seed 1] [--report FILE]

ASHA (promotion) on two CPU slots, a checkpoint at each rung. At seeded instants (so many events after the last one) one of the
victims gets SIGKILL: training processes most of all, then the agent, the services, the servers. At the end nothing may be missing
or doubled: every trial requested once and ended once, the rules of the record hold, the log's hash chain verifies, and each
decision taken again from the record is the recorded one (`exp replay --verify`). `--trials 2000 --kills 100` is the long run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from tenuto.cli.client import CliError
from tests.support.live_cluster import LiveCluster
from tests.support.record import broken_rules

MODEL = Path(__file__).with_name("models") / "trivial"
VICTIMS = (
    ["worker"] * 6 + ["agent"] * 2 + ["searcher", "scheduler", "launcher", "tracker", "gateway", "relay", "nats", "postgres"]
)
EVENTS_EACH_TRIAL = 12
"""About so many facts a trial leaves: the kills are spread over them."""
WAIT_SECONDS_MAX = 6 * 3600.0
POLL_SECONDS = 1.0
SAY_SECONDS = 15.0
ENDED = ("completed", "early_stopped", "failed", "canceled")
QUIET_SECONDS = 20.0
"""Nothing new for so long: look whether the search is over."""


def config(trials: int, seed: int) -> dict[str, Any]:
    return {
        "name": "kills",
        "entrypoint": "train.py",
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {
            "name": "asha",
            "metric": "loss",
            "max_length": {"batches": 64},
            "max_trials": trials,
            "max_concurrent_trials": 2,
            "divisor": 4,
            "max_rungs": 4,
        },
        "environment": {"variables": {"CHECKPOINTS": "1", "STEP_SECONDS": "0.005"}},
        "max_restarts": 20,
        "reproducibility": {"experiment_seed": seed},
    }


def run(cluster: LiveCluster, directory: Path, trials: int, kills: int, seed: int) -> dict[str, Any]:
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config(trials, seed)))
    rng = random.Random(seed)
    cluster.up()
    began = time.monotonic()
    experiment = str(cluster.json("exp", "create", path, MODEL)["id"])
    killed: Counter[str] = Counter()
    progress = Progress(cluster, experiment, trials, began)
    head, between = cluster.wait_events(0, 10), max(2, trials * EVENTS_EACH_TRIAL // (kills + 1))
    for number in range(kills):
        wanted, victim = head + rng.randint(between // 2, between), rng.choice(VICTIMS)
        while head < wanted and not progress.over():
            with contextlib.suppress(AssertionError):  # nothing new for some seconds: over, or being started again
                head = cluster.wait_events(head, wanted - head, seconds_max=QUIET_SECONDS)
        if head < wanted:
            break
        if victim != "worker":
            cluster.kill(victim)
        elif not _kill_worker(cluster):
            continue
        killed[victim] += 1
        say(f"{progress.sentence()}; kill {number + 1} of {kills}: {victim}")
    said = time.monotonic()
    while not progress.over():  # what was killed last may still be on its way up
        assert time.monotonic() - began < WAIT_SECONDS_MAX, "it does not end"
        time.sleep(POLL_SECONDS)
        if time.monotonic() - said >= SAY_SECONDS:
            say(progress.sentence())
            said = time.monotonic()
    seconds = time.monotonic() - began
    say(f"{progress.sentence()}; now every decision is taken again, and the log is verified")
    verdict = cluster.cli("exp", "replay", experiment, "--verify", check=False, seconds_max=WAIT_SECONDS_MAX)
    log = cluster.cli("log", "verify", check=False, seconds_max=WAIT_SECONDS_MAX)
    events = cluster.events()
    kinds = Counter(event.type for event in events)
    requested = Counter(event.data.trial_id for event in events if event.type == "TrialRequested")
    finished = Counter(event.data.trial_id for event in events if event.type == "TrialFinished")
    return {
        "trials": trials,
        "seconds": round(seconds, 1),
        "trials_per_second": round(trials / seconds, 2),
        "kills": dict(killed.most_common()),
        "state": progress.state,
        "requested_once": len(requested) == trials and set(requested.values()) == {1},
        "finished_once": finished == requested,
        "broken_rules": broken_rules(events)[:5],
        "replay_verified": verdict.returncode == 0,
        "replay": verdict.stdout.strip().splitlines()[-3:],
        "log_verified": log.returncode == 0,
        "events": len(events),
        "runs_lost": sum(event.type == "WorkersExited" and event.data.outcome == "lost" for event in events),
        "granted": kinds["AllocationGranted"],
        "extended": kinds["TrialExtended"],
    }


class Progress:
    """How far the search is, as far as the cluster can say so: what was killed may be on its way up."""

    def __init__(self, cluster: LiveCluster, experiment: str, trials: int, began: float) -> None:
        self.cluster, self.path, self.trials, self.began = cluster, f"/experiments/{experiment}", trials, began
        self.state, self.begun, self.ended = "", 0, 0

    def over(self) -> bool:
        with contextlib.suppress(CliError):
            view = self.cluster.client().get(self.path)
            self.state = view["state"]
            self.begun = sum(view["trials"].values())
            self.ended = sum(number for state, number in view["trials"].items() if state in ENDED)
        return self.state in ("completed", "failed", "canceled")

    def sentence(self) -> str:
        self.over()
        return f"{time.monotonic() - self.began:.0f} s: {self.begun:,} of {self.trials:,} trials have begun, {self.ended:,} ended"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _kill_worker(cluster: LiveCluster) -> bool:
    """One that was alive when it was killed; they live for a fraction of a second."""
    deadline = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        for process in cluster.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenuto-kills-") as name:
        Path(name).chmod(0o711)
        cluster = LiveCluster(Path(name) / "cluster")
        try:
            report = run(cluster, Path(name), arguments.trials, arguments.kills, arguments.seed)
        finally:
            cluster.down()
    text = json.dumps(report, indent=1)
    if arguments.report is not None:
        arguments.report.write_text(text)
    print(text)
    good = report["requested_once"] and report["finished_once"] and not report["broken_rules"]
    sys.exit(0 if good and report["replay_verified"] and report["log_verified"] else 1)


if __name__ == "__main__":
    main()
