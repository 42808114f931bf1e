"""A search on a real cluster whose processes are killed.

    python benchmarks/search_kills.py [--trials 100] [--kills 10] [--seed 1] [--report FILE]

ASHA (promotion) on two CPU slots, a checkpoint at each rung. At seeded instants (so many events after the last one) one of the
victims gets SIGKILL: training processes most of all, then the agent, the services, the servers. At the end nothing may be missing
or doubled: every trial requested once and ended once, the rules of the record hold, the log's hash chain verifies, and each
decision taken again from the record is the recorded one (`exp replay --verify`). `--trials 2000 --kills 100` is the long run.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import killing
import yaml
from figures import parse

sys.path.insert(0, str(Path(__file__).parents[1]))
from tenuto.client import ClientError
from tests.support.live_cluster import LiveCluster

VICTIMS = (
    ["worker"] * 6 + ["agent"] * 2 + ["searcher", "scheduler", "launcher", "tracker", "gateway", "relay", "nats", "postgres"]
)
STEP_SECONDS = 0.005
EVENTS_EACH_TRIAL = 12
"""About so many facts a trial leaves: the kills are spread over them."""
WAIT_SECONDS_MAX = 6 * 3600.0
POLL_SECONDS = 1.0
SAY_SECONDS = 15.0
ENDED = ("completed", "early_stopped", "failed", "canceled")
QUIET_SECONDS = 20.0
"""Nothing new for so long: look whether the search is over."""


def run(cluster: LiveCluster, directory: Path, trials: int, kills: int, seed: int) -> dict[str, Any]:
    path = directory / "config.yaml"
    model = killing.model(directory, STEP_SECONDS)
    path.write_text(yaml.safe_dump(killing.search(seed, trials, max_restarts=20)))
    rng = random.Random(seed)
    if not killing.is_shared():
        cluster.up()
    began = time.monotonic()
    experiment = str(cluster.json("exp", "create", path, model)["id"])
    killed: Counter[str] = Counter()
    progress = Progress(cluster, experiment, trials, began)
    head = cluster.wait_events(int(cluster.client().get("/status")["head"]), 5)
    between = max(2, trials * EVENTS_EACH_TRIAL // (kills + 1))
    for number in range(kills):
        wanted, victim = head + rng.randint(between // 2, between), rng.choice(VICTIMS)
        while head < wanted and not progress.over():
            with contextlib.suppress(AssertionError):  # nothing new for some seconds: over, or being started again
                head = cluster.wait_events(head, wanted - head, seconds_max=QUIET_SECONDS)
        if head < wanted:
            break
        if victim != "worker":
            cluster.kill(victim)
        elif not killing.kill_worker(cluster, rng, QUIET_SECONDS):
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
    return {
        "seconds": round(seconds, 1),
        "trials_per_second": round(trials / seconds, 2),
        "kills": dict(killed.most_common()),
        "state": progress.state,
        "all_requested": progress.begun == trials,
        **killing.on_record(cluster, [int(experiment)]),
    }


class Progress:
    """Progress of the search, or its last known value while killed services restart."""

    def __init__(self, cluster: LiveCluster, experiment: str, trials: int, began: float) -> None:
        self.cluster, self.path, self.trials, self.began = cluster, f"/experiments/{experiment}", trials, began
        self.state, self.begun, self.ended = "", 0, 0

    def over(self) -> bool:
        with contextlib.suppress(ClientError):
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


def main() -> None:
    parser = killing.parser(__doc__.split("\n")[0], kills=10)
    parser.add_argument("--trials", type=int, default=100)
    arguments = parse(parser, trials=4, kills=1)
    report = killing.measured(
        lambda cluster, directory: run(cluster, directory, arguments.trials, arguments.kills, arguments.seed), arguments.report
    )
    sys.exit(0 if killing.is_sound(report) and report["all_requested"] else 1)


if __name__ == "__main__":
    main()
