"""`tenuto import mlflow` and `tenuto exp export`: runs go over between MLflow's own store and a real gateway, whole and once."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.client.errors import ClientError
from tests.support.gateway_world import World
from tests.support.mlflow_world import do, mlflow_world

mlflow = pytest.importorskip("mlflow", reason="MLflow's client is needed: pip install 'tenuto[mlflow]'")
Metric, Param = mlflow.entities.Metric, mlflow.entities.Param


@pytest_asyncio.fixture
async def world(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    async with mlflow_world(database, tmp_path) as made:
        monkeypatch.setenv("TENUTO_URL", f"http://127.0.0.1:{made.service.port}")
        monkeypatch.setenv("TENUTO_TOKEN_FILE", str(tmp_path / "token"))
        yield made


async def tenuto(*arguments: str) -> tuple[int, str]:
    """Status of a command, and what it says."""
    done = await do(lambda: CliRunner().invoke(app, arguments))
    if isinstance(done.exception, ClientError):  # `main` would print it
        return 1, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def make_runs(directory: Path) -> Any:
    """Two runs in a store of MLflow's own: one with everything, and one that was killed."""
    client = mlflow.MlflowClient(tracking_uri=str(directory))
    experiment = client.create_experiment("old", tags={"team": "vision"})
    run = client.create_run(experiment, run_name="first", start_time=1_700_000_000_000)
    points = [Metric("loss", 1 / (step + 1), 1_700_000_000_000 + step, step) for step in range(2_500)]
    for first in range(0, len(points), 1_000):
        client.log_batch(run.info.run_id, points[first : first + 1_000])
    client.log_batch(
        run.info.run_id, [Metric("odd", math.nan, 5, 0), Metric("odd", 1.0, 6, 0)], [Param("lr", "0.1"), Param("kind", "a")]
    )
    client.set_tag(run.info.run_id, "note", "kept")
    client.log_text(run.info.run_id, "weights", "model/weights.txt")
    client.set_terminated(run.info.run_id, end_time=1_700_000_100_000)
    client.create_run(experiment)
    return run


