"""Cost of a trial in a container: `python benchmarks/containers.py [--trials 30] [--rounds 8]`. Needs root and dockerd.

A real cluster with one CPU slot and a Docker daemon of its own, PyTorch; processes and containers take turns in the same run.

turnover   from the end of one trial's last training step to the beginning of the next trial's first one, on the same slot, within
           one experiment: workers forked from a warm process beside workers forked in a warm container
start      of the first trial of an experiment: from its grant on record to its first training step, both warm
cold       the same for a container without warm ones, beside `docker run` of the same image, from the command to its first step:
           a program that imports what our worker imports, and makes the same step

The image has no files: its containers mount this machine's Python (tests/support/docker_daemon.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embedded_cluster import EmbeddedCluster, directory_for_cluster, model_with, up
from figures import figure, parse

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support import docker_daemon
from tests.support.docker_daemon import IMAGE, Daemon

MODEL = Path(__file__).with_name("models") / "turnover"
READY_PROCESSES = 6
"""Of a warm container: its first process, the one that forks, and two pairs that stand by."""
REHEARSAL_SECONDS = 1.0
"""Time for these pairs to rehearse, in which nothing else runs."""
PEERS = {"start": ("a process, warm", 1.5), "turnover": ("a process, warm", 1.5), "cold": ("docker run", 1.3)}
"""What each is measured beside, and the ratio that it is to keep."""
BARE = """
import os, sys
sys.path.append(os.environ["PACKAGES"])
import tenuto.workers.harness.main, tenuto.workers.pytorch.trainer, torch, torch._dynamo
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("begins", flush=True)
torch.nn.functional.mse_loss(model(torch.ones(8, 4)), torch.ones(8, 1)).backward()
optimizer.step()
"""


class Cluster(EmbeddedCluster):
    def __init__(self, directory: Path, daemon: Daemon, is_warm: bool) -> None:
        self.scratch = directory / "scratch"
        self.scratch.mkdir()
        self.scratch.chmod(0o777)
        self.daemon = daemon
        super().__init__(
            directory,
            MODEL,
            {
                "TENUTO_DOCKER_URL": daemon.url,
                "TENUTO_DOCKER_MOUNTS": ",".join([*docker_daemon.mounts(), f"{self.scratch}:rw"]),
                "TENUTO_DOCKER_NETWORK": "none",
                "TENUTO_DOCKER_WARM_CONTAINERS_MAX": "4" if is_warm else "0",
            },
            own=True,
        )
        self.steps = self.scratch / "steps.txt"
        self.with_steps = model_with({"STEPS_FILE": str(self.steps)}, MODEL, directory)
        self.known: set[str] = set()

    def train(self, kind: str, trials: int = 1) -> tuple[str, list[tuple[str, str, float]]]:
        """Trains an experiment to its end: its id, and what its steps said."""
        if kind == "container":
            self.known.update(self._warm())
        self.steps.write_text("")
        self.steps.chmod(0o666)
        environment: dict[str, Any] = {}
        if kind == "container":
            environment |= docker_daemon.environment()
            environment["mounts"] = [*environment["mounts"], {"source": str(self.scratch), "writable": True}]
        config = {
            "name": kind,
            "entrypoint": "model_def:TurnoverTrial",
            "hyperparameters": {"learning_rate": {"type": "log", "minval": -4, "maxval": -1}},
            "searcher": {"name": "random", "metric": "loss", "max_trials": trials, "max_length": {"batches": 8}},
            "min_checkpoint_period": {"batches": 20},
            "environment": environment,
        }
        path = self.directory / "config.json"
        path.write_text(json.dumps(config))
        experiment = str(json.loads(self.cli("exp", "create", str(path), str(self.with_steps), "--json"))["id"])
        self.cli("exp", "wait", experiment)
        return experiment, [(allocation, what, float(at)) for allocation, what, at, *_ in self.words()]

    def granted(self, experiment: str) -> float:
        text = self.cli("event", "tail", "--from", "1", "--experiment", experiment, "--json", "--no-follow")
        events = map(json.loads, text.splitlines())
        return float(next(event["time_us"] for event in events if event["type"] == "AllocationGranted")) / 1e6

    def start_seconds(self, kind: str) -> float:
        experiment, lines = self.train(kind)
        return lines[0][2] - self.granted(experiment)

    def wait_fresh(self) -> None:
        """Until there is a warm container that was not there when the last experiment began, so no run was in it yet."""
        self.wait(self._fresh, bool, "a warm container")
        time.sleep(REHEARSAL_SECONDS)

    def _fresh(self) -> list[str]:
        client = self.daemon.client
        found = [container for container in self._warm() if container not in self.known]
        with contextlib.suppress(OSError):
            return [container for container in found if len(client.top(container)["Processes"]) == READY_PROCESSES]
        return []

    def _warm(self) -> list[str]:
        return [item["Id"] for item in self.daemon.client.containers(filters={"label": "tenuto.warm"})]

    def containers_made(self, since: float) -> int:
        events = self.daemon.client.events(
            since=since, until=time.time(), filters={"type": "container", "event": "create"}, decode=True
        )
        return sum(1 for _ in events)


def gaps_of(lines: list[tuple[str, str, float]]) -> list[float]:
    return [after[2] - before[2] for before, after in itertools.pairwise(lines) if before[0] != after[0]]


def bare_seconds(daemon: Daemon, packages: Path) -> float:
    """`docker run` of the image, from the command to its first step."""
    mounts = itertools.chain.from_iterable(
        ("--mount", f"type=bind,source={path},target={path},readonly") for path in [*docker_daemon.mounts(), str(packages)]
    )
    environment = {"PYTHONPATH": str(packages / "own"), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment["PACKAGES"] = str(next(packages.glob("packages-*")))
    variables = itertools.chain.from_iterable(("--env", f"{name}={value}") for name, value in environment.items())
    command = ["docker", "-H", daemon.url, "run", "--rm", "--network=none", f"--user={docker_daemon.nobody()}"]
    begun = time.monotonic()
    process = subprocess.Popen([*command, *mounts, *variables, IMAGE, "python3", "-P", "-c", BARE], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.readline()
    seconds = time.monotonic() - begun
    if process.wait() or said != b"begins\n":
        raise RuntimeError(f"docker run said {said!r}, exit code {process.returncode}")
    return seconds


def summary(name: str, mine: list[float], peer: list[float]) -> dict[str, object]:
    def p90(seconds: list[float]) -> float:
        return statistics.quantiles(seconds, n=10)[-1] if len(seconds) > 1 else seconds[0]

    own, other = statistics.median(mine), statistics.median(peer)
    beside, most = PEERS[name]
    figure(f"{name} of a container, p50", own * 1e3, "ms", beside=beside, of=other * 1e3, bar=f"ratio at most {most}")
    return {
        f"{name}_container_p50_ms": round(statistics.median(mine) * 1e3),
        f"{name}_peer_p50_ms": round(statistics.median(peer) * 1e3),
        f"{name}_ratio_p50": round(statistics.median(mine) / statistics.median(peer), 2),
        f"{name}_container_p90_ms": round(p90(mine) * 1e3),
        f"{name}_peer_p90_ms": round(p90(peer) * 1e3),
        f"{name}_ratio_p90": round(p90(mine) / p90(peer), 2),
    }


@contextlib.contextmanager
def cluster_of(daemon: Daemon, is_warm: bool) -> Iterator[Cluster]:
    with directory_for_cluster() as directory:
        cluster = Cluster(directory, daemon, is_warm)
        with up(cluster, 1):
            yield cluster


def warm(daemon: Daemon, rounds: int, experiments: int, trials: int) -> dict[str, object]:
    report: dict[str, object] = {}
    with cluster_of(daemon, True) as cluster:
        for kind in ("process", "container") if rounds else ("container",):
            cluster.train(kind)  # the first of its kind is cold
        starts: dict[str, list[float]] = {"process": [], "container": []}
        gaps: dict[str, list[float]] = {"process": [], "container": []}
        for _ in range(rounds):
            for kind, seconds in starts.items():
                cluster.wait_fresh()
                seconds.append(cluster.start_seconds(kind))
        for _ in range(experiments):
            for kind, found in gaps.items():
                cluster.wait_fresh()
                begun = time.time()
                experiment, lines = cluster.train(kind, trials)
                found += gaps_of(lines)
                if not rounds:
                    starts[kind].append(lines[0][2] - cluster.granted(experiment))
                if kind == "container":
                    report["containers_made_during_turnover"] = cluster.containers_made(begun)
    report |= summary("start", starts["container"], starts["process"])
    return report | summary("turnover", gaps["container"], gaps["process"])


def cold(daemon: Daemon, rounds: int) -> dict[str, object]:
    mine: list[float] = []
    bare: list[float] = []
    with cluster_of(daemon, False) as cluster:
        cluster.train("container")
        packages = next(path for path in cluster.root.rglob("packages/*") if path.is_dir())
        os.sync()
        for _ in range(rounds):
            mine.append(cluster.start_seconds("container"))
            bare.append(bare_seconds(daemon, packages))
    return summary("cold", mine, bare)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=30, help="of each experiment whose turnover is measured")
    parser.add_argument("--rounds", type=int, default=8, help="of starts; 0: those of the experiments whose turnover is measured")
    parser.add_argument("--experiments", type=int, default=3, help="of each kind, whose turnover is measured")
    parser.add_argument("--kinds", nargs="+", choices=("warm", "cold"), default=["warm", "cold"], help="of containers")
    arguments = parse(parser, trials=2, rounds=0, experiments=1, kinds=["warm"])
    report: dict[str, object] = {}
    if reason := docker_daemon.why_not():
        print(f"not measured: {reason}")  # `make bench` goes on
        return
    with docker_daemon.daemon() as daemon:
        if isinstance(daemon, str):
            print(f"not measured: {daemon}")
            return
        if "warm" in arguments.kinds:
            report |= warm(daemon, arguments.rounds, arguments.experiments, arguments.trials)
            print(json.dumps(report, indent=1), file=sys.stderr)  # what follows takes minutes
        if "cold" in arguments.kinds:
            report |= cold(daemon, arguments.rounds)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
