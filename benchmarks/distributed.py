"""What several ranks cost: `python benchmarks/distributed.py [--only steps,start,recovery,gangs]`.

Real clusters of agents with CPU slots, PyTorch, gloo.

steps      one data-parallel script, 2 ranks, by turns through a cluster and through torchrun: the median time of a step, and
           that of the same network as a Trial
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
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml

from tenuto.cli.client import Client, Target
from tenuto.schemas.envelope import decode_event

MODEL = Path(__file__).with_name("models") / "ranks"
TENUTO = Path(sys.executable).with_name("tenuto")
WAIT_SECONDS_MAX = 280.0
SKIPPED_STEPS = 20
"""Of each rank: they load and warm up."""
Lines = list[tuple[str, int, int, float]]
"""(allocation, rank, step, seconds since the epoch)"""


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "cluster"
        self.steps = directory / "steps.txt"
        self.environment = {**os.environ, "TENUTO_DATA_DIRECTORY": str(self.root), "OMP_NUM_THREADS": "1"}

    def cli(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [str(TENUTO), *arguments],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr or done.stdout)
        return done.stdout

    def create(self, entrypoint: str, batches: int, *, name: str = "ranks", user: str = "ada", **more: Any) -> str:
        config = {
            "name": name,
            "entrypoint": entrypoint,
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": batches}},
            "resources": {"slots_per_trial": 2},
            "environment": {"variables": {"STEPS_FILE": str(self.steps), "STEPS": str(batches)}},
            **more,
        }
        path = self.directory / f"config-{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        return str(json.loads(self.cli("exp", "create", str(path), str(MODEL), "--json", USER=user, LOGNAME=user))["id"])

    def events(self, kind: str) -> list[Any]:
        client = Client(Target.find(str(self.root), None))
        return [event for body in client.events(0) if (event := decode_event(body)).type == kind]

    def lines(self) -> Lines:
        if not self.steps.exists():
            return []
        found = []
        for line in self.steps.read_text().splitlines():
            allocation, rank, step, at = line.split()
            found.append((allocation, int(rank), int(step), float(at)))
        return found

    def wait_lines(self, wanted: Any) -> Lines:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not wanted(lines := self.lines()):
            if time.monotonic() > deadline:
                raise TimeoutError("the steps that were waited for did not come")
            time.sleep(0.02)
        return lines

    @contextlib.contextmanager
    def another_agent(self, name: str, cpu_slots: int) -> Iterator[None]:
        """As on another machine: with a directory of its own, and the shared one."""
        agent = json.loads((self.root / "cluster.json").read_text())["processes"]["agent"]["pid"]
        environment = {
            **psutil.Process(agent).environ(),
            "TENUTO_AGENT_ID": name,
            "TENUTO_DATA_DIRECTORY": str(self.directory / name),
            "TENUTO_CPU_SLOTS": str(cpu_slots),
        }
        with (self.directory / f"{name}.log").open("w") as log:
            process = subprocess.Popen([sys.executable, "-m", "tenuto.workers.agent"], env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def cluster_of(cpu_slots: int) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as name:
        Path(name).chmod(0o711)
        cluster = Cluster(Path(name))
        cluster.cli("up", "--detach", "--cpu-slots", str(cpu_slots))
        try:
            yield cluster
        finally:
            with contextlib.suppress(RuntimeError):
                cluster.cli("down")


def step_seconds(lines: Lines) -> float:
    """The median over rank 0's steps."""
    times = [at for _, rank, step, at in lines if rank == 0 and step >= SKIPPED_STEPS]
    return statistics.median(after - before for before, after in itertools.pairwise(times))


