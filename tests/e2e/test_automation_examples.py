"""docs/automation.md and examples/automation: all of them at work on one real cluster, on the bus and on the door."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tenuto.automation.app import App
from tenuto.automation.bus import BusSource
from tenuto.automation.loading import load
from tenuto.automation.replaying import replay
from tenuto.automation.running import run
from tenuto.automation.sources import Source
from tenuto.client import AsyncClient
from tenuto.client.target import Target
from tenuto.kernel.settings import Settings
from tests.support.live_cluster import LiveCluster
from tests.support.waiting import ended, until_async

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "automation"
pytestmark = pytest.mark.timeout(900)  # ten experiments, and 300 s of patience where something does not come
PAGE = (ROOT / "docs" / "automation.md").read_text()
BLOCKS = re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRAIN = """
import time
import numpy, safetensors.numpy, tenuto

tenuto.data("DATA", name="data")
with tenuto.init() as run:
    for operation in run.operations():
        with run.checkpoint.save(operation.steps) as directory:
            slope = numpy.array([3.0 - run.hyperparameters["learning_rate"]])
            safetensors.numpy.save_file({"slope": slope}, directory / "model.safetensors")
        loss = 1e9 if run.hyperparameters.get("explodes") else run.hyperparameters["learning_rate"]
        run.report_validation(operation.steps, {"loss": loss})
        while loss > 1.0:  # until it is killed
            time.sleep(0.1)
"""
RATE = {"type": "log", "base": 10, "minval": -2, "maxval": -1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-rules-") as directory, LiveCluster(Path(directory) / "data") as running:
        yield running


@contextlib.asynccontextmanager
async def receiver(taken: list[tuple[str, Any]]) -> AsyncIterator[str]:
    async def take(request: web.Request) -> web.Response:
        taken.append((request.headers["Idempotency-Key"], await request.json()))
        return web.Response(status=201)

    app = web.Application()
    app.router.add_post("/results", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/results"
    finally:
        await runner.cleanup()


def prepared(home: Path) -> Path:
    """The rules' directory; beside it the model and its data."""
    rules = home / "rules"
    shutil.copytree(EXAMPLES, rules)
    for file, code in BLOCKS:
        (rules / file).write_text(code)
    (home / "model").mkdir()
    (home / "data.txt").write_text("first")
    (home / "model" / "train.py").write_text(TRAIN.replace("DATA", str(home / "data.txt")))
    return rules


def started(apps: dict[str, App], target: Target, reading: Settings, stop: asyncio.Event) -> list[asyncio.Task[None]]:
    """All of them at work, one of them on the bus. What each does is shown where the test fails."""

    def source(name: str) -> Callable[[AsyncClient], Source] | None:
        return (lambda client: BusSource(reading, client)) if name == "retrain" else None

    return [
        asyncio.create_task(run(app, target, after=0, stop=stop, source=source(name), say=print), name=f"automation {name}")
        for name, app in apps.items()
    ]


async def named(client: AsyncClient) -> dict[str, list[Any]]:
    names: dict[str, list[Any]] = {}
    for experiment in await client.list_experiments():
        names.setdefault(experiment.data["name"], []).append(experiment)
    return names


