"""MLflow's own client against a real gateway: scripts that log to MLflow log to Tenuto."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.gateway_world import World
from tests.support.mlflow_world import do, mlflow_world, uri

mlflow = pytest.importorskip("mlflow", reason="MLflow's client is needed: pip install 'tenuto[mlflow]'")
MlflowClient, MlflowException = mlflow.MlflowClient, mlflow.MlflowException
Metric, Param = mlflow.entities.Metric, mlflow.entities.Param


@pytest_asyncio.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with mlflow_world(database, tmp_path) as made:
        yield made


def train(name: str, artifacts: Path) -> str:
    """A script as people have it."""
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name=name) as run:
        mlflow.log_params({"lr": 0.1, "layers": 3, "optimizer": "adam"})
        for step in range(5):
            mlflow.log_metrics({"loss": 1.0 / (step + 1), "accuracy": step / 5}, step=step)
        mlflow.log_metric("final", 0.2)
        mlflow.set_tag("team", "vision")
        mlflow.log_text("hello", "notes/hello.txt")
        (artifacts / "weights.bin").write_bytes(b"\0" * 1000)
        mlflow.log_artifact(str(artifacts / "weights.bin"), "model")
        return str(run.info.run_id)


async def test_a_script_for_mlflow_logs_here_and_is_seen_by_both_doors(world: World, tmp_path: Path) -> None:
    run_id = await do(train, "first", tmp_path)
    assert run_id == "1-1"
    client = MlflowClient()
    run = await do(client.get_run, run_id)
    assert (run.info.status, run.info.run_name, run.info.user_id) == ("FINISHED", "first", "admin")
    assert run.data.params == {"lr": "0.1", "layers": "3", "optimizer": "adam"}
    assert run.data.metrics == {"loss": 0.2, "accuracy": 0.8, "final": 0.2}
    assert run.data.tags["team"] == "vision"
    assert run.info.end_time >= run.info.start_time
    history = await do(client.get_metric_history, run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(step, 1.0 / (step + 1)) for step in range(5)]

    assert [item.path for item in await do(client.list_artifacts, run_id)] == ["model", "notes"]
    [file] = await do(client.list_artifacts, run_id, "model")
    assert (file.path, file.file_size) == ("model/weights.bin", 1000)
    assert await do(mlflow.artifacts.load_text, f"runs:/{run_id}/notes/hello.txt") == "hello"
    down = await do(client.download_artifacts, run_id, "", str(tmp_path / "down"))
    assert (Path(down) / "model" / "weights.bin").read_bytes() == b"\0" * 1000

    [experiment] = await world.get("/experiments")
    assert (experiment["name"], experiment["state"], experiment["method"]) == ("digits", "unmanaged", "unmanaged")
    assert experiment["trials"] == {"completed": 1}
    trial = await world.get("/trials/1-1")
    assert trial["hyperparameters"] == {"lr": 0.1, "layers": 3, "optimizer": "adam"}
    assert (trial["state"], trial["unmanaged"], trial["batches"]) == ("completed", True, 4)
    points = await world.get("/trials/1-1/metrics")
    assert points[0]["metrics"] == {"loss": 1.0, "accuracy": 0.0, "final": 0.2}
    assert [point["batches"] for point in points] == [0, 1, 2, 3, 4]
    picture = await world.get("/experiments/1/metrics/curves?metrics=loss,accuracy")
    assert [(item["trial_id"], item["metric"], len(item["values"])) for item in picture["curves"]] == [
        ("1-1", "loss", 5), ("1-1", "accuracy", 5),
    ]  # fmt: skip
    table = await world.http.get("/api/v1/experiments/1/metrics/table")
    assert table.status_code == 200
    assert b"metrics.loss" in table.content[:500]
    events = await world.get("/events")
    assert [event["type"] for event in events] == [
        "UnmanagedExperimentCreated", "UnmanagedTrialStarted", "UnmanagedTrialChanged",
    ]  # fmt: skip
    await do(train, "second", tmp_path)
    diff = await world.get("/diff?a=1-1&b=1-2")
    assert diff["differences"] == []
    assert "not on record" in diff["gaps"][0]
    assert diff["results"]["validations"] == 5
    assert (await world.error("POST", "/experiments/1/fork", json={}))[:2] == (409, "conflict")
    assert (await world.error("GET", "/experiments/1/pareto"))[:2] == (409, "conflict")
    assert (await world.error("GET", "/trials/1-1/record"))[:2] == (404, "not_found")
    status, code, message = await world.error("POST", "/experiments/1/pause")
    assert (status, code) == (409, "conflict")
    assert "unmanaged" in message


async def test_a_rebuild_of_the_views_keeps_what_was_logged(world: World, tmp_path: Path) -> None:
    run_id = await do(train, "first", tmp_path)
    before = await world.get("/trials/1-1")
    assert (await world.http.post("/api/v1/views/rebuild")).is_success
    await world.service.doors.base.views_reached(await world.log.head())
    for _ in range(1_200):
        answer = await world.http.get("/api/v1/trials/1-1")
        if answer.status_code == 200 and answer.json()["state"] == "completed":
            break
        await asyncio.sleep(0.05)
    assert answer.json() == before
    assert (await do(MlflowClient().get_run, run_id)).data.metrics["loss"] == 0.2


def search(*arguments: Any, **named: Any) -> list[str]:
    return [run.info.run_id for run in MlflowClient().search_runs(*arguments, **named)]


async def test_runs_are_found_by_filters_and_orders(world: World) -> None:
    def make() -> str:
        mlflow.set_experiment("search")
        for number in range(4):
            with mlflow.start_run(run_name=f"run {number}"):
                mlflow.log_params({"lr": 10.0**-number, "kind": "a" if number % 2 else "b"})
                mlflow.log_metric("loss", math.nan if number == 3 else number)
                if number == 1:
                    mlflow.set_tag("best.so far", "Yes")
        return str(mlflow.get_experiment_by_name("search").experiment_id)

    experiment = await do(make)

    async def found(filter_: str, *order: str) -> list[str]:
        return await do(lambda: search([experiment], filter_, order_by=list(order)))

    assert await found("") == ["1-4", "1-3", "1-2", "1-1"]
    assert await found("metrics.loss < 2", "metrics.loss DESC") == ["1-2", "1-1"]
    assert await found("", "metrics.loss ASC") == ["1-1", "1-2", "1-3", "1-4"], "NaN comes last"
    assert await found("", "metrics.loss DESC") == ["1-3", "1-2", "1-1", "1-4"]
    assert await found("params.kind = 'a' and metrics.loss >= 0") == ["1-2"]
    assert await found("params.lr != '1.0'", "params.lr") == ["1-4", "1-3", "1-2"]
    assert await found("tags.`best.so far` ILIKE 'y%'") == ["1-2"]
    assert await found("tags.`best.so far` IS NULL") == ["1-4", "1-3", "1-1"]
    finished = "run_name LIKE 'run %' AND attributes.status = 'FINISHED'"
    assert await found(finished, "start_time ASC") == ["1-1", "1-2", "1-3", "1-4"]
    assert await found("run_id IN ('1-1', '1-3')") == ["1-3", "1-1"]
    assert await found("run_name LIKE 'run\\'") == [], "a backslash is no escape, and no error"
    page = await do(lambda: MlflowClient().search_runs([experiment], max_results=3))
    rest = await do(lambda: MlflowClient().search_runs([experiment], max_results=3, page_token=page.token))
    assert ([run.info.run_id for run in page], [run.info.run_id for run in rest]) == (["1-4", "1-3", "1-2"], ["1-1"])
    runs: Any = await do(lambda: mlflow.search_runs([experiment], "metrics.loss = 1", output_format="list"))
    assert [run.data.params["kind"] for run in runs] == ["a"]
    for filter_, words in {
        "metrics.loss < 1 OR metrics.loss > 2": "OR",
        "datasets.name = 'x'": "datasets",
        "metrics.loss < 'a'": "number",
        "params.lr > 1": "does not take >",
        "shoe_size = 3": "shoe_size",
        "metrics.loss <": "number",
        "'; DROP TABLE trials; --": "not understood",
    }.items():
        with pytest.raises(MlflowException, match="INVALID_PARAMETER_VALUE") as refused:
            await found(filter_)
        assert words in str(refused.value)
    client = MlflowClient()
    await do(client.rename_experiment, experiment, "renamed")
    assert (await do(client.get_experiment_by_name, "renamed")).experiment_id == experiment
    await do(client.create_experiment, "other")
    taken = "Experiment 1 has the name 'renamed' already"
    with pytest.raises(MlflowException, match=taken):
        await do(client.rename_experiment, "2", "renamed")
    assert taken in (await world.error("PATCH", "/experiments/2/description", json={"name": "renamed"}))[2]
    await do(client.delete_experiment, "2")
    await do(client.delete_experiment, experiment)
    assert not await do(client.search_experiments)
    assert (await do(client.get_experiment, experiment)).lifecycle_stage == "deleted"
    await do(client.restore_experiment, experiment)
    assert [item.name for item in await do(lambda: client.search_experiments(filter_string="name LIKE 'ren%'"))] == ["renamed"]
    await do(MlflowClient().delete_run, "1-1")
    assert await found("") == ["1-4", "1-3", "1-2"]
    await do(MlflowClient().restore_run, "1-1")
    assert len(await found("")) == 4


KILLED = """
import mlflow, sys, time
mlflow.set_experiment("shared")
run = mlflow.start_run()
for step in range(10_000):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
    if step == 10:
        print(run.info.run_id, flush=True)
