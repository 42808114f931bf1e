"""Shared parts of the benchmarks that kill processes: the running search, a worker to kill, the record at the end."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from embedded_cluster import CLUSTER_VARIABLE, model_with
from figures import figure

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.live_cluster import LiveCluster
from tests.support.record import broken_rules

MODEL = Path(__file__).with_name("models") / "trivial"
RECORD_SECONDS_MAX = 6 * 3600.0
"""To take every decision of a long run again, or to verify its log."""


def model(directory: Path, step_seconds: float) -> Path:
    return model_with({"CHECKPOINTS": "1", "STEP_SECONDS": str(step_seconds)}, MODEL, directory)


def search(seed: int, trials: int, max_restarts: int) -> dict[str, Any]:
    """ASHA (promotion) with two trials at once and, with `model`, a checkpoint at each rung."""
    return {
        "name": "search",
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
        "max_restarts": max_restarts,
        "reproducibility": {"experiment_seed": seed},
    }


def is_shared() -> bool:
    """True if the cluster runs already, with two agents of two slots, and goes on afterwards."""
    return CLUSTER_VARIABLE in os.environ


def kill_worker(cluster: LiveCluster, chance: random.Random, seconds_max: float = 0.0) -> bool:
    """Kills a live worker; False if none was found within `seconds_max`. Workers may live for only a fraction of a second."""
    deadline = time.monotonic() + seconds_max
    while True:
        found = sorted(cluster.workers(), key=lambda process: process.pid)
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                chance.choice(found).kill()
                return True
        if time.monotonic() >= deadline:
            return False


def on_record(cluster: LiveCluster, experiments: Iterable[int]) -> dict[str, Any]:
    """Violations in the record (missing, doubled or changed events, decisions that differ from the rules), and its size. Trials
    of other experiments are not asked for."""
    experiments = list(experiments)
    replays = {
        number: cluster.cli("exp", "replay", str(number), "--verify", check=False, seconds_max=RECORD_SECONDS_MAX).returncode
        for number in experiments
    }
    verified = cluster.cli("log", "verify", check=False, seconds_max=RECORD_SECONDS_MAX)
    events = cluster.events()
    kinds = Counter(event.type for event in events)
    requested = Counter(
        event.data.trial_id for event in events if event.type == "TrialRequested" and event.data.experiment_id in experiments
    )
    finished = Counter(event.data.trial_id for event in events if event.type == "TrialFinished")
    canceled = {event.data.experiment_id for event in events if event.type == "ExperimentCanceled"}
    return {
        "trials": len(requested),
        "requested_twice": [trial for trial, count in requested.items() if count > 1],
        "unfinished_trials": [
            trial for trial in requested if not finished[trial] and int(trial.split("-")[0]) not in canceled
        ],
        "finished_twice": [trial for trial, count in finished.items() if count > 1],
        "failed": [
            f"{event.stream}: {event.data.error}"
            for event in events
            if event.type == "ExperimentFailed" or (event.type == "TrialFailed" and event.data.final)
        ],
        "exits_of_failed": {
            failed.data.trial_id: [
                f"{item.time_us // 10**6}: {item.data.outcome}, code {item.data.exit_code}, {(item.data.error or '')[:120]}"
                for item in events
                if item.type == "WorkersExited" and item.data.trial_id == failed.data.trial_id
            ]
            for failed in events
            if failed.type == "TrialFailed" and failed.data.final
        },
        "broken_rules": broken_rules(events)[:5],
        "replays_that_differ": [number for number, code in replays.items() if code],
        "log": verified.stdout.strip().splitlines()[:1],
        "log_verified": verified.returncode == 0,
        "events": len(events),
        "granted": kinds["AllocationGranted"],
        "extended": kinds["TrialExtended"],
        "validations": kinds["ValidationReported"],
        "checkpoints": kinds["CheckpointSaved"],
        "runs_lost": sum(event.type == "WorkersExited" and event.data.outcome == "lost" for event in events),
    }  # fmt: skip


WRONG = ("requested_twice", "unfinished_trials", "finished_twice", "failed", "broken_rules", "replays_that_differ")


def is_sound(report: dict[str, Any]) -> bool:
    return not any(report[name] for name in WRONG) and report["log_verified"]


def parser(description: str, kills: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--kills", type=int, default=kills)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--report", type=Path)
    return made


def measured(run: Callable[[LiveCluster, Path], dict[str, Any]], file: Path | None) -> dict[str, Any]:
    """Runs it on a cluster of its own, prints its report, and writes it into `file`."""
    with tempfile.TemporaryDirectory(prefix="tenuto-kills-") as name:
        Path(name).chmod(0o711)
        directory = Path(os.environ[CLUSTER_VARIABLE]) if is_shared() else Path(name) / "cluster"
        cluster = LiveCluster(directory, forked_up=is_shared())
        try:
            report = run(cluster, Path(name))
        except BaseException:
            print(cluster.cli("status", check=False).stdout, file=sys.stderr)
            raise
        finally:
            if not is_shared():
                cluster.down()
    wrong = sum(len(report[name]) for name in WRONG) + (not report["log_verified"])
    figure("violations in the record", wrong, f"of {report['events']:,} events", bar="none")
    text = json.dumps(report, indent=1)
    if file is not None:
        file.write_text(text)
    print(text)
    return report