async def check_tables(number: str, tables: Path) -> None:
    """The same experiment as tables in files."""
    for form in ("csv", "parquet"):
        code, shown = await tenuto("exp", "export", number, "--to", form, str(tables))
        assert code == 0, shown
    with (tables / "training.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    assert [(int(row["batches"]), float(row["loss"])) for row in rows] == [(step, 1 / (step + 1)) for step in range(2_500)]
    with (tables / "trials.csv").open(newline="") as file:
        assert [(row["id"], row["hyperparameters.lr"]) for row in csv.DictReader(file)] == [
            (f"{number}-1", "0.1"),
            (f"{number}-2", ""),
        ]
    assert sorted(path.name for path in tables.glob("*.parquet")) == ["training.parquet", "trials.parquet", "validation.parquet"]


async def test_runs_are_imported_whole_and_once(world: World, tmp_path: Path) -> None:
    old = await do(make_runs, tmp_path / "mlruns")
    source = str(tmp_path / "mlruns")
    first = await tenuto("import", "mlflow", source, "--experiment", "old", "--artifacts", "--json")
    assert first[0] == 0, first[1]
    again = await tenuto("import", "mlflow", source, "--experiment", "old", "--json")
    assert json.loads(again[1]) == json.loads(first[1]), "twice imported is one"
    client = mlflow.MlflowClient()
    experiment = await do(client.get_experiment_by_name, "old")
    assert experiment.tags == {"team": "vision"}
    runs = await do(lambda: client.search_runs([experiment.experiment_id], order_by=["start_time"]))
    assert [run.info.status for run in runs] == ["FINISHED", "RUNNING"]
    run = runs[0]
    assert run.data.params == {"lr": "0.1", "kind": "a"}
    assert run.data.tags["note"] == "kept"
    assert run.data.tags["tenuto.imported"] == f"mlflow run {old.info.run_id}"
    assert (run.info.start_time, run.info.end_time) == (1_700_000_000_000, 1_700_000_100_000)
    history = await do(client.get_metric_history, run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(step, 1 / (step + 1)) for step in range(2_500)]
    odd = await do(client.get_metric_history, run.info.run_id, "odd")
    assert math.isnan(odd[0].value)
    assert odd[1].value == 1.0
    assert await do(mlflow.artifacts.load_text, f"runs:/{run.info.run_id}/model/weights.txt") == "weights"
    assert (await world.get(f"/trials/{run.info.run_id}"))["hyperparameters"] == {"kind": "a", "lr": 0.1}

    number = run.info.run_id.partition("-")[0]
    for command in (("exp", "ls"), ("exp", "describe", number), ("trial", "describe", run.info.run_id), ("diff", "1-1", "1-2")):
        code, shown = await tenuto(*command)
        assert code == 0, shown
        assert "unmanaged" in shown, command

    # And back: into another store of MLflow's, once.
    other = str(tmp_path / "other")
    said = [await tenuto("exp", "export", number, "--to", "mlflow", other) for _ in range(2)]
    assert [code for code, _ in said] == [0, 0], said
    assert "2 runs exported" in said[0][1]
    assert "1 run exported, 1 exported before" in said[1][1], "the run that has not ended is written anew"
    back = mlflow.MlflowClient(tracking_uri=other)
    [experiment] = [item for item in back.search_experiments() if item.name == "old"]
    exported = back.search_runs([experiment.experiment_id], order_by=["start_time"])
    assert [item.info.status for item in exported] == ["FINISHED", "RUNNING"]
    assert exported[0].data.params == {"lr": "0.1", "kind": "a"}
    assert len(back.get_metric_history(exported[0].info.run_id, "loss")) == 2_500

    await check_tables(number, tmp_path / "tables")

    code, why = await tenuto("import", "mlflow", str(tmp_path / "nothing"))
    assert (code, "is no directory" in why) == (1, True), why
    code, why = await tenuto("import", "mlflow", source, "-e", "other")
    assert (code, "There is no experiment 'other'" in why) == (1, True), why


def records_of(directory: Path) -> list[Any]:
    """What is in an offline run: a log in LevelDB's form, of wandb's own records. Their checksums are compared."""
    from wandb.proto import wandb_internal_pb2

    [file] = directory.glob("*.wandb")
    data, at, parts, found = file.read_bytes(), 7, b"", []
    assert data[:4] == b":W&B"
    while at < len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        checksum, size, kind = struct.unpack("<IHB", data[at : at + 7])
        part = data[at + 7 : at + 7 + size]
        assert zlib.crc32(part, zlib.crc32(bytes([kind]))) == checksum
        at, parts = at + 7 + size, parts + part
        if kind in (1, 4):  # whole, or the last part
            found.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return found


async def test_an_export_for_wandb_is_what_its_own_library_writes(world: World, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb writes its runs: pip install 'tenuto[wandb]'")

    def make() -> None:
        mlflow.set_experiment("curves")
        with mlflow.start_run():
            mlflow.log_params({"lr": 0.1, "kind": "a"})
            for step in range(3):
                mlflow.log_metric("loss", 1 / (step + 1), step=step)

    await do(make)
    arguments = ("exp", "export", "1", "--to", "wandb", str(tmp_path / "out"))
    # wandb leaves a service behind until its process ends, so that process is another one.
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tenuto.cli.main", *arguments, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    assert (process.returncode, b"1 run exported: " in said) == (0, True), said
    code, again = await tenuto(*arguments)
    assert (code, "0 runs exported, 1 exported before" in again) == (0, True), again
    [run] = (tmp_path / "out" / "wandb").glob("offline-run-*")
    records = records_of(run)
    [start] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (start.project, start.display_name) == ("curves", "curves 1-1")
    assert {"lr": "0.1", "kind": '"a"'}.items() <= {item.key: item.value_json for item in start.config.update}.items()
    rows = [
        {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(int(row["_step"]), float(row["loss"])) for row in rows] == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