"""


async def test_several_clients_at_once_and_one_that_is_killed(world: World, tmp_path: Path) -> None:
    token = (tmp_path / "token").read_text().strip()
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri(world), "MLFLOW_TRACKING_TOKEN": token}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(KILLED), env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None

    def work(number: int) -> str:
        client = MlflowClient()
        run_id = str(client.create_run("0").info.run_id)
        for first in range(0, 1_000, 250):
            client.log_batch(run_id, [Metric("loss", float(step), step, step) for step in range(first, first + 250)])
        for key in range(20):
            client.log_batch(run_id, params=[Param(f"p{key}", str(number))])
        client.set_terminated(run_id)
        return run_id

    found = await asyncio.gather(*(do(work, number) for number in range(6)))
    assert len(set(found)) == 6
    killed = (await process.stdout.readline()).decode().strip()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    for run_id in found:
        assert len(await do(MlflowClient().get_metric_history, run_id, "loss")) == 1_000
        assert len((await do(MlflowClient().get_run, run_id)).data.params) == 20
    run = await do(MlflowClient().get_run, killed)
    history = await do(MlflowClient().get_metric_history, killed, "loss")
    assert run.info.status == "RUNNING", "nobody said that it has ended"
    assert [point.step for point in history] == list(range(len(history)))
    assert len(history) > 10
    names = [row["name"] for row in await world.get("/experiments")]
    assert sorted(names) == ["Default", "shared"]


def autologged() -> str:
    import numpy
    from sklearn.linear_model import LogisticRegression

    mlflow.set_experiment("autologged")
    mlflow.sklearn.autolog(log_models=False)
    try:
        with mlflow.start_run() as run:
            LogisticRegression(C=0.5).fit(numpy.array([[0.0], [1.0], [2.0], [3.0]]), numpy.array([0, 0, 1, 1]))
        return str(run.info.run_id)
    finally:
        mlflow.sklearn.autolog(disable=True)


async def test_autologging_of_a_small_model(world: World) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas", reason="MLflow's autologging of scikit-learn needs it: pip install 'tenuto[frames]'")
    run = await do(MlflowClient().get_run, await do(autologged))
    assert run.data.params["C"] == "0.5"
    assert run.data.metrics["training_accuracy_score"] == 1.0
    assert "train" in str(run.inputs.dataset_inputs)
    assert run.info.status == "FINISHED"