def steps(rounds: int, count: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {"torchrun": [], "script": [], "trial": []}
    with cluster_of(2) as cluster:
        for _ in range(rounds):
            for kind, entrypoint in (("script", "train.py"), ("torchrun", ""), ("trial", "model_def:RanksTrial")):
                cluster.steps.unlink(missing_ok=True)
                if entrypoint:
                    cluster.cli("exp", "wait", cluster.create(entrypoint, count))
                else:
                    _torchrun(cluster, count)
                found[kind].append(step_seconds(cluster.lines()))
    medians = {kind: statistics.median(seconds) for kind, seconds in found.items()}
    ratios = {
        kind: statistics.median(ours / theirs for ours, theirs in zip(found[kind], found["torchrun"], strict=True))
        for kind in ("script", "trial")
    }
    return {
        "milliseconds a step": {kind: round(1000 * seconds, 2) for kind, seconds in medians.items()},
        "ratio to torchrun, median of rounds": {kind: round(ratio, 3) for kind, ratio in ratios.items()},
        "rounds": {kind: [round(1000 * seconds, 2) for seconds in many] for kind, many in found.items()},
    }


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
        cluster.cli("exp", "wait", cluster.create("model_def:RanksTrial", 2))  # the first one finds the agent still warming
        cluster.steps.unlink()
        for _ in range(rounds):
            cluster.cli("exp", "wait", cluster.create("model_def:RanksTrial", 2))
        lines = cluster.lines()
        granted = _times(cluster, "AllocationGranted")
        gaps = []
        for allocation in sorted({line[0] for line in lines}):
            first = max(at for name, _, step, at in lines if name == allocation and step == 0)  # the last rank to begin
            gaps.append(first - granted[allocation])
    return _figures(gaps)


def recovery(kills: int) -> dict[str, Any]:
    noticed, again, lost = [], [], []
    with cluster_of(2) as cluster:
        experiment = cluster.create("model_def:RanksTrial", 100_000, min_checkpoint_period={"batches": 20})
        allocation = ""
        for _ in range(kills):
            lines = cluster.wait_lines(lambda lines, before=allocation: any(line[0] != before for line in lines))
            allocation = lines[-1][0]
            cluster.wait_lines(
                lambda lines, name=allocation: len([line for line in lines if line[0] == name and line[1] == 0]) >= 30
            )
            victim = _rank_process(cluster, allocation)
            victim.kill()
            killed = time.time()
            reached = max(step for name, _, step, _ in cluster.lines() if name == allocation)
            lines = cluster.wait_lines(lambda lines, name=allocation: lines[-1][0] != name)
            new = lines[-1][0]
            lines = cluster.wait_lines(lambda lines, name=new: {line[1] for line in lines if line[0] == name} == {0, 1})
            begins = [(at, step) for name, _, step, at in lines if name == new]
            again.append(max(at for at, step in begins if step == begins[0][1]) - killed)
            lost.append(reached - begins[0][1])
            noticed.append(_times(cluster, "WorkersExited")[allocation] - killed)
        cluster.cli("exp", "kill", experiment)
    return {"noticed": _figures(noticed), "training again": _figures(again), "steps repeated": lost, "a checkpoint every": 20}


def _rank_process(cluster: Cluster, allocation: str) -> psutil.Process:
    """Rank 1: the leader's child is the supervisor, and its children are the ranks."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            mark = process.environ().get("TENUTO_RUN", "")
            ours = mark.startswith(str(cluster.directory.resolve())) and mark.endswith(f":{allocation}")
            if ours and process.pid == os.getsid(process.pid):
                return process.children()[0].children()[1]
    raise RuntimeError(f"allocation {allocation} has no processes")


def gangs(count: int) -> dict[str, Any]:
    shared_before = _shared_memory()
    with cluster_of(2) as cluster, contextlib.ExitStack() as agents:
        for name in ("second", "third", "fourth"):
            agents.enter_context(cluster.another_agent(name, 2))
        time.sleep(3.0)  # they join, and import the framework
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
        for experiment in experiments:
            cluster.cli("exp", "wait", experiment)
        seconds = time.time() - began
        states = [json.loads(cluster.cli("exp", "describe", experiment, "--json"))["state"] for experiment in experiments]
        restarts = sum(event.data.outcome != "finished" for event in cluster.events("WorkersExited"))
        spread = {event.data.allocation_id: len(event.data.slots) for event in cluster.events("AllocationGranted")}
        time.sleep(1.0)
        left = _marked(cluster)
    return {
        "gangs": count,
        "completed": states.count("completed"),
        "over two agents": sum(number > 1 for number in spread.values()),
        "runs that did not finish": restarts,
        "seconds": round(seconds, 1),
        "processes left": left,
        "shared memory left": len(_shared_memory() - shared_before),
    }


def _marked(cluster: Cluster) -> int:
    found = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += process.environ().get("TENUTO_RUN", "-").startswith(str(cluster.directory.resolve()))
    return found


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
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--gangs", type=int, default=20)
    arguments = parser.parse_args()
    parts = {
        "steps": lambda: steps(arguments.rounds, arguments.steps),
        "start": lambda: start(2 * arguments.rounds),
        "recovery": lambda: recovery(arguments.kills),
        "gangs": lambda: gangs(arguments.gangs),
    }
    for name in arguments.only.split(","):
        print(json.dumps({name: parts[name](), "load average": os.getloadavg()[0]}, indent=2), flush=True)


if __name__ == "__main__":
    main()
