"""Curves where there is no browser, of a real gateway: `--plot` in a terminal, and a notebook's view of the client's objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from tenuto.cli.errors import CliError
from tenuto.cli.main import app
from tenuto.client import Client
from tests.support.gateway_world import World, gateway_world, granted, requested, saved, validated

pytest.importorskip("plotille", reason="pip install 'tenuto[pictures]'")
LOG = "/mlflow/api/2.0/mlflow"


@pytest_asyncio.fixture
async def world(database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        monkeypatch.setenv("TENUTO_URL", f"http://127.0.0.1:{made.service.port}")
        monkeypatch.setenv("TENUTO_TOKEN_FILE", str(tmp_path / "token"))
        yield made


async def said(*arguments: str) -> str:
    done = await asyncio.to_thread(lambda: CliRunner().invoke(app, arguments))
    if isinstance(done.exception, CliError):  # `main` would print it
        return str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


async def test_curves_of_experiments_trials_and_unmanaged_runs(world: World) -> None:
    assert (await world.submit()).status_code == 201
    assert "Experiment 1 has no trial yet, and so no curve." in await said("exp", "describe", "1", "--plot")
    await world.record(requested(1), requested(2), granted("1-1-1"), granted("1-2-1"))
    assert "has no values of accuracy yet; there are no metrics yet." in await said("trial", "describe", "1-1", "--plot")
    reports = [validated(10 * step, accuracy=step / 10, loss=1 / step) for step in range(1, 9)]
    others = [replace_trial(report) for report in reports[:4]]
    await world.record(*reports, *others, saved(80))
    shown = await said("exp", "describe", "1", "--plot")
    assert "accuracy by batches, validation\n" in shown
    assert "1-1 (0.8 at 80)" in shown
    assert "1-2 (0.4 at 40)" in shown
    assert shown.index("1-1 (0.8") < shown.index("1-2 (0.4"), "the best trial comes first"
    assert "Also: loss (--metric)" in shown
    shown = await said("trial", "describe", "1-1", "--plot", "--metric", "loss", "--log")
    assert "validation (0.125 at 80)" in shown
    assert "has no values of x yet; there are accuracy, loss." in await said(
        "trial", "describe", "1-1", "--plot", "--metric", "x"
    )
    assert "give one of them" in await said("exp", "describe", "1", "--plot", "--json")

    experiment = (await world.http.post(f"{LOG}/experiments/create", json={"name": "<b>mine</b>"})).json()["experiment_id"]
    run = (await world.http.post(f"{LOG}/runs/create", json={"experiment_id": experiment})).json()["run"]["info"]["run_id"]
    points = [{"key": "error", "value": 1 / step, "timestamp": step, "step": step} for step in range(1, 50)]
    assert (await world.http.post(f"{LOG}/runs/log-batch", json={"run_id": run, "metrics": points})).status_code == 200
    assert "error by batches, training" in await said("exp", "describe", experiment, "--plot")
    assert "training (0.0204082 at 49)" in await said("trial", "describe", run, "--plot")

    def in_a_notebook() -> list[str]:
        with Client() as client:
            trial = client.get_trial("1-1")
            things = (client.get_experiment(2), client.get_experiment(1), trial, trial.list_checkpoints()[0], trial.validations())
            return [thing._repr_html_() for thing in things]

    unmanaged, managed, trial, checkpoint, table = await asyncio.to_thread(in_a_notebook)
    assert "&lt;b&gt;mine&lt;/b&gt;" in unmanaged
    assert "trial 1-1 with accuracy 0.8" in managed
    assert "hyperparameters.lr" in trial
    assert "1-1-1-80" in checkpoint
    assert table.count("<svg") == 2


def replace_trial(report: Any) -> Any:
    return report.model_copy(update={"trial_id": "1-2", "allocation_id": "1-2-1"})
