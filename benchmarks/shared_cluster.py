"""A cluster that is shared, for real: 4 agents of 2 CPU slots, three users' searches, a gang of 6, and changing priorities.

    python benchmarks/shared_cluster.py [--picture slots.png] [--trials 4] [--batches 1200] [--gang-batches 200]

Starts a cluster of its own, with real agents and workers, makes three users, and lets each of them search with the digits
example. Then a gang of 6 slots comes. It waits; it becomes urgent, and six trials give way to it; one user's search becomes more
urgent than the gang, and the gang gives way. In the end everything runs to its end.

Then each experiment is run again alone and undisturbed. Every trial must end with the same weights and the same state of
optimizer and generators, by the SHA-256 of its last checkpoint's files: both are read from the event log. The exit code is 1 if
one differs, or if nothing was preempted. The picture is drawn from the log, by `tenuto job picture`.

With --step-seconds it trains a model whose steps cost nothing, on 2 agents, for two users and a gang of 4. They last so long
until the gang has given way: so nothing ends before its part of the story, however slow the machine is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embedded_cluster import CLUSTER_VARIABLE, command, model_with
from figures import figure, parse

from tenuto.client import Client, Target
from tenuto.schemas.envelope import Event, decode_event

MODEL = Path(__file__).parents[1] / "examples" / "digits"
SLOW_MODEL = Path(__file__).with_name("models") / "turnover"
USERS = ("ada", "bob", "eve")
SLOW_USERS = ("fay", "gus")
"""Others, as a cluster that goes on may have had the ones above."""
AGENT_SLOTS = 2
COMPARED = ("model.safetensors", "state.pt")
STEP_SECONDS_MAX = 600.0
"""For whatever is waited for; on two cores eight processes start slowly."""
POLL_SECONDS = 0.2


class Show:
    def __init__(self, directory: Path, slow: bool) -> None:
        running = os.environ.get(CLUSTER_VARIABLE)
        self.runs_already = running is not None
        """It has 2 agents, and goes on afterwards."""
        self.root = Path(running or directory / "cluster")
        self.environment = {**os.environ, "TENUTO_DATA_DIRECTORY": str(self.root)}
        for name in ("TENUTO_URL", "TENUTO_TOKEN", "TENUTO_TOKEN_FILE"):
            self.environment.pop(name, None)
        self.directory, self.tokens, self.started = directory, dict[str, str](), time.monotonic()
        self.model, self.agents = MODEL, 2 if slow else 4
        self.users = SLOW_USERS if slow else USERS
        self.slots = self.agents * AGENT_SLOTS
        self.slow_while = directory / "slow"
        """Steps are slow while this file exists, if they are so at all."""
        self.slow_while.touch()
        self.after = 0
        """Position of the record's end when the story began."""
        self._client: Client | None = None
        self._events: list[Event] = []

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def tenuto(self, *arguments: str | Path, user: str = "") -> str:
        environment = self.environment | ({"TENUTO_TOKEN": self.tokens[user]} if user else {})
        done = command(arguments, environment, STEP_SECONDS_MAX)
        if done.returncode:
            raise SystemExit(f"tenuto {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def client(self) -> Client:
        if self._client is None:
            self._client = Client(Target.find(str(self.root), None))
        return self._client

    def events(self) -> list[Event]:
        """Of the record since `shared` began. An event never changes, so none is read twice."""
        read = self._events[-1].position if self._events else self.after
        self._events += [decode_event(line) for line in self.client().event_bodies(read)]
        return [*self._events]

    def until(self, what: str, true: Callable[[], bool]) -> None:
        limit = time.monotonic() + STEP_SECONDS_MAX
        while not true():
            if time.monotonic() > limit:
                raise SystemExit(f"Waited {STEP_SECONDS_MAX:.0f} s in vain until {what}:\n{self.tenuto('job', 'ls')}")
            time.sleep(POLL_SECONDS)
        self.say(what)

    def running(self, *experiments: int) -> int:
        """Trials of these experiments (or of all) whose workers train."""
        found = self.client().get("/allocations")
        return sum(item["state"] == "running" and (not experiments or item["experiment_id"] in experiments) for item in found)

    def submit(self, config: dict[str, Any], user: str) -> int:
        path = self.directory / f"{config['name']}.json"
        path.write_text(json.dumps(config))
        return int(json.loads(self.tenuto("exp", "create", path, self.model, "--json", user=user))["id"])

    def ended(self, *experiments: int) -> Callable[[], bool]:
        return lambda: all(self.client().get(f"/experiments/{item}")["ended_us"] is not None for item in experiments)


def search(name: str, seed: int, trials: int, batches: int) -> dict[str, Any]:
    return {
        "name": name,
        "entrypoint": "model_def:DigitsTrial",
        "hyperparameters": {
            "learning_rate": {"type": "log", "minval": -3, "maxval": -1.5, "base": 10},
            "channels": 16, "dropout": 0.1, "activation": "relu", "weight_decay": 1e-4, "batch_size": 32,
        },
        "searcher": {
            "name": "random", "metric": "accuracy", "smaller_is_better": False, "max_trials": trials,
            "max_concurrent_trials": trials, "max_length": {"batches": batches},
        },
        "checkpoint_policy": "all",
        "reproducibility": {"experiment_seed": seed},
    }  # fmt: skip


def gang(slots: int, batches: int) -> dict[str, Any]:
    config = search("gang", 99, 1, batches)
    config["hyperparameters"] |= {"batch_size": 36, "learning_rate": 0.01}
    config["searcher"] = {
        "name": "single", "metric": "accuracy", "smaller_is_better": False, "max_length": {"batches": batches},
    }  # fmt: skip
    config["resources"] = {"slots_per_trial": slots}
    return config


def slow_model(step_seconds: float, show: Show) -> Path:
    steps, slow_while = show.directory / "steps.txt", show.slow_while
    variables = {"STEP_SECONDS": str(step_seconds), "SLOW_WHILE": str(slow_while), "STEPS_FILE": str(steps)}
    return model_with(variables, SLOW_MODEL, show.directory)


def slow(config: dict[str, Any]) -> dict[str, Any]:
    """The same for the model whose steps cost nothing."""
    rate = config["hyperparameters"]["learning_rate"]
    searcher = config["searcher"] | {"metric": "loss", "smaller_is_better": True}
    return config | {
        "entrypoint": "model_def:TurnoverTrial", "hyperparameters": {"learning_rate": rate}, "searcher": searcher,
    }  # fmt: skip


def shared(show: Show, configs: list[dict[str, Any]]) -> list[int]:
    """The story. Returns the experiments, the gang last."""
    users = show.users
    searches = [show.submit(config, user) for config, user in zip(configs[:-1], users, strict=True)]
    show.until(f"{show.slots} trials of {len(users)} users train", lambda: show.running() == show.slots)
    wide = show.submit(configs[-1], users[-1])
    show.until("the gang waits", lambda: _reason(show, wide) != "")
    show.say(f"why: {_reason(show, wide)}")
    show.tenuto("job", "set", str(wide), "--priority", "10", user=users[-1])
    slots = configs[-1]["resources"]["slots_per_trial"]
    show.until(f"the gang became urgent, and trains on {slots} slots", lambda: show.running(wide) == 1)
    second = searches[1]
    show.tenuto("job", "set", str(second), "--priority", "5", user=users[1])
    show.until(f"{users[1]}'s search became more urgent than the gang, which gave way", lambda: _preempted(show, wide))
    show.slow_while.unlink()
    show.tenuto("job", "set", str(wide), "--priority", "42", user=users[-1])
    show.until("all have ended", show.ended(*searches, wide))
    return [*searches, wide]


def _reason(show: Show, experiment: int) -> str:
    rows = [row for pool in show.client().get("/jobs")["pools"] for row in pool["rows"]]
    return next((str(row["text"]) for row in rows if row["experiment_id"] == experiment), "")


def _preempted(show: Show, experiment: int) -> bool:
    ended = show.ended(experiment)()
    if ended:
        raise SystemExit("The gang ended before it could give way: give it more to do with --gang-batches.")
    return any(event.type == "AllocationPreempted" and event.data.experiment_id == experiment for event in show.events())  # type: ignore[attr-defined]


def last_files(events: list[Event], experiment: int) -> dict[int, dict[str, str]]:
    """Trial's number -> what its last checkpoint holds, by SHA-256."""
    found: dict[int, dict[str, str]] = {}
    for event in events:
        data: Any = event.data
        if event.type == "CheckpointSaved" and data.trial_id.startswith(f"{experiment}-"):
            hashes = {file.path: file.sha256 for file in data.files if file.path in COMPARED}
            found[int(data.trial_id.partition("-")[2])] = {"batches": str(data.batches), **hashes}
    return found


@contextlib.contextmanager
def cluster(show: Show) -> Iterator[None]:
    if not show.runs_already:
        show.tenuto("up", "--detach", "--agents", str(show.agents), "--cpu-slots", str(AGENT_SLOTS))
    try:
        show.after = int(show.client().get("/status")["head"])
        there = f"{show.agents} agents of {AGENT_SLOTS} slots are there"
        show.until(there, lambda: len(show.client().get("/agents")) == show.agents)
        for user in show.users:
            show.tokens[user] = json.loads(show.tenuto("user", "create", user, "--json"))["token"]
        yield
    finally:
        if not show.runs_already:
            show.tenuto("down")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4, help="of each user's search")
    parser.add_argument("--batches", type=int, default=1200, help="of each trial of a search")
    parser.add_argument("--gang-batches", type=int, default=200)
    parser.add_argument("--picture", default="", help="draw slots by time here")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="train the model whose steps cost nothing")
    given = parse(parser, trials=2, batches=60, gang_batches=60, step_seconds=3.0)
    directory = Path(tempfile.mkdtemp(prefix="tenuto-shared-"))
    show = Show(directory, given.step_seconds > 0)
    configs = [search(user, seed, given.trials, given.batches) for seed, user in enumerate(show.users, 1)]
    configs.append(gang(show.slots if given.step_seconds else 6, given.gang_batches))
    if given.step_seconds:
        configs = [slow(config) for config in configs]
        show.model = slow_model(given.step_seconds, show)
    try:
        with cluster(show):
            disturbed = shared(show, configs)
            events = show.events()
            if given.picture:
                print(show.tenuto("job", "picture", Path(given.picture).absolute()), end="")
            alone = []
            for config, user in zip(configs, (*show.users, show.users[-1]), strict=True):
                alone.append(show.submit(config, user))
                show.until(f"{config['name']} ran again, undisturbed", show.ended(alone[-1]))
            different = judge(show, events, disturbed, alone)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if different else 0)


