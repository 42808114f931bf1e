"""Records a golden history: a real cluster meets one scenario, and its whole log becomes a file in tests/golden/histories.

    python tests/golden/record.py {searches,sharing,failures,nodes} --suffix=-DATE

Run it when a service has got a new rule version, under a new suffix: files that are there stay, as each shows what its
version decided. tests/unit/test_golden_histories.py says which version has no history yet.

searches   every kind of search, small, with refused hyperparameters, errors, metrics that are no numbers, and changes
sharing    two users on two agents: gangs, priorities, quotas, all policies, an elastic trial, slots out of service, pauses
failures   kill -9 of everything while searches and gangs train
nodes      gangs with and without images wait for nodes that never come: with containers, or in the image as a whole
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2]))
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import EnvironmentRecorded
from tests.support import histories
from tests.support.live_cluster import LiveCluster
from tests.support.record import broken_rules

ROOT = Path(__file__).parents[2]
MODEL = Path(__file__).with_name("model")
SPACE = {"type": "double", "minval": 0, "maxval": 1}
SEARCHES: list[dict[str, Any]] = [
    {"name": "random", "max_trials": 24, "max_concurrent_trials": 3},
    {"name": "grid", "max_concurrent_trials": 2},
    {"name": "sobol", "max_trials": 6},
    {"name": "sha", "max_trials": 8, "divisor": 2, "max_rungs": 3},
    {"name": "hyperband", "divisor": 2, "max_rungs": 3},
    {"name": "asha", "max_trials": 16, "divisor": 2, "max_rungs": 4, "max_concurrent_trials": 3},
    {"name": "asha", "max_trials": 16, "divisor": 2, "max_rungs": 4, "max_concurrent_trials": 3, "mode": "stopping"},
    {"name": "asha", "max_trials": 8, "divisor": 2, "max_rungs": 3, "average_validations": 2, "max_concurrent_trials": 2},
    {"name": "adaptive_asha", "max_trials": 10, "mode": "standard", "max_rungs": 3, "max_concurrent_trials": 3},
    {"name": "bohb", "max_trials": 12, "divisor": 2, "max_rungs": 3, "max_concurrent_trials": 3},
    {"name": "pbt", "population_size": 4, "generations": 3, "truncate_fraction": 0.34},
    {"name": "tpe", "max_trials": 8, "max_concurrent_trials": 2},
    {"name": "nsga2", "max_trials": 6, "startup_trials": 3, "objectives": [{"metric": "size"}]},
]


class Scene:
    def __init__(self, cluster: LiveCluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.tokens: dict[str, str] = {}

    def submit(self, user: str = "", step_seconds: float = 0.0, model: Path = MODEL, **changes: Any) -> int:
        config = {
            "name": "golden",
            "entrypoint": "train.py",
            "hyperparameters": {"x": SPACE},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 16}},
            "environment": {"variables": {"STEP_SECONDS": str(step_seconds)}},
            "max_restarts": 1,
            "reproducibility": {"experiment_seed": 7},
            **changes,
        }
        path = self.directory / "config.json"
        path.write_text(json.dumps(config))
        usual = self.cluster.environment
        if user:
            self.cluster.environment = {**usual, "TENUTO_TOKEN": self.tokens[user]}
        try:
            return int(self.cluster.json("exp", "create", path, model)["id"])
        finally:
            self.cluster.environment = usual

    def do(self, *command: str | int) -> None:
        self.cluster.cli(*map(str, command))

    def wait(self, *experiments: int) -> None:
        for experiment in experiments:
            self.cluster.cli("exp", "wait", str(experiment), check=False)

    def happens(self, kind: str, experiment: int, times: int = 1) -> None:
        """Waits until the experiment has `times` recorded events of this type."""

        def count() -> int:
            return sum(event.type == kind and event.correlation_id == str(experiment) for event in self.cluster.events())

        self.cluster.wait_for(lambda: count() >= times)


def searches(scene: Scene) -> None:
    scene.cluster.up()
    space = {"grid": {"x": {**SPACE, "count": 5}}}
    for number, searcher in enumerate(SEARCHES):
        hyperparameters = space.get(searcher["name"], {"x": SPACE})
        common = {"metric": "loss", "max_length": {"batches": 16}}
        scene.wait(
            scene.submit(
                searcher=common | searcher,
                hyperparameters=hyperparameters,
                reproducibility={"experiment_seed": number},
            )
        )
    asha = [number for number, searcher in enumerate(SEARCHES, start=1) if searcher["name"] == "asha"]
    for experiment in asha:  # trials at 2, 4, 8 and 16 batches, in a search over 5, 10, 20 and 40
        longer = ("--set", "searcher.max_length.batches=40")
        scene.wait(int(scene.cluster.json("exp", "continue", str(experiment), *longer)["id"]))
    many = {"name": "random", "metric": "loss", "max_length": {"batches": 16}, "max_trials": 40, "max_concurrent_trials": 2}
    changed = scene.submit(searcher=many, step_seconds=0.3)
    scene.happens("TrialRequested", changed, 3)
    scene.do("exp", "pause", changed)
    scene.do("exp", "set", changed, "--max-trials", 6)
    scene.happens("AllocationReleased", changed)
    scene.do("exp", "resume", changed)
    canceled = scene.submit(searcher=many, step_seconds=0.3)
    scene.happens("CheckpointSaved", canceled)
    scene.do("exp", "cancel", canceled)
    scene.wait(changed, canceled)


def sharing(scene: Scene) -> None:
    scene.cluster.up("--agents", "2")
    scene.tokens = {user: scene.cluster.json("user", "create", user)["token"] for user in ("ada", "bob")}
    scene.cluster.wait_for(lambda: len(scene.cluster.json("agent", "ls")) == 2)
    second = scene.cluster.json("agent", "ls")[1]["id"]
    several = {"name": "random", "metric": "loss", "max_length": {"batches": 16}, "max_trials": 8, "max_concurrent_trials": 6}
    ada = scene.submit("ada", 1.0, searcher=several, resources={"priority": 50})
    scene.happens("AllocationGranted", ada, 4)
    gang = scene.submit("bob", 0.1, hyperparameters={"x": 0.4}, resources={"slots_per_trial": 3, "priority": 40})
    scene.happens("AllocationGranted", gang)  # those of lower priority gave way
    scene.do("pool", "set", "default", "fair_share", "--half-life-hours", 1)
    more = scene.submit("bob", 1.0, searcher=several)
    scene.happens("AllocationGranted", more)
    scene.do("share", "set", "user", "ada", "--weight", 3, "--max-slots", 3)
    scene.do("job", "set", more, "--priority", 10)
    scene.do("slot", "disable", second, 1)
    scene.do("exp", "pause", ada)
    scene.do("pool", "set", "default", "fifo", "--preempt")
    scene.do("exp", "resume", ada)
    too_large = scene.submit("bob", resources={"slots_per_trial": 4})
    scene.do("slot", "enable", second, 1)
    scene.do("job", "move", too_large, "--ahead-of", more)
    watcher = scene.submit("bob", hyperparameters={"x": 0.4}, resources={"slots_per_trial": 0})
    scene.do("pool", "set", "default", "priority", "--preempt")
    scene.wait(watcher, ada, gang, more, too_large)
    scene.do("pool", "set", "default", "fair_share")
    sizes = {"slots_per_trial": {"min": 1, "max": 4, "keep_seconds": 0}}
    elastic = scene.submit("ada", 1.0, hyperparameters={"x": 0.4}, resources=sizes)
    scene.happens("AllocationGranted", elastic)
    scene.wait(scene.submit("bob", 0.1, searcher=several))
    scene.wait(elastic)


def failures(scene: Scene) -> None:
    import chaos

    chaos.run(scene.cluster, scene.directory, kills=60, seed=11)


def nodes(scene: Scene) -> None:
    scene.cluster.up()
    limits = ("--slots", 2, "--max", 8, "--images", "--label", "rack=1")
    scene.do("pool", "create", "far", "--provisioner", "ssh", "--set", "hosts=none.yaml", *limits)
    several = {"name": "random", "metric": "loss", "max_length": {"batches": 16}, "max_trials": 3, "max_concurrent_trials": 3}
    environments: list[dict[str, Any]] = [
        {"image": "example.com/one:1"}, {"image": "example.com/two@sha256:" + "0" * 64}, {"image": "example.com/one:1"}, {},
        {"image": "example.com/three:1", "pull": "never"},
    ]  # fmt: skip
    waiting = [
        scene.submit(searcher=several, environment=environment, resources={"pool": "far", "slots_per_trial": slots})
        for environment, slots in zip(environments, (2, 4, 2, 1, 2), strict=True)
    ]
    settings = ("--set", "image=example.com/tenuto:1", "--set", "kubeconfig=none")
    allowed = ("--node-image", "example.com/*", "--node-image", "torch:2")
    scene.do("pool", "create", "pods", "--provisioner", "kubernetes", *settings, *allowed, "--slots", 2, "--max", 8)
    waiting += [
        scene.submit(searcher=several, environment=environment, resources={"pool": "pods", "slots_per_trial": 1})
        for environment in ({"image": "example.com/one:1"}, {}, {"image": "torch:2"})
    ]
    scene.happens("TrialRequested", waiting[-1], 3)
    for experiment in waiting:
        scene.do("exp", "cancel", experiment)
    scene.wait(*waiting)
    scene.do("pool", "change", "far", "--provisioner", "static")
    scene.do("pool", "change", "pods", "--provisioner", "static")


def neutral(event: Event) -> Event:
    """Without what says more of this machine than of the cluster. No decision looks at it."""
    data = event.data
    if isinstance(data, ExperimentSubmitted):
        data = data.model_copy(update={"origin": None})
    elif isinstance(data, EnvironmentRecorded) and data.environment is not None:
        packages = {name: version for name, version in data.environment.packages.items() if name in ("numpy", "tenuto", "torch")}
        update = {"packages": packages, "loaded": (), "variables": {}, "platform": "Linux"}
        data = data.model_copy(update={"environment": data.environment.model_copy(update=update)})
    else:
        return replace(event, trace="")
    return replace(event, trace="", payload=data.to_json())


SCENARIOS: dict[str, Callable[[Scene], None]] = {"searches": searches, "sharing": sharing, "failures": failures, "nodes": nodes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--suffix", default="")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tenuto-golden-") as name:
        Path(name).chmod(0o711)
        cluster = LiveCluster(Path(name) / "cluster")
        try:
            SCENARIOS[arguments.scenario](Scene(cluster, Path(name)))
            events = cluster.events()
        finally:
            cluster.down()
    wrong = broken_rules(events)
    if wrong:
        sys.exit("Nothing is written, as the record is not sound: " + "; ".join(wrong[:5]))
    path = histories.write(arguments.scenario + arguments.suffix, [neutral(event) for event in events])
    print(f"{path.relative_to(ROOT)}: {len(events)} events, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
