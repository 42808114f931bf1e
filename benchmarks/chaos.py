"""Kill -9 of everything, hundreds of times, while searches and gangs over two agents train.

    python benchmarks/chaos.py [--kills 300] [--seed 1] [--report FILE]

Two agents with two slots each. A search (ASHA with checkpoints) and a trial on three slots, which has ranks on both agents, are
always under way; when one ends, the next is submitted. After a seeded pause of at most PAUSE_SECONDS_MAX one of the victims gets
SIGKILL: ranks and other workers most of all, the agents, each service, the relay, the bus with and without its disk, the
database, and the supervisor, which is then started again. After the last kill everything is canceled, and the seconds are counted
until nothing holds a slot and no process of a trial is left. Nothing may be missing or doubled and nothing may fail, as no user
made an error: the rules of the record hold, every trial that was requested has finished once, each decision taken again from the
record is the recorded one, and the log verifies.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import killing
import yaml
from figures import figure, parse

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.live_cluster import LiveCluster
from tests.support.record import ENDED

VICTIMS = (
    *["worker"] * 8,
    *["agent", "agent-2"] * 3,
    *["searcher", "scheduler", "launcher", "tracker", "gateway", "relay", "nats", "nats+disk", "postgres", "supervisor"],
)
STEP_SECONDS = 0.01
PAUSE_SECONDS_MAX = 2.0
KILLS_BETWEEN_LOOKS = 5
"""Kills after which the benchmark checks whether it must submit another experiment."""
IDLE_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 300.0
POLL_SECONDS = 0.2
TRIES_MAX = 60
OVER = {"completed", "failed", "canceled", "unmanaged"}
"""States in which an experiment holds no slot. Unmanaged ones are of another benchmark that used the same cluster."""


def search(seed: int) -> dict[str, Any]:
    return killing.search(seed, trials=40, max_restarts=50)


def gang(seed: int) -> dict[str, Any]:
    return {
        **search(seed),
        "name": "gang",
        "hyperparameters": {"x": 0.5},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 200}},
        "min_checkpoint_period": {"batches": 20},
        "resources": {"slots_per_trial": 3},
    }


class Chaos:
    def __init__(self, cluster: LiveCluster, directory: Path, seed: int) -> None:
        self.cluster, self.directory = cluster, directory
        self.random, self.model = random.Random(seed), killing.model(directory, STEP_SECONDS)
        self.experiments: dict[int, str] = {}
        """By id: its kind."""
        self.killed: Counter[str] = Counter()

    def keep_busy(self) -> None:
        """Submits a search and a gang where none of that kind is under way. What is away now is asked for later."""
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired, ValueError):
            live = [
                item["id"] for item in self.cluster.json("exp", "ls") if item["state"] not in ("completed", "failed", "canceled")
            ]
            kinds = {self.experiments.get(number) for number in live}
            for kind, config in (("search", search), ("gang", gang)):
                if kind not in kinds:
                    path = self.directory / f"{kind}.yaml"
                    path.write_text(yaml.safe_dump(config(len(self.experiments) + 1)))
                    self.experiments[self.cluster.json("exp", "create", path, self.model)["id"]] = kind

    def kill(self, victim: str) -> None:
        if victim == "worker":
            if not killing.kill_worker(self.cluster, self.random):
                return
        elif victim == "supervisor":
            os.kill(self.cluster.state()["supervisor_pid"], signal.SIGKILL)
            self.up()
        else:
            try:
                self.cluster.kill(victim)
            except (ProcessLookupError, TypeError):  # it is being started just now
                return
        self.killed[victim] += 1

    def up(self) -> None:
        for _ in range(TRIES_MAX):  # what was killed a moment ago may still hold the lock
            with contextlib.suppress(AssertionError):
                self.cluster.cli("up", "--detach", "--cpu-slots", "2", "--agents", "2", seconds_max=WAIT_SECONDS_MAX)
                return
            time.sleep(1.0)
        raise AssertionError("the cluster does not come up again")

    def idle_seconds(self) -> float:
        """From now until nothing holds a slot and no process of a trial is left; everything is canceled first."""
        began, asked = time.monotonic(), set[int]()
        while time.monotonic() - began < WAIT_SECONDS_MAX:
            with contextlib.suppress(AssertionError, ValueError):
                live = {item["id"] for item in self.cluster.json("exp", "ls") if item["state"] not in OVER}
                if not live and not self.cluster.workers():
                    return time.monotonic() - began
                for number in sorted(live - asked):
                    if self.cluster.cli("exp", "cancel", str(number), check=False).returncode == 0:
                        asked.add(number)
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"not idle after {WAIT_SECONDS_MAX:.0f} s:\n{self.cluster.tail()}")


def run(cluster: LiveCluster, directory: Path, kills: int, seed: int) -> dict[str, Any]:
    chaos = Chaos(cluster, directory, seed)
    if not killing.is_shared():
        chaos.up()
    began = time.monotonic()
    while sum(chaos.killed.values()) < kills:
        if sum(chaos.killed.values()) % KILLS_BETWEEN_LOOKS == 0:
            chaos.keep_busy()
        time.sleep(chaos.random.uniform(0, PAUSE_SECONDS_MAX))
        chaos.kill(chaos.random.choice(VICTIMS))
        count = sum(chaos.killed.values())
        if count % 20 == 0:
            print(f"{time.monotonic() - began:.0f} s: {count} kills, {len(chaos.experiments)} experiments", file=sys.stderr)
    idle_seconds = chaos.idle_seconds()
    record = killing.on_record(cluster, chaos.experiments)
    return {
        "kills": dict(chaos.killed.most_common()),
        "kills_in_all": sum(chaos.killed.values()),
        "seconds": round(time.monotonic() - began, 1),
        "idle_seconds_after_the_last_kill": round(idle_seconds, 1),
        "experiments": dict(Counter(chaos.experiments.values())),
        "ended": dict(Counter(event.type for event in cluster.events() if event.type in ENDED)),
        **record,
    }


def main() -> None:
    arguments = parse(killing.parser(__doc__.split("\n")[0], kills=300), kills=2)
    report = killing.measured(
        lambda cluster, directory: run(cluster, directory, arguments.kills, arguments.seed), arguments.report
    )
    figure("idle after the last kill", report["idle_seconds_after_the_last_kill"], "s", bar=f"at most {IDLE_SECONDS_MAX:.0f} s")
    sys.exit(0 if killing.is_sound(report) and report["idle_seconds_after_the_last_kill"] <= IDLE_SECONDS_MAX else 1)


if __name__ == "__main__":
    main()
