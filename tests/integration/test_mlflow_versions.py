"""Programs of people who have this or that version of MLflow's client: what they log is there afterwards, models too."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.gateway_world import World
from tests.support.mlflow_versions import MLFLOW_2, client_paths, environment
from tests.support.mlflow_world import API, do, mlflow_world, uri

mlflow = pytest.importorskip("mlflow", reason="MLflow's client is needed: pip install 'tenuto[mlflow]'")


@pytest.fixture(scope="module", params=["installed", MLFLOW_2])
def version(request: pytest.FixtureRequest) -> str:
    """A client that is there: an installation comes before any gateway, whose event loop it would hold up."""
    client_paths(request.param)
    return str(request.param)


@pytest_asyncio.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with mlflow_world(database, tmp_path) as made:
        yield made


async def run(world: World, version: str, code: str, **more: str) -> Any:
    """What the program prints last, as JSON. The client's version is in it."""
    token = Path(world.service.doors.base.settings.rest_token_file).read_text().strip()
    sign_in = {} if "MLFLOW_TRACKING_PASSWORD" in more else {"MLFLOW_TRACKING_TOKEN": token}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code,
        env=environment(version, MLFLOW_TRACKING_URI=uri(world), **sign_in, **more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()[-3_000:]
    found = json.loads(printed.decode().splitlines()[-1])
    assert found.pop("version").startswith("2.22." if version == MLFLOW_2 else "3."), "not the client that was meant"
    return found


FILES = """
import json, mlflow, tempfile
from pathlib import Path
mlflow.set_experiment("files")
with mlflow.start_run() as run:
    mlflow.log_text("of the root", "notes.txt")
    mlflow.log_text("deep", "a/b/deep.txt")
run_id, client = run.info.run_id, mlflow.MlflowClient()
down = Path(tempfile.mkdtemp())
one = Path(client.download_artifacts(run_id, "notes.txt", str(down)))
deep = Path(mlflow.artifacts.download_artifacts(f"runs:/{run_id}/a/b/deep.txt", dst_path=str(down)))
print(json.dumps({
    "version": mlflow.__version__,
    "one": one.read_text(), "deep": deep.read_text(), "text": mlflow.artifacts.load_text(f"runs:/{run_id}/notes.txt"),
    "folder": sorted(path.name for path in Path(client.download_artifacts(run_id, "a", str(down))).rglob("*.txt")),
    "listed": [item.path for item in client.list_artifacts(run_id)],
    "in a file": [item.path for item in client.list_artifacts(run_id, "notes.txt")],
}))
"""


async def test_single_files_come_down(world: World, version: str) -> None:
    assert await run(world, version, FILES) == {
        "one": "of the root",
        "deep": "deep",
        "text": "of the root",
        "folder": ["deep.txt"],
        "listed": ["a", "notes.txt"],
        "in a file": [],
    }


MODEL = """
import json, mlflow, mlflow.pyfunc, sys
class Doubling(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [2 * value for value in model_input]
mlflow.set_experiment("models")
with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.1)
    mlflow.log_metric("loss", 0.5)
    where = {"artifact_path": "doubling"} if mlflow.__version__.startswith("2.") else {"name": "doubling"}
    info = mlflow.pyfunc.log_model(python_model=Doubling(), pip_requirements=[], **where)
    mlflow.log_metric("after", 1.0)
again = mlflow.pyfunc.load_model(info.model_uri)
by_run = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/doubling")
found = mlflow.MlflowClient().get_run(run.info.run_id)
print(json.dumps({
    "version": mlflow.__version__, "status": found.info.status, "metrics": found.data.metrics, "params": found.data.params,
    "again": again.predict([1, 2]), "by_run": by_run.predict([3]),
}))
"""


async def test_a_model_is_logged_and_loaded_again(world: World, version: str) -> None:
    pytest.importorskip("pandas", reason="MLflow's models need it: pip install 'tenuto[frames]'")
    assert await run(world, version, MODEL) == {
        "status": "FINISHED",
        "metrics": {"loss": 0.5, "after": 1.0},
        "params": {"lr": "0.1"},
        "again": [2, 4],
        "by_run": [6],
    }


AUTOLOG = """
import json, mlflow, mlflow.sklearn, numpy
from sklearn.linear_model import LogisticRegression
mlflow.set_experiment("autologged")
mlflow.sklearn.autolog()
with mlflow.start_run() as run:
    LogisticRegression(C=0.5).fit(numpy.array([[0.0], [1.0], [2.0], [3.0]]), numpy.array([0, 0, 1, 1]))
found = mlflow.MlflowClient().get_run(run.info.run_id)
model = mlflow.sklearn.load_model(f"runs:/{run.info.run_id}/model")
print(json.dumps({
    "version": mlflow.__version__, "status": found.info.status, "C": found.data.params.get("C"),
    "score": found.data.metrics.get("training_accuracy_score"), "says": model.predict(numpy.array([[0.0], [3.0]])).tolist(),
    "estimator": found.data.tags.get("estimator_name"),
}))
"""


async def test_autologging_keeps_parameters_metrics_and_the_model(world: World, version: str) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas", reason="MLflow's autologging of scikit-learn needs it: pip install 'tenuto[frames]'")
    assert await run(world, version, AUTOLOG) == {
        "status": "FINISHED", "C": "0.5", "score": 1.0, "says": [0, 1], "estimator": "LogisticRegression",
    }  # fmt: skip


NAMED = (
    "import json, mlflow; print(json.dumps({'version': mlflow.__version__, 'id': mlflow.set_experiment('named').experiment_id}))"
)


async def test_a_name_and_a_token_sign_in(world: World, version: str) -> None:
    """MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD: HTTP Basic."""
    token = (await world.http.post("/api/v1/users", json={"name": "ada"})).json()["token"]
    found = await run(world, version, NAMED, MLFLOW_TRACKING_USERNAME="ada", MLFLOW_TRACKING_PASSWORD=token)
    assert found == {"id": "1"}
    assert (await world.get("/experiments"))[0]["user"] == "ada"


async def test_a_name_that_does_not_fit_is_refused(world: World) -> None:
    import httpx

    token = (await world.http.post("/api/v1/users", json={"name": "ada"})).json()["token"]
    await world.http.post("/api/v1/users", json={"name": "eve"})
    async with httpx.AsyncClient(base_url=str(world.http.base_url)) as stranger:
        for name, password in (("eve", token), ("ada", "wrong"), ("", token)):
            answer = await stranger.post(f"{API}/experiments/search", json={}, auth=(name, password))
            assert (answer.status_code, answer.json()["error_code"]) == (401, "UNAUTHENTICATED"), name
            assert "MLFLOW_TRACKING_PASSWORD" in answer.json()["message"]
        fits = await stranger.post(f"{API}/experiments/search", json={}, auth=("ada", token))
        assert fits.status_code == 200
        # A browser sends what it was given once at the bidding of any page: for it, and for our routes, only tokens count.
        lured = {"Origin": "http://elsewhere.example"}
        assert (await stranger.post(f"{API}/experiments/search", json={}, auth=("ada", token), headers=lured)).status_code == 401
        assert (await stranger.get("/api/v1/experiments", auth=("ada", token))).status_code == 401


async def test_logged_models_are_made_found_and_deleted(world: World, tmp_path: Path) -> None:
    if not hasattr(mlflow, "create_external_model"):
        pytest.skip("This MLflow has no logged models.")

    def work() -> dict[str, Any]:
        client = mlflow.MlflowClient()
        mlflow.set_experiment("many")
        found: dict[str, Any] = {}
        with mlflow.start_run() as run:
            experiment = run.info.experiment_id
            models = []
            for number in range(3):
                model = mlflow.initialize_logged_model(name=f"step {number}", model_type="net", tags={"kind": "ab"[number % 2]})
                mlflow.log_model_params({f"p{index}": str(number) for index in range(150)}, model_id=model.model_id)
                (tmp_path / "weights.bin").write_bytes(b"w" * (number + 1))
                client.log_model_artifact(model.model_id, str(tmp_path / "weights.bin"))
                mlflow.log_metric("acc", number / 10, step=number, model_id=model.model_id)
                mlflow.finalize_logged_model(model.model_id, "READY")
                models.append(model.model_id)
            client.log_outputs(run.info.run_id, [mlflow.entities.LoggedModelOutput(models[0], 7)])
        best = mlflow.search_logged_models(
            [experiment], "metrics.acc > 0.05 AND tags.kind = 'a' AND status = 'READY'", output_format="list"
        )
        by_acc = [{"field_name": "metrics.acc", "ascending": False}]
        ordered = mlflow.search_logged_models([experiment], order_by=by_acc, output_format="list")
        found["best"] = [(item.name, item.params["p149"], item.metrics[0].value, item.metrics[0].run_id) for item in best]
        found["ordered"] = [item.model_id for item in ordered]
        client.set_logged_model_tags(models[2], {"kind": "z"})
        client.delete_logged_model_tag(models[1], "kind")
        found["tags"] = [client.get_logged_model(item).tags.get("kind") for item in models]
        found["files"] = [(item.path, item.file_size) for item in client.list_logged_model_artifacts(models[2])]
        found["run"] = client.get_run(run.info.run_id)
        client.delete_logged_model(models[1])
        found["left"] = sorted(item.model_id for item in mlflow.search_logged_models([experiment], output_format="list"))
        return found

    found = await do(work)
    assert found["best"] == [("step 2", "2", 0.2, "1-1")]
    assert found["ordered"] == ["m-1-3", "m-1-2", "m-1-1"]
    assert found["tags"] == ["a", None, "z"]
    assert found["files"] == [("weights.bin", 3)]
    assert found["run"].data.metrics == {"acc": 0.2}
    assert [(item.model_id, item.step) for item in found["run"].outputs.model_outputs] == [("m-1-1", 7)]
    assert found["left"] == ["m-1-1", "m-1-3"]
    blobs = [path for path in (world.shared / "artifacts" / "blobs").rglob("*") if path.is_file()]
    assert sorted(path.stat().st_size for path in blobs) == [1, 3], "the files of a deleted model are gone"


async def test_whose_model_it_is_decides(world: World) -> None:
    tokens = {}
    for name in ("ada", "eve"):
        tokens[name] = (await world.http.post("/api/v1/users", json={"name": name})).json()["token"]

    async def ask(user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {tokens[user]}"}
        answer = await world.http.request(method, f"{API}{path}", headers=headers, json=body)
        return answer.status_code, answer.json()

    await ask("ada", "POST", "/experiments/create", {"name": "hers"})
    run_id = (await ask("ada", "POST", "/runs/create", {"experiment_id": "1"}))[1]["run"]["info"]["run_id"]
    eves = (await ask("eve", "POST", "/runs/create", {"experiment_id": "1"}))[1]["run"]["info"]["run_id"]
    status, made = await ask("ada", "POST", "/logged-models", {"experiment_id": "1", "name": "x", "source_run_id": run_id})
    assert (status, made["model"]["info"]["model_id"], made["model"]["info"]["status"]) == (200, "m-1-1", "LOGGED_MODEL_PENDING")
    point = {"run_id": eves, "key": "acc", "value": 1.0, "timestamp": 1, "model_id": "m-1-1"}
    for method, path, body in (
        ("PATCH", "/logged-models/m-1-1", {"status": "LOGGED_MODEL_READY"}),
        ("DELETE", "/logged-models/m-1-1", None),
        ("POST", "/logged-models/m-1-1/params", {"params": [{"key": "a", "value": "1"}]}),
        ("PATCH", "/logged-models/m-1-1/tags", {"tags": [{"key": "a", "value": "1"}]}),
        ("DELETE", "/logged-models/m-1-1/tags/a", None),
        ("POST", "/runs/log-metric", point),
        ("POST", "/logged-models", {"experiment_id": "1", "source_run_id": run_id}),
    ):
        status, said = await ask("eve", method, path, body)
        assert (status, said["error_code"]) == (403, "PERMISSION_DENIED"), (method, path, said)
    assert (await ask("eve", "GET", "/logged-models/m-1-1"))[0] == 200
    assert (await ask("eve", "GET", f"/runs/get?run_id={eves}"))[1]["run"]["data"]["metrics"] == [], "all or nothing"
    for method, path, body in (
        ("GET", "/logged-models/m-1-2", None),
        ("GET", "/logged-models/m-9-1", None),
        ("POST", "/logged-models", {"experiment_id": "9"}),
        ("POST", "/runs/outputs", {"run_id": eves, "models": [{"model_id": "m-1-2"}]}),
    ):
        assert (await ask("eve", method, path, body))[0] == 404, (method, path)
    assert (await ask("eve", "GET", "/logged-models/x"))[0] == 400