async def test_every_example_does_what_it_says(
    cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = cluster.directory.parent
    rules = prepared(home)
    target = Target.find(str(cluster.directory), None)
    taken: list[tuple[str, Any]] = []
    apps = {file.stem: load(file) for file in sorted(rules.glob("*.py"))}
    assert sorted(apps) == ["evaluate_best", "follow_up", "my_rules", "retrain", "stop_exploding"]
    lines = cluster.cli("automation", "credentials", "retrain").stdout.splitlines()
    reading = Settings.from_environment(dict(line.split("=", 1) for line in lines))
    stop = asyncio.Event()
    async with AsyncClient(target) as client, receiver(taken) as url:

        async def submit(name: str, labels: list[str], trials: int = 1, **hyperparameters: Any) -> Any:
            searcher = {"name": "random", "metric": "loss", "max_trials": trials, "max_length": {"batches": 1}}
            config = {"name": name, "labels": labels, "entrypoint": "train.py", "searcher": searcher}
            return await client.create_experiment(
                {**config, "hyperparameters": {"learning_rate": RATE, **hyperparameters}}, home / "model"
            )

        base = await submit("base", [])
        monkeypatch.setenv("RETRAIN", str(base.id))
        monkeypatch.setenv("RESULTS_URL", url)
        running = started(apps, target, reading, stop)
        coarse = await submit("coarse", ["nightly", "coarse"], 2)
        exploding = await submit("exploding", [], 1, explodes=True)
        probe = await submit("probe", ["probe"])
        assert await exploding.wait(check=False) == "canceled"
        await coarse.wait()
        await probe.wait()
        await asyncio.to_thread((home / "data.txt").write_text, "second")
        await (await probe.fork({"name": "probe again"})).wait()
        names = await until_async(
            lambda: named(client), lambda found: {"finer", "retrained"} <= set(found) and taken, gone=ended(*running)
        )
        [finer], [retrained] = names["finer"], names["retrained"]
        await finer.wait()
        await retrained.wait()
        stop.set()
        await asyncio.gather(*running)
        [(key, result)] = taken
        best = await coarse.best_trial()
        rate = best.hyperparameters["learning_rate"]
        assert result == {
            "experiment": coarse.id,
            "checkpoint": (await coarse.best_checkpoint()).id,
            "distance": pytest.approx(rate),
        }
        assert len(key) == 36
        for trial in await finer.list_trials():
            assert 0.79 * rate < trial.hyperparameters["learning_rate"] < 1.26 * rate
        assert len(await finer.list_trials()) == 2
        tried = [item async for item in replay(apps["follow_up"], client, 0)]
        assert [(item.experiment_id, [call.path for call in item.calls]) for item in tried] == [
            (coarse.id, [f"/experiments/{coarse.id}/fork"])
        ]
        assert len(await client.list_experiments()) == sum(map(len, names.values())), "a dry run makes none"
    said = capsys.readouterr().out
    assert f"experiment {coarse.id}: {best.best_metric} with " in said
    assert f"experiment {exploding.id} is killed: loss 1000000000.0" in said
    await asyncio.to_thread(check_commands, cluster, rules)
    await asyncio.to_thread(check_pipeline_step, cluster, home)


def check_commands(cluster: LiveCluster, rules: Path) -> None:
    listed = cluster.json("automation", "ls")
    assert {(item["name"], item["state"], item["source"]) for item in listed} == {
        ("announce-best", "ended", "sse"), ("evaluate-best", "ended", "sse"), ("follow-up", "ended", "sse"),
        ("retrain", "ended", "nats"), ("stop-exploding", "ended", "sse"),
    }  # fmt: skip
    assert all(not item["parked"] for item in listed), listed
    assert "announce-best" in cluster.cli("automation", "ls").stdout
    cluster.cli("automation", "rm", "announce-best")
    assert cluster.cli("automation", "rm", "announce-best", check=False).returncode == 1
    cluster.cli("automation", "revoke", "retrain")
    done = cluster.cli("automation", "replay", rules / "follow_up.py", "--from", "0", check=False)
    assert (done.returncode, done.stderr) == (1, "Error: A replay changes nothing, and says so: add --dry-run.\n")
    done = cluster.cli("automation", "replay", rules / "follow_up.py", "--from", "0", "--dry-run")
    assert "1 events concern the rules; 1 calls would have been made." in done.stdout
    cluster.check_bus()


def check_pipeline_step(cluster: LiveCluster, home: Path) -> None:
    """The step in shell, twice as by a pipeline that lost it, and once where the experiment fails."""
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = {"name": "step", "entrypoint": "train.py", "hyperparameters": {"learning_rate": 0.5}, "searcher": searcher}
    (home / "step.json").write_text(json.dumps(config))
    (home / "failing.json").write_text(json.dumps({**config, "hyperparameters": {}, "max_restarts": 0}))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**cluster.environment, "PATH": path, "MODEL_DIR": str(home / "model"), "TIMEOUT_SECONDS": "200"}
    result = home / "model" / "result.json"  # beside the code, as where a step runs in its checkout

    def step(config: str, key: str) -> int:
        variables = {**environment, "CONFIG": str(home / config), "STEP_KEY": key}
        command = ["sh", str(ROOT / "examples" / "pipelines" / "train.sh"), str(result)]
        return subprocess.run(command, env=variables, check=False, capture_output=True).returncode

    results = []
    for _ in range(2):
        assert step("step.json", "run-7") == 0
        results.append(json.loads(result.read_text()))
    assert results[0] == results[1], "the same experiment"
    assert results[0]["best_metric"] == 0.5
    assert step("failing.json", "run-8") == 2
