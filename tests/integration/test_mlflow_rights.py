"""What MLflow's clients may not do, and what they are told: in MLflow's form, and by the one table of rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tenuto.services.gateway.experiments.adapters.deleting import Remover
from tenuto.services.gateway.mlflow.adapters import files as artifacts
from tenuto.services.gateway.mlflow.adapters import run_data
from tenuto.services.gateway.mlflow.queries import runs as projected_runs
from tests.support.gateway_world import CONTEXT, World, granted, requested, validated
from tests.support.mlflow_world import API, FILES, do, mlflow_world
from tests.support.waiting import until_async

mlflow = pytest.importorskip("mlflow", reason="MLflow's client is needed: pip install 'tenuto[mlflow]'")
MlflowClient, MlflowException = mlflow.MlflowClient, mlflow.MlflowException
Metric, Param, RunTag = mlflow.entities.Metric, mlflow.entities.Param, mlflow.entities.RunTag


@pytest_asyncio.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with mlflow_world(database, tmp_path, artifact_bytes_max=20_000) as made:
        yield made


async def user(world: World, name: str) -> str:
    answer = await world.http.post("/api/v1/users", json={"name": name})
    return str(answer.json()["token"])


async def test_what_may_not_be_is_refused_in_mlflows_form(world: World) -> None:
    client = MlflowClient()
    experiment = await do(client.create_experiment, "rules")
    with pytest.raises(MlflowException, match="already") as refused:
        await do(client.create_experiment, "rules")
    assert refused.value.error_code == "RESOURCE_ALREADY_EXISTS"
    run_id = (await do(client.create_run, experiment)).info.run_id
    await do(client.log_param, run_id, "lr", "0.1")
    await do(client.log_param, run_id, "lr", "0.1")
    with pytest.raises(MlflowException, match="never"):
        await do(client.log_param, run_id, "lr", "0.2")
    with pytest.raises(MlflowException, match="never"):
        await do(lambda: client.log_batch(run_id, [Metric("loss", 1.0, 1, 0)], [Param("lr", "0.3")], [RunTag("t", "x")]))
    run = await do(client.get_run, run_id)
    assert not run.data.metrics, "a batch is written whole or not at all"
    assert "t" not in run.data.tags
    with pytest.raises(MlflowException, match="no run 1-7") as refused:
        await do(client.get_run, "1-7")
    assert refused.value.error_code == "RESOURCE_DOES_NOT_EXIST"
    assert await do(client.get_experiment_by_name, "nothing") is None
    with pytest.raises(MlflowException, match="run_id"):
        await do(client.get_run, "x")

    async def refused_with(status: int, code: str, method: str, path: str, **arguments: Any) -> str:
        answer = await world.http.request(method, path, **arguments)
        assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
        assert set(answer.json()) == {"error_code", "message"}
        return str(answer.json()["message"])

    assert "not part of" in await refused_with(404, "ENDPOINT_NOT_FOUND", "POST", f"{API}/registered-models/create", json={})
    wrong = "INVALID_PARAMETER_VALUE"
    batch = {"run_id": run_id, "metrics": [{"key": "a", "value": 1, "timestamp": 1}] * 1001}
    assert "1000" in await refused_with(400, wrong, "POST", f"{API}/runs/log-batch", json=batch)
    point = {"run_id": run_id, "key": "a\nb", "value": 1, "timestamp": 1}
    await refused_with(400, wrong, "POST", f"{API}/runs/log-metric", json=point)
    await refused_with(
        400, "INVALID_PARAMETER_VALUE", "POST", f"{API}/runs/log-metric", json={**point, "key": "a", "step": 2**63}
    )
    await refused_with(400, wrong, "POST", f"{API}/runs/log-metric", content=b"{")
    await refused_with(400, wrong, "GET", f"{API}/runs/get?nonsense=1")
    await refused_with(
        400, "INVALID_PARAMETER_VALUE", "GET", f"{API}/metrics/get-history?run_id={run_id}&metric_key=a&page_token=-1"
    )
    root = f"{FILES}/1/{run_id}/artifacts"
    await refused_with(413, "RESOURCE_LIMIT_EXCEEDED", "PUT", f"{root}/big", content=b"x" * 20_001)
    for path in ("a/%2e%2e/b", "..%2f..%2fx", "a//b", "a%5cb", "%2e/a"):
        answer = await world.http.put(httpx.URL(f"{root}/{path}"), content=b"x")
        assert answer.status_code in (400, 404), path
    await refused_with(404, "RESOURCE_DOES_NOT_EXIST", "PUT", f"{FILES}/7/{run_id}/artifacts/a", content=b"x")
    assert (await world.http.put(f"{root}/a", content=b"x")).status_code == 200
    await refused_with(409, "INVALID_STATE", "PUT", f"{root}/a/b", content=b"x")
    for number in range(10):
        answer = await world.http.put(f"{root}/large/{number}", content=b"x" * 20_000)
    assert (answer.status_code, answer.json()["error_code"]) == (413, "RESOURCE_LIMIT_EXCEEDED")
    assert (await world.http.put(f"{root}/a", content=b"yy")).status_code == 200
    stored = sorted(path.stat().st_size for path in (world.shared / "artifacts" / "blobs").rglob("*") if path.is_file())
    assert stored == [2] + [20_000] * 9, "what was refused or replaced is gone"
    assert (await world.http.get(f"{root}/a")).headers["content-disposition"].startswith("attachment")
    assert (await world.http.delete(f"{root}/large")).status_code == 200
    assert (await world.http.get(f"{root}/large/1")).status_code == 404


async def test_only_its_maker_and_admins_change_a_run(world: World) -> None:
    ada, eve = await user(world, "ada"), await user(world, "eve")

    async def ask(token: str, method: str, path: str, **arguments: Any) -> httpx.Response:
        return await world.http.request(method, path, headers={"Authorization": f"Bearer {token}"}, **arguments)

    created = await ask(ada, "POST", f"{API}/experiments/create", json={"name": "hers"})
    assert created.json() == {"experiment_id": "1"}
    run_id = (await ask(ada, "POST", f"{API}/runs/create", json={"experiment_id": "1"})).json()["run"]["info"]["run_id"]
    root = f"{FILES}/1/{run_id}/artifacts"
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", f"{API}/runs/update", {"run_id": run_id, "status": "FAILED"}),
        ("POST", f"{API}/runs/delete", {"run_id": run_id}),
        ("POST", f"{API}/runs/restore", {"run_id": run_id}),
        ("POST", f"{API}/runs/log-metric", {"run_id": run_id, "key": "a", "value": 1, "timestamp": 1}),
        ("POST", f"{API}/runs/log-parameter", {"run_id": run_id, "key": "a", "value": "1"}),
        ("POST", f"{API}/runs/log-batch", {"run_id": run_id}),
        ("POST", f"{API}/runs/log-inputs", {"run_id": run_id}),
        ("POST", f"{API}/runs/set-tag", {"run_id": run_id, "key": "a", "value": "1"}),
        ("POST", f"{API}/runs/delete-tag", {"run_id": run_id, "key": "a"}),
        ("POST", f"{API}/experiments/update", {"experiment_id": "1", "new_name": "still hers"}),
        ("POST", f"{API}/experiments/delete", {"experiment_id": "1"}),
        ("POST", f"{API}/experiments/restore", {"experiment_id": "1"}),
        ("POST", f"{API}/experiments/set-experiment-tag", {"experiment_id": "1", "key": "a", "value": "1"}),
        ("POST", f"{API}/experiments/delete-experiment-tag", {"experiment_id": "1", "key": "a"}),
        ("PUT", f"{root}/f", {}),
        ("DELETE", f"{root}/f", {}),
    ]
    for method, path, body in changes:
        answer = await ask(eve, method, path, json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (403, "PERMISSION_DENIED"), path
        assert "ada's" in answer.json()["message"]
        assert (await ask("none", method, path, json=body)).json()["error_code"] == "UNAUTHENTICATED"
    for method, path, body in changes:
        assert (await ask(ada, method, path, json=body)).status_code == 200, path
    # Others read it, and log runs of their own into the same experiment.
    assert (await ask(eve, "GET", f"{API}/runs/get?run_id={run_id}")).status_code == 200
    own = (await ask(eve, "POST", f"{API}/runs/create", json={"experiment_id": "1"})).json()["run"]["info"]["run_id"]
    assert (await ask(ada, "POST", f"{API}/runs/set-tag", json={"run_id": own, "key": "a", "value": "1"})).status_code == 403
    # A later user of the same name is another one.
    assert (await world.http.delete("/api/v1/users/eve")).status_code == 200
    other = await user(world, "eve")
    answer = await ask(other, "POST", f"{API}/runs/set-tag", json={"run_id": own, "key": "a", "value": "1"})
    assert "an earlier user eve" in answer.json()["message"]


async def test_tenutos_own_trials_are_read_and_not_written(world: World) -> None:
    assert (await world.submit()).status_code == 201
    await world.record(requested(1), granted("1-1-1"), validated(10, accuracy=0.5), validated(20, accuracy=0.75))
    client = MlflowClient()
    run = await do(client.get_run, "1-1")
    assert (run.info.status, run.data.params["lr"], run.data.metrics) == ("RUNNING", "0.1", {"accuracy": 0.75})
    history = await do(client.get_metric_history, "1-1", "accuracy")
    assert [(point.step, point.value) for point in history] == [(10, 0.5), (20, 0.75)]
    found = await do(lambda: client.search_runs(["1"], "metrics.accuracy > 0.7 and params.lr = '0.1'"))
    assert [run.info.run_id for run in found] == ["1-1"]
    assert [item.name for item in await do(client.search_experiments)] == ["digits"]
    assert (await do(client.get_experiment, "1")).tags["tenuto.state"] == "active"
    for change in (lambda: client.log_metric("1-1", "x", 1.0), lambda: client.create_run("1")):
        with pytest.raises(MlflowException, match="Tenuto"):
            await do(change)


async def test_what_a_private_workspace_holds_is_not_there_by_this_door_either(world: World) -> None:
    ada, eve = [{"Authorization": f"Bearer {await user(world, name)}"} for name in ("ada", "eve")]

    async def ask(who: dict[str, str], method: str, path: str, **arguments: Any) -> httpx.Response:
        return await world.http.request(method, path, headers=who, **arguments)

    assert (await ask(ada, "POST", "/api/v1/workspaces", json={"name": "vault", "private": True})).status_code == 201
    files: Any = {"config": (None, world.config + "\nresources: {workspace: vault}"), "context": ("c.tar.gz", CONTEXT)}
    assert (await ask(ada, "POST", "/api/v1/experiments", files=files)).status_code == 201
    await world.record(requested(1), granted("1-1-1"), validated(10, accuracy=0.5))
    root = f"{FILES}/1/1-1/artifacts"
    for path in (
        f"{API}/runs/get?run_id=1-1", f"{API}/metrics/get-history?run_id=1-1&metric_key=accuracy",
        f"{API}/artifacts/list?run_id=1-1", f"{API}/experiments/get?experiment_id=1", f"{FILES}?path=1/1-1/artifacts",
        f"{root}/f",
    ):  # fmt: skip
        assert (await ask(eve, "GET", path)).json()["error_code"] == "RESOURCE_DOES_NOT_EXIST", path
    for path, body in (
        ("runs/set-tag", {"run_id": "1-1", "key": "a", "value": "1"}), ("experiments/delete", {"experiment_id": "1"}),
    ):  # fmt: skip
        assert (await ask(eve, "POST", f"{API}/{path}", json=body)).json()["error_code"] == "RESOURCE_DOES_NOT_EXIST", path
    for who, seen in ((ada, ["1-1"]), (eve, [])):
        runs = (await ask(who, "POST", f"{API}/runs/search", json={"experiment_ids": ["1"]})).json()["runs"]
        assert [run["info"]["run_id"] for run in runs] == seen
        assert len((await ask(who, "POST", f"{API}/experiments/search", json={})).json()["experiments"]) == len(seen)
    # A token that is limited to reading starts nothing and changes nothing.
    created = (await ask(eve, "POST", f"{API}/experiments/create", json={"name": "hers"})).json()["experiment_id"]
    run = (await ask(eve, "POST", f"{API}/runs/create", json={"experiment_id": created})).json()["run"]["info"]["run_id"]
    made = await ask(eve, "POST", "/api/v1/users/eve/tokens", json={"label": "reads", "permissions": ["experiment.view"]})
    reads = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await ask(reads, "GET", f"{API}/runs/get?run_id={run}")).status_code == 200
    for path, body in (
        ("runs/create", {"experiment_id": created}), ("experiments/create", {"name": "another"}),
        ("runs/create", {"experiment_id": "0"}),
        ("runs/set-tag", {"run_id": run, "key": "a", "value": "1"}), ("experiments/delete", {"experiment_id": created}),
    ):  # fmt: skip
        assert (await ask(reads, "POST", f"{API}/{path}", json=body)).json()["error_code"] == "PERMISSION_DENIED", path


async def test_what_runs_log_is_bounded_and_goes_with_their_experiment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client, door = MlflowClient(), world.service.doors.plugins["mlflow"]
    experiment = await do(client.create_experiment, "bounded")
    runs = [(await do(client.create_run, experiment)).info.run_id for _ in range(3)]
    points = [Metric("loss", step / 2, 1, step) for step in range(5)]
    monkeypatch.setattr(run_data, "POINTS_MAX", 5)
    for _ in range(2):
        await do(client.log_batch, runs[0], points)  # the same again adds nothing
    with pytest.raises(MlflowException, match="would be 6 values of the run's metrics; the most is 5: log every n-th step"):
        await do(client.log_metric, runs[0], "loss", 9.0, 1, 9)
    assert len(await do(client.get_metric_history, runs[0], "loss")) == 5
    assert (await do(client.get_run, runs[0])).data.metrics == {"loss": 2.0}
    await do(client.log_text, runs[0], "hello", "notes.txt")
    monkeypatch.setattr(projected_runs, "CHARACTERS_MAX", 1)
    asked = {"experiment_ids": [experiment], "max_results": 3}
    page = (await world.http.post(f"{API}/runs/search", json=asked)).json()
    assert (len(page["runs"]), page["next_page_token"]) == (1, "1"), "it ends with the run that is beyond the bound"
    frames = await do(lambda: mlflow.search_runs([experiment], output_format="list"))
    assert sorted(run.info.run_id for run in frames) == runs, "MLflow's function asks for page after page"

    [blob] = [item.blob for item in await door.artifacts.beneath((1, 1), "")]
    assert (await world.http.delete("/api/v1/experiments/1?now=true")).status_code == 200
    await until_async(lambda: world.get("/experiments/1"), lambda found: found["deleted_us"] is not None)
    for late in (lambda: client.log_metric(runs[1], "loss", 1.0), lambda: client.get_run(runs[1])):
        with pytest.raises(MlflowException, match="Experiment 1, of run 1-2, is deleted"):
            await do(late)
    with pytest.raises(MlflowException, match="is deleted, or scheduled by Tenuto, and takes no unmanaged runs"):
        await do(client.create_run, experiment)
    assert await do(client.search_runs, [experiment]) == await do(client.search_experiments) == []
    [event] = await world.log.read(0, 1_000, types=["ExperimentDeleted"])
    remover = Remover(world.service.doors.experiments.views._pool, world.shared / "contexts", door.forget)
    for _ in range(2):
        await remover.remove(event)
    for table in (*run_data.TABLES, "unmanaged_artifacts"):
        assert await world.service.doors.experiments.views._pool.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    assert not list(world.shared.rglob(Path(blob).name))
    assert await do(client.create_experiment, "bounded") == "2"


async def test_artifacts_of_an_experiment_and_of_a_user_have_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "EXPERIMENT_BYTES_FACTOR", 2)
    monkeypatch.setattr(artifacts, "USER_BYTES_FACTOR", 3)
    headers = {"Authorization": f"Bearer {await user(world, 'ada')}"}

    async def asked(method: str, path: str, **arguments: Any) -> httpx.Response:
        return await world.http.request(method, path, headers=headers, **arguments)

    async def run(experiment: str) -> str:
        made = await asked("POST", f"{API}/runs/create", json={"experiment_id": experiment})
        return f"{FILES}/{experiment}/{made.json()['run']['info']['run_id']}/artifacts"

    async def totals() -> dict[str, tuple[int, int]]:
        rows = await world.service.doors.plugins["mlflow"].artifacts._pool.fetch("SELECT * FROM unmanaged_artifact_totals")
        return {row["owner"]: (row["files"], row["size_bytes"]) for row in rows}

    one, two = [
        (await asked("POST", f"{API}/experiments/create", json={"name": name})).json()["experiment_id"] for name in ("one", "two")
    ]
    first, second, elsewhere = await run(one), await run(one), await run(two)
    file = b"x" * 20_000
    assert (await asked("PUT", f"{first}/a", content=file)).status_code == 200
    for _ in range(3):  # the same path again is the same file
        assert (await asked("PUT", f"{second}/b", content=file)).status_code == 200
    full = await asked("PUT", f"{first}/c", content=b"x")
    assert (full.status_code, full.json()["error_code"]) == (413, "RESOURCE_LIMIT_EXCEEDED")
    assert f"The artifacts of experiment {one} would have 40.0 kB together, and the most is 40.0 kB" in full.json()["message"]
    assert (await asked("PUT", f"{elsewhere}/a", content=file)).status_code == 200
    full = await asked("PUT", f"{elsewhere}/b", content=b"x" * 1_000)
    assert "The artifacts of all runs of ada would have 61.0 kB together" in full.json()["message"]
    assert (await world.http.get(f"{elsewhere}/b")).status_code == 404, "nothing of it is kept"
    assert await totals() == {f"experiment/{one}": (2, 40_000), f"experiment/{two}": (1, 20_000), "user/ada": (3, 60_000)}
    assert (await asked("DELETE", f"{first}/a")).status_code == 200
    assert (await asked("PUT", f"{elsewhere}/b", content=b"x" * 1_000)).status_code == 200
    put = [asked("PUT", f"{path}/{name}", content=b"x" * 100) for path in (first, second, elsewhere) for name in "defgh"]
    assert {answer.status_code for answer in await asyncio.gather(*put)} == {200}, "all at once"
    await world.service.doors.plugins["mlflow"].artifacts.delete_experiment(int(one))
    assert await totals() == {f"experiment/{two}": (7, 21_500), "user/ada": (7, 21_500)}
    monkeypatch.setattr(artifacts, "FILES_OF_USER_MAX", 7)
    assert "would have 8 artifacts" in (await asked("PUT", f"{elsewhere}/z", content=b"")).json()["message"]