def judge(show: Show, events: list[Event], disturbed: list[int], alone: list[int]) -> list[str]:
    """Compares, and prints the table. Returns what is wrong."""
    ours = [event for event in events if event.type == "AllocationPreempted" and event.data.experiment_id in disturbed]  # type: ignore[attr-defined]
    preempted = [event.data.trial_id for event in ours]  # type: ignore[attr-defined]
    everything, wrong = show.events(), []
    print("| trial | preempted | weights, optimizer and generators |\n|---|---|---|")
    for first, second in zip(disturbed, alone, strict=True):
        one, other = last_files(everything, first), last_files(everything, second)
        if one.keys() != other.keys() or not one:
            wrong.append(f"experiment {first}")
        for number in sorted(one):
            trial, same = f"{first}-{number}", one[number] == other.get(number)
            wrong += [] if same and len(one[number]) == 1 + len(COMPARED) else [trial]
            print(f"| {trial} | {preempted.count(trial)} x | {'equal' if same else 'DIFFERENT'} |")
    if not preempted:
        wrong.append("nothing was preempted")
    figure("trials with other weights than undisturbed", len(wrong), f"of {len(preempted)} preemptions", bar="none")
    print(f"{len(set(preempted))} trials were preempted, {len(preempted)} times; different: {', '.join(wrong) or 'none'}")
    return wrong


if __name__ == "__main__":
    main()
