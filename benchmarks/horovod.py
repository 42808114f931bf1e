"""Horovod through a cluster beside horovodrun: `python benchmarks/horovod.py [--rounds 5] [--steps 300]`.

One script (models/ranks/horovod_train.py), 2 ranks on one machine, by turns: the median time of a step of rank 0, and that of the
same network as a Trial with `distributed: {strategy: horovod}`. Needs `make horovod`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from distributed import MODEL, WAIT_SECONDS_MAX, Cluster, cluster_of, step_seconds

HOROVODRUN = Path(sys.executable).with_name("horovodrun")
KINDS = {"script": "horovod_train.py", "horovodrun": "", "trial": "model_def:RanksTrial"}


def measure(rounds: int, count: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with cluster_of(2) as cluster:
        for number in range(rounds):
            for kind in sorted(KINDS, reverse=bool(number % 2)):
                cluster.steps.unlink(missing_ok=True)
                if KINDS[kind]:
                    experiment = cluster.create(KINDS[kind], count, distributed={"strategy": "horovod"})
                    cluster.cli("exp", "wait", experiment)
                else:
                    _horovodrun(cluster, count)
                found[kind].append(step_seconds(cluster.lines()))
    return {
        "milliseconds a step": {kind: round(1000 * statistics.median(seconds), 2) for kind, seconds in found.items()},
        "ratio to horovodrun, median of rounds": {
            kind: round(statistics.median(a / b for a, b in zip(found[kind], found["horovodrun"], strict=True)), 3)
            for kind in ("script", "trial")
        },
        "rounds": {kind: [round(1000 * seconds, 2) for seconds in many] for kind, many in found.items()},
    }


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
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    if not HOROVODRUN.exists():
        sys.exit("Horovod is not installed: make horovod")
    print(json.dumps(measure(arguments.rounds, arguments.steps), indent=1))


if __name__ == "__main__":
    main()
