"""Cost of several ranks: `python benchmarks/distributed.py [--only steps,start,recovery,gangs]`.

Real clusters of agents with CPU slots, PyTorch, gloo. What was done is said on stderr as it goes, the figures on stdout.

steps      one data-parallel script, 2 ranks, by turns through a cluster and through torchrun: the median time of a step, and
           that of the same network as a Trial. The ratio is the median over rounds, each of which runs all three; after
           STEPS_SECONDS_MAX no further round is begun
start      a gang of 2, warm: from the grant of its slots to the beginning of its first step
recovery   kill -9 of a rank: until the gang's end is recorded, and until its trial makes a step again
gangs      20 gangs of 2 from three users at once on 4 agents with 2 slots each: all end, and no process, port or shared memory
           is left
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embedded_cluster import WAIT_SECONDS_MAX, EmbeddedCluster, directory_for_cluster, up
from figures import figure, parse

from tenuto.client import Client, Target
from tenuto.schemas.envelope import decode_event

MODEL = Path(__file__).with_name("models") / "ranks"
STEPS_SECONDS_MAX = 180.0
"""A busy machine makes fewer rounds, and no longer ones."""
SKIPPED_STEPS = 20
"""Of each rank: they load and warm up."""
SIZES = ("RECORDS", "PAUSE_SECONDS")
"""Variables of the model that small forms set."""
Lines = list[tuple[str, int, int, float]]
"""(allocation, rank, step, seconds since the epoch)"""


class Cluster(EmbeddedCluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, MODEL, {"OMP_NUM_THREADS": "1"})
        self._after = 0
        """Position of the log's end when this benchmark began."""

    def begin(self) -> None:
        self._after = max((event.position for event in self._events()), default=0)

    def create(self, entrypoint: str, batches: int, *, name: str = "ranks", user: str = "ada", **more: Any) -> str:
        return self.submit(
            {
                "name": name,
                "entrypoint": entrypoint,
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": batches}},
                "resources": {"slots_per_trial": 2},
                "variables": {"STEPS": str(batches), **{name: os.environ[name] for name in SIZES if name in os.environ}},
                **more,
            },
            user=user,
        )

    def events(self, kind: str) -> list[Any]:
        return [event for event in self._events() if event.type == kind]

    def _events(self) -> Iterator[Any]:
        yield from map(decode_event, Client(Target.find(str(self.root), None)).event_bodies(self._after))

    def lines(self) -> Lines:
        return [(allocation, int(rank), int(step), float(at)) for allocation, rank, step, at in self.words()]

    def wait_lines(self, enough: Callable[[Lines], bool]) -> Lines:
        return self.wait(self.lines, enough, "the steps that were waited for")


@contextlib.contextmanager
def cluster_of(cpu_slots: int, agents: int = 1) -> Iterator[Cluster]:
    with directory_for_cluster() as directory:
        cluster = Cluster(directory)
        with up(cluster, cpu_slots, agents):
            cluster.begin()
            yield cluster


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def in_turn(rounds: int, seconds_max: float, runs: dict[str, Callable[[], float]], peer: str) -> dict[str, Any]:
    """Each round runs all of them, every other one backwards, so that what the machine does besides meets all alike. Each run
    returns the seconds of a step."""
    found: dict[str, list[float]] = {kind: [] for kind in runs}
    began, longest, number = time.monotonic(), 0.0, 0
    for number in range(1, rounds + 1):
        round_began = time.monotonic()
        if number > 1 and round_began - began + longest > seconds_max:
            number -= 1
            break
        for kind in list(runs) if number % 2 else list(reversed(runs)):
            found[kind].append(runs[kind]())
            say(f"round {number} of {rounds}: {kind} {1000 * found[kind][-1]:.2f} ms a step")
        longest = max(longest, time.monotonic() - round_began)
    medians = {kind: 1000 * statistics.median(seconds) for kind, seconds in found.items()}
    ratios = {
        kind: statistics.median(ours / theirs for ours, theirs in zip(seconds, found[peer], strict=True))
        for kind, seconds in found.items()
        if kind != peer
    }
    for kind, ratio in ratios.items():
        figure(f"step of a {kind}", medians[kind], "ms", beside=peer, of=medians[peer], ratio=ratio, bar="ratio at most 1.05")
    return {
        "milliseconds a step": {kind: round(median, 2) for kind, median in medians.items()},
        f"ratio to {peer}, median of rounds": {kind: round(ratio, 3) for kind, ratio in ratios.items()},
        "rounds": number,
        "every round, milliseconds": {kind: [round(1000 * second, 2) for second in seconds] for kind, seconds in found.items()},
    }


