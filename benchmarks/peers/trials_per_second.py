"""Trials per second of a search whose training costs nothing, beside its peers, turn by turn.

    python benchmarks/peers/trials_per_second.py [--peers /tmp/peers/bin/python] [--trials 100] [--slow-trials 10]

Two trials at once, 1, 4, 16, 64 steps, ASHA. Tenuto: a real cluster on this machine, Core API script, in both forms, trials in
processes of their own, every decision and report committed. Ray Tune with and without its reuse of actors; Optuna with two
processes and PostgreSQL (the server that Tenuto brings, same settings); Syne Tune's local back end. `--slow-trials` bounds those
that start a process for each trial (Ray Tune without reuse, Syne Tune); `--trials 1000 --slow-trials 100` is the long run.
Without `--peers` only Tenuto runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))
from embedded_cluster import CLUSTER_VARIABLE, model_with
from figures import FILE_VARIABLE, figure, parse

from tenuto.embedded.postgres import PostgresServer
from tests.support.live_cluster import LiveCluster

MODEL = Path(__file__).parents[1] / "models" / "trivial"
WAIT_SECONDS_MAX = 3 * 3600.0
PERSISTS = {
    "tenuto asha": "each decision and report",
    "tenuto asha_stopping": "each decision and report",
    "ray-reuse": "a JSON file now and then; scheduler state is not in it",
    "ray": "a JSON file now and then; scheduler state is not in it",
    "optuna": "trials and reports",
    "syne-tune": "results, now and then",
}


def tenuto(trials: int, mode: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tenuto-rate-") as name:
        Path(name).chmod(0o711)
        running = os.environ.get(CLUSTER_VARIABLE)
        cluster, config = LiveCluster(Path(running or Path(name) / "cluster"), forked_up=False), Path(name) / "config.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "name": "rate",
                    "entrypoint": "train.py",
                    "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
                    "searcher": {
                        "name": "asha",
                        "mode": mode,
                        "metric": "loss",
                        "max_length": {"batches": 64},
                        "max_trials": trials,
                        "max_concurrent_trials": 2,
                        "divisor": 4,
                        "max_rungs": 4,
                    },
                }
            )
        )
        model = model_with({"CHECKPOINTS": "1" if mode == "promotion" else "0"}, MODEL, Path(name))
        began = time.monotonic()
        try:
            if not running:
                cluster.up()
            ready = time.monotonic()
            experiment = str(cluster.json("exp", "create", config, model)["id"])
            cluster.cli("exp", "wait", experiment, seconds_max=WAIT_SECONDS_MAX)
            ended = time.monotonic()
        finally:
            if not running:
                cluster.down()
        return {"seconds": ended - ready, "start_seconds": ready - began}


def optuna(peers: str, trials: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tenuto-rate-") as name:
        Path(name).chmod(0o711)
        server = PostgresServer(Path(name) / "postgres")
        asyncio.run(server.start())
        try:
            return peer(peers, "optuna", "--trials", trials, "--url", server.owner_url)
        finally:
            asyncio.run(server.stop())


def peer(peers: str, *arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [peers, str(Path(__file__).with_name("rate_peers.py")), *map(str, arguments)],
        env={name: value for name, value in os.environ.items() if name != FILE_VARIABLE},  # the figures are told here
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} left with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", help="Python of the environment of requirements.txt")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--slow-trials", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(PERSISTS), default=list(PERSISTS))
    arguments = parse(parser, trials=2, slow_trials=2, only=["tenuto asha"])
    rates: dict[str, float] = {}
    print("| | trials | trials/s | before the search | what is on disk meanwhile |\n|---|---:|---:|---:|---|", flush=True)
    for name in [name for name in arguments.only if arguments.peers or name.startswith("tenuto")]:
        trials = min(arguments.trials, arguments.slow_trials) if name in ("ray", "syne-tune") else arguments.trials
        match name:
            case "tenuto asha":
                found = tenuto(trials, "promotion")
            case "tenuto asha_stopping":
                found = tenuto(trials, "stopping")
            case "optuna":
                found = optuna(arguments.peers, trials)
            case _:
                found = peer(arguments.peers, name, "--trials", trials)
        rates[name], start = trials / found["seconds"], found["start_seconds"]
        rate = rates[name]
        if name.startswith("tenuto"):
            figure(f"trials, {name}", rate, "/s")
        elif "tenuto asha_stopping" in rates:
            figure("trials, tenuto asha_stopping", rates["tenuto asha_stopping"], "/s", beside=name, of=rate)
        print(f"| {name} | {trials:,} | {rate:.2f} | {start:.1f} s | {PERSISTS[name]} |", flush=True)


if __name__ == "__main__":
    main()
