"""Horovod through a cluster beside horovodrun: `python benchmarks/horovod.py [--rounds 5] [--steps 120]`.

One script (models/ranks/horovod_train.py), 2 ranks on one machine, by turns: the median time of a step of rank 0, and that of the
same network as a Trial with `distributed: {strategy: horovod}`. Needs `make horovod`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import MODEL, STEPS_SECONDS_MAX, Cluster, cluster_of, in_turn, step_seconds
from embedded_cluster import WAIT_SECONDS_MAX
from figures import parse

HOROVODRUN = Path(sys.executable).with_name("horovodrun")


def measure(rounds: int, count: int) -> dict[str, Any]:
    with cluster_of(2) as cluster:

        def through_cluster(entrypoint: str) -> float:
            cluster.steps.unlink(missing_ok=True)
            cluster.cli("exp", "wait", cluster.create(entrypoint, count, distributed={"strategy": "horovod"}))
            return step_seconds(cluster.lines())

        def through_horovodrun() -> float:
            cluster.steps.unlink(missing_ok=True)
            _horovodrun(cluster, count)
            return step_seconds(cluster.lines())

        runs: dict[str, Callable[[], float]] = {
            "script": lambda: through_cluster("horovod_train.py"),
            "horovodrun": through_horovodrun,
            "trial": lambda: through_cluster("model_def:RanksTrial"),
        }
        return in_turn(rounds, STEPS_SECONDS_MAX, runs, "horovodrun")


def _horovodrun(cluster: Cluster, count: int) -> None:
    subprocess.run(
        [str(HOROVODRUN), "-np", "2", "--gloo", sys.executable, "horovod_train.py"],
        env={**cluster.environment, "STEPS_FILE": str(cluster.steps), "STEPS": str(count)},
        cwd=MODEL,
        check=True,
        capture_output=True,
        timeout=WAIT_SECONDS_MAX,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    arguments = parse(parser, rounds=1, steps=4)
    if not HOROVODRUN.exists():
        sys.exit("Horovod is not installed: make horovod")
    print(json.dumps(measure(arguments.rounds, arguments.steps), indent=1))


if __name__ == "__main__":
    main()