def step_seconds(lines: Lines) -> float:
    """The median over rank 0's steps, without the first ones where there are many."""
    count = 1 + max(step for _, rank, step, _ in lines if rank == 0)
    times = [at for _, rank, step, at in lines if rank == 0 and step >= min(SKIPPED_STEPS, count // 2)]
    return statistics.median(after - before for before, after in itertools.pairwise(times))


def steps(rounds: int, count: int) -> dict[str, Any]:
    with cluster_of(2) as cluster:

        def through_cluster(entrypoint: str) -> float:
            cluster.steps.unlink(missing_ok=True)
            cluster.cli("exp", "wait", cluster.create(entrypoint, count))
            return step_seconds(cluster.lines())

        def through_torchrun() -> float:
            cluster.steps.unlink(missing_ok=True)
            _torchrun(cluster, count)
            return step_seconds(cluster.lines())

        runs: dict[str, Callable[[], float]] = {
            "script": lambda: through_cluster("train.py"),
            "torchrun": through_torchrun,
            "trial": lambda: through_cluster("model_def:RanksTrial"),
        }
        return in_turn(rounds, STEPS_SECONDS_MAX, runs, "torchrun")


def _torchrun(cluster: Cluster, count: int) -> None:
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        env={**cluster.environment, "STEPS_FILE": str(cluster.steps), "STEPS": str(count)},
        cwd=MODEL,
        check=True,
        capture_output=True,
        timeout=WAIT_SECONDS_MAX,
    )


def start(rounds: int) -> dict[str, Any]:
    with cluster_of(2) as cluster:
        if not cluster.shared:  # the first one finds the agent still warming
            cluster.cli("exp", "wait", cluster.create("model_def:RanksTrial", 2))
            cluster.steps.unlink()
        for number in range(rounds):
            cluster.cli("exp", "wait", cluster.create("model_def:RanksTrial", 2))
            say(f"start {number + 1} of {rounds}")
        lines = cluster.lines()
        granted = _times(cluster, "AllocationGranted")
        gaps = []
        for allocation in sorted({line[0] for line in lines}):
            first = max(at for name, _, step, at in lines if name == allocation and step == 0)  # the last rank to begin
            gaps.append(first - granted[allocation])
    figure("start of a gang, p50", statistics.median(gaps), "s", bar="at most 3 s")
    return _figures(gaps)


def recovery(kills: int, between: int) -> dict[str, Any]:
    """`between`: steps from a start to the kill."""
    noticed, again, lost = [], [], []
    with cluster_of(2) as cluster:
        experiment = cluster.create("model_def:RanksTrial", 100_000, min_checkpoint_period={"batches": 20})
        allocation = ""
        for number in range(kills):
            lines = cluster.wait_lines(lambda lines, before=allocation: any(line[0] != before for line in lines))
            allocation = lines[-1][0]
            cluster.wait_lines(
                lambda lines, name=allocation: len([line for line in lines if line[0] == name and line[1] == 0]) >= between
            )
            cluster.leader(allocation).children()[0].children()[1].kill()  # its child is the supervisor; of that, rank 1
            killed = time.time()
            reached = max(step for name, _, step, _ in cluster.lines() if name == allocation)
            lines = cluster.wait_lines(lambda lines, name=allocation: lines[-1][0] != name)
            new = lines[-1][0]
            lines = cluster.wait_lines(lambda lines, name=new: {line[1] for line in lines if line[0] == name} == {0, 1})
            begins = [(at, step) for name, _, step, at in lines if name == new]
            again.append(max(at for at, step in begins if step == begins[0][1]) - killed)
            lost.append(reached - begins[0][1])
            noticed.append(_times(cluster, "WorkersExited")[allocation] - killed)
            say(f"kill {number + 1} of {kills}: noticed in {noticed[-1]:.2f} s, training again in {again[-1]:.2f} s")
        cluster.cli("exp", "kill", experiment)
    figure("recovery of a gang, p50", statistics.median(again), "s", bar="at most 8 s")
    return {"noticed": _figures(noticed), "training again": _figures(again), "steps repeated": lost, "a checkpoint every": 20}


def gangs(count: int) -> dict[str, Any]:
    shared_before = _shared_memory()
    with cluster_of(2, agents=4) as cluster:
        time.sleep(3.0)  # they import the framework
        began = time.time()
        experiments = [
            cluster.create(
                "model_def:RanksTrial",
                10,
                name=f"gang-{number}",
                user=("ada", "bob", "cyd")[number % 3],
                resources={"slots_per_trial": 2, "placement": ("pack", "spread")[number % 2]},
            )
            for number in range(count)
        ]
        for number, experiment in enumerate(experiments, 1):
            cluster.cli("exp", "wait", experiment)
            say(f"gang {number} of {count} has ended")
        seconds = time.time() - began
        states = [json.loads(cluster.cli("exp", "describe", experiment, "--json"))["state"] for experiment in experiments]
        restarts = sum(event.data.outcome != "finished" for event in cluster.events("WorkersExited"))
        spread = {event.data.allocation_id: len(event.data.slots) for event in cluster.events("AllocationGranted")}
        time.sleep(1.0)
        left = len(cluster.marked())
    completed = states.count("completed")
    figure("gangs at once, completed", completed, "gangs", bar=f"all {count}")
    return {
        "gangs": count,
        "completed": completed,
        "over two agents": sum(number > 1 for number in spread.values()),
        "runs that did not finish": restarts,
        "seconds": round(seconds, 1),
        "processes left": left,
        "shared memory left": len(_shared_memory() - shared_before),
    }


def _shared_memory() -> set[str]:
    """Of PyTorch and its libraries; PostgreSQL, of this cluster or others, has some of its own."""
    names = {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()
    return {name for name in names if not name.startswith("PostgreSQL")}


def _times(cluster: Cluster, kind: str) -> dict[str, float]:
    """Seconds since the epoch, by allocation."""
    return {event.data.allocation_id: event.time_us / 1e6 for event in cluster.events(kind)}


def _figures(seconds: list[float]) -> dict[str, float]:
    return {
        "p50_seconds": round(statistics.median(seconds), 2),
        "max_seconds": round(max(seconds), 2),
        "count": len(seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="steps,start,recovery,gangs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--gangs", type=int, default=20)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--kill-steps", type=int, default=30, help="from a start to the kill")
    parser.add_argument("--records", type=int, default=4096, help="of the model's data")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="before each step")
    sizes = {"records": 256, "pause_seconds": 0.02}
    arguments = parse(parser, rounds=1, steps=4, kills=1, gangs=1, starts=1, kill_steps=2, **sizes)
    os.environ |= {"RECORDS": str(arguments.records), "PAUSE_SECONDS": str(arguments.pause_seconds)}
    parts = {
        "steps": lambda: steps(arguments.rounds, arguments.steps),
        "start": lambda: start(arguments.starts),
        "recovery": lambda: recovery(arguments.kills, arguments.kill_steps),
        "gangs": lambda: gangs(arguments.gangs),
    }
    for name in arguments.only.split(","):
        print(json.dumps({name: parts[name](), "load average": os.getloadavg()[0]}, indent=2), flush=True)


if __name__ == "__main__":
    main()
