"""Records over REST: what is refused and why, and what is answered before anything has run. The stories are in tests/e2e."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCompleted, TrialRequested
from tenuto.schemas.events.trial import (
    CheckpointDeleted,
    CheckpointFile,
    CheckpointSaved,
    DataRecorded,
    EnvironmentRecorded,
    ValidationReported,
)
from tenuto.schemas.record import DataFingerprint, EnvironmentRecord, Hardware, Origin
from tests.support import gateway_world

CONFIG = """
name: digits
entrypoint: model_def:Trial
hyperparameters: {lr: {type: log, minval: -3, maxval: -1}}
searcher: {name: random, metric: loss, max_trials: 2, max_length: {batches: 100}}
reproducibility: {experiment_seed: 5}
"""
WHY = Reason(rule="test")
ENVIRONMENT = EnvironmentRecord(
    python="3.12", platform="Linux", packages={"torch": "2"}, loaded=("torch",),
    hardware=Hardware(machine="x86_64", cpu_model="CPU", cpu_cores=2, memory_gib=8),
)  # fmt: skip


def packed(source: bytes = b"class Trial: ...") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("model_def.py")
        info.size = len(source)
        tar.addfile(info, io.BytesIO(source))
    return buffer.getvalue()


class World(gateway_world.World):
    async def trained(
        self,
        experiment: int,
        loss: float = 0.5,
        fingerprint: str = "aa",
        environment: EnvironmentRecord = ENVIRONMENT,
        breaks: tuple[str, ...] = (),
    ) -> None:
        trial = f"{experiment}-1"
        data = DataFingerprint(name="train", path="/d", fingerprint=fingerprint, method="content", files=1, size_bytes=1)
        await self.record(
            TrialRequested(
                experiment_id=experiment, trial_id=trial, trial_number=1, hyperparameters={"lr": 0.01}, seed=9, target_length=100,
                reason=WHY,
            ),
            EnvironmentRecorded(
                trial_id=trial, allocation_id=f"{trial}-1", environment_hash=environment.digest(),
                environment=environment,
            ),
            DataRecorded(trial_id=trial, allocation_id=f"{trial}-1", data=data),
            ValidationReported(trial_id=trial, allocation_id=f"{trial}-1", batches=100, length=100, metrics={"loss": loss}),
            CheckpointSaved(
                trial_id=trial, allocation_id=f"{trial}-1", checkpoint_id=f"{trial}-1-100", batches=100, length=100,
                files=(CheckpointFile(path="model.safetensors", size_bytes=1, sha256=f"{loss}"),), size_bytes=1,
                location="file:///c", breaks=breaks,
            ),
        )  # fmt: skip

    async def post(self, path: str, body: Any) -> Any:
        response = await self.http.post(f"/api/v1{path}", json=body)
        assert response.status_code == 201, response.text
        return response.json()

    async def refused(self, method: str, path: str, **arguments: Any) -> tuple[int, str]:
        status, _, message = await self.error(method, path, **arguments)
        return status, message

    async def submitted(self, experiment: int) -> ExperimentSubmitted:
        [event] = await self.log.read(0, 10, types=["ExperimentSubmitted"], stream=f"request/{experiment}")
        assert isinstance(event.data, ExperimentSubmitted)
        return event.data


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world.gateway_world(database, tmp_path, World, CONFIG) as made:
        yield made


async def test_where_a_submission_came_from_is_recorded(world: World) -> None:
    origin = Origin(command_line="tenuto exp create", overrides={"hyperparameters.lr": "0.1"})
    assert (await world.submit(origin=origin.to_json().decode())).status_code == 201
    assert (await world.submitted(1)).origin == origin
    assert (await world.submit()).status_code == 201
    assert (await world.submitted(2)).origin is None
    refused = await world.submit(origin='{"no": 1}')
    assert refused.status_code == 400
    assert "part `origin` cannot be read" in refused.json()["error"]["message"]
    assert (await world.submit(origin="x" * (2 << 20))).status_code == 400


async def test_two_experiments_are_compared(world: World) -> None:
    await world.submit(archive=packed(b"class Trial:\n    x = 1\n"))
    await world.submit(archive=packed(b"class Trial:\n    x = 2\n"))
    await world.trained(1, 0.5, "aa")
    await world.trained(2, 0.6, "bb")
    found = await world.get("/diff?a=1&b=2")
    assert [(item["kind"], item["name"]) for item in found["differences"]] == [("data", "train"), ("code", "model_def.py")]
    assert "-    x = 1\n+    x = 2" in found["differences"][1]["detail"]
    results = found["results"]
    assert (results["best_a"], results["best_b"], results["metrics_equal"], results["weights_equal"]) == (0.5, 0.6, False, False)
    assert (await world.get("/diff?a=1-1&b=2"))["b"] == "2-1", "a trial is compared with the other's best trial"
    record = await world.get("/trials/1-1/record")
    assert record["environments"][ENVIRONMENT.digest()]["python"] == "3.12"


async def test_another_class_of_machine_is_named_first(world: World) -> None:
    await world.submit()
    await world.submit(
        CONFIG.replace("name: digits", "name: again\nresources: {priority: 9}\nmin_checkpoint_period: {batches: 7}"),
        origin=Origin(command_line="tenuto exp create", overrides={"name": '"again"'}).to_json().decode(),
        archive=packed(b"class Trial: ...  # again"),
    )
    other = ENVIRONMENT.model_copy(
        update={
            "hardware": Hardware(machine="x86_64", cpu_model="another CPU", cpu_cores=8, memory_gib=64),
            "threads": {"torch": "8", "cores_usable": "8"},
            "packages": ENVIRONMENT.packages | {"rich": "14"},
            "drivers": {"nvidia": "560"},
            "variables": {"LANG": "C"},
            "platform": "Linux 6.9",
        }
    )
    await world.trained(1)
    await world.trained(2, environment=other)
    found = (await world.get("/diff?a=1&b=2"))["differences"]
    assert (found[0]["kind"], found[0]["name"], found[0]["b"]) == ("hardware", "cpu_model", "another CPU")
    assert {item["name"] for item in found[1:]} >= {
        "cpu_cores",
        "torch",
        "rich",
        "nvidia",
        "LANG",
        "platform",
        "model_def.py",
        "name",
    }


async def test_before_anything_ran_configurations_are_compared(world: World) -> None:
    await world.submit()
    await world.submit(CONFIG.replace("max_trials: 2", "max_trials: 4"))
    found = await world.get("/diff?a=1&b=2")
    assert [item["name"] for item in found["differences"]] == ["searcher.max_trials"]
    assert found["results"]["trial_a"] is None
    assert len(found["gaps"]) == 3


@pytest.mark.parametrize(
    ("a", "b", "status", "message"),
    [
        ("1", "9", 404, "There is no experiment 9; `tenuto exp ls` lists those that there are."),
        ("1-1", "1", 404, "There is no trial 1-1; `tenuto exp describe 1` lists those of that experiment."),
        ("x", "1", 400, "'x' names neither an experiment, such as 3, nor a trial, such as 3-1."),
    ],
)
async def test_what_cannot_be_compared_is_said(world: World, a: str, b: str, status: int, message: str) -> None:
    await world.submit()
    assert await world.refused("GET", f"/diff?a={a}&b={b}") == (status, message)


async def test_a_reproduction_is_made_from_the_record_and_compared(world: World) -> None:
    await world.submit()
    assert await world.refused("POST", "/experiments/1/reproduce", json={}) == (404, "Experiment 1 has no trial yet.")
    await world.trained(1)
    assert await world.refused("POST", "/experiments/1/reproduce", json={"trial_id": "2-1"}) == (
        404, "Experiment 1 has no trial 2-1.",
    )  # fmt: skip
    child = await world.post("/experiments/1/reproduce", {})
    made = await world.submitted(child["id"])
    assert made.parent is not None
    assert (made.parent.relation, made.parent.trial_id) == ("reproduction", "1-1")
    assert [(item.name, item.fingerprint) for item in made.parent.data] == [("train", "aa")]
    config = json.loads(made.config.to_json())
    assert config["hyperparameters"]["lr"]["val"] == 0.01
    assert (config["searcher"]["trial_seed"], config["searcher"]["max_length"]["batches"]) == (9, 100)
    assert (await world.get("/experiments/2"))["parent_id"] == "1-1"
    early = await world.get("/experiments/2/reproduction")
    assert (early["equal"], early["ended"]) == (None, False)
    await world.trained(2)
    await world.record(ExperimentCompleted(experiment_id=2, best_trial_id="2-1", best_metric=0.5, trials=1, reason=WHY))
    report = await world.get("/experiments/2/reproduction")
    assert (report["equal"], report["ended"]) == (True, True)
    status, message = await world.refused("GET", "/experiments/1/reproduction")
    assert (status, message) == (400, "Experiment 1 reproduces no other; `tenuto diff` compares any two.")


async def test_a_reproduction_with_other_weights_is_not_equal(world: World) -> None:
    await world.submit()
    await world.trained(1)
    await world.post("/experiments/1/reproduce", {"trial_id": "1-1"})
    sentence = "the order of the records cannot be drawn again (Mine: why); draw it from (seed, epoch)"
    await world.trained(2, loss=0.5000001, breaks=(sentence,))
    report = await world.get("/experiments/2/reproduction")
    assert report["equal"] is False
    assert report["causes"] == [f"trial 2-1 is not exact: {sentence}"]
    assert (await world.get("/trials/2-1"))["breaks"] == [sentence]
    assert (await world.get("/trials/1-1"))["breaks"] == []


async def test_a_reproduction_starts_where_the_trial_had_started(world: World) -> None:
    await world.submit()
    await world.trained(1)
    copied = TrialRequested(
        experiment_id=1, trial_id="1-2", trial_number=2, hyperparameters={"lr": 0.1}, seed=10, target_length=200,
        source_checkpoint_id="1-1-1-100", reason=WHY,
    )  # fmt: skip
    reached = ValidationReported(trial_id="1-2", allocation_id="1-2-1", batches=200, length=200, metrics={"loss": 0.4})
    await world.record(copied, reached)
    child = await world.submitted((await world.post("/experiments/1/reproduce", {"trial_id": "1-2"}))["id"])
    assert child.parent is not None
    [source] = child.parent.sources
    assert (source.trial_number, source.seed, source.checkpoint_id, source.batches) == (1, 10, "1-1-1-100", 100)
    # A trial of another seed does not start from it.
    await world.trained(2)
    repeated = await world.submitted((await world.post("/experiments/2/reproduce", {"trial_id": "2-1"}))["id"])
    assert repeated.parent is not None
    assert repeated.parent.sources == ()
    await world.record(CheckpointDeleted(trial_id="1-1", checkpoint_id="1-1-1-100", reason=Reason(rule="test")))
    status, message = await world.refused("POST", "/experiments/1/reproduce", json={"trial_id": "1-2"})
    assert (status, message) == (
        409, "Trial 1-2 started from checkpoint 1-1-1-100, which is deleted, so it cannot be reproduced.",
    )  # fmt: skip


async def test_forks_and_continuations(world: World) -> None:
    await world.submit()
    await world.trained(1)
    forked = await world.post("/experiments/1/fork", {"overrides": {"searcher": {"max_trials": 3}}})
    made = await world.submitted(forked["id"])
    assert (made.config.searcher.max_trials, made.seed) == (3, 5)  # type: ignore[union-attr]
    assert made.origin is not None
    assert made.origin.overrides == {"searcher.max_trials": "3"}
    status, message = await world.refused("POST", "/experiments/1/fork", json={"overrides": {"searcher": {"max_trials": 0}}})
    assert status == 400
    assert "searcher.max_trials" in message
    longer = {"overrides": {"searcher": {"max_length": {"batches": 200}}}}
    status, message = await world.refused("POST", "/experiments/1/continue", json=longer)
    assert (status, message) == (409, "Experiment 1 still runs; continue it when it has ended, or cancel it first.")
    await world.record(ExperimentCompleted(experiment_id=1, best_trial_id="1-1", best_metric=0.5, trials=1, reason=WHY))
    child = await world.submitted((await world.post("/experiments/1/continue", longer))["id"])
    assert child.parent is not None
    assert [(item.trial_number, item.seed, item.checkpoint_id) for item in child.parent.sources] == [(1, 9, "1-1-1-100")]
    [source] = child.parent.sources
    assert [(item.length, item.metric) for item in source.validations] == [(100, 0.5)], "what it counts by at the rungs behind it"
    assert source.is_of(1, 9, {"lr": 0.01})
    assert not source.is_of(1, 9, {"lr": 0.2})
    status, message = await world.refused("POST", "/experiments/1/continue", json={"overrides": {"hyperparameters": {"lr": 1}}})
    assert status == 400
    assert message.startswith("hyperparameters.lr: cannot change when an experiment is continued")
    assert [one["id"] for one in await world.get("/experiments?parent=1")] == [child.experiment_id, made.experiment_id]
    assert await world.get(f"/experiments?parent={child.experiment_id}") == []


async def test_all_trials_are_continued_however_many_checkpoints_the_first_kept(world: World) -> None:
    await world.submit()
    await world.trained(1)
    await world.record(gateway_world.requested(2))
    async with world.log.pool.acquire() as connection:
        await connection.execute(
            """INSERT INTO trial_checkpoints (checkpoint_id, experiment_id, trial_number, trial_id, allocation_id, batches,
                   length, size_bytes, files, location, saved_us)
               SELECT format('1-%s-1-%s', trial, n), 1, trial, '1-' || trial, '1-' || trial || '-1', n, n, 1, '[]', 'file:///c', n
               FROM (VALUES (1, 60000), (2, 101)) AS kept (trial, last), generate_series(101, last) AS n"""
        )
    await world.record(ExperimentCompleted(experiment_id=1, best_trial_id="1-1", best_metric=0.5, trials=2, reason=WHY))
    longer = {"overrides": {"searcher": {"max_length": {"batches": 200}}}}
    child = await world.submitted((await world.post("/experiments/1/continue", longer))["id"])
    assert child.parent is not None
    assert [item.checkpoint_id for item in child.parent.sources] == ["1-1-1-60000", "1-2-1-101"]


async def test_nobody_goes_on_from_what_another_user_pickled_without_saying_so(world: World) -> None:
    await world.submit()
    await world.trained(1)
    await world.record(ExperimentCompleted(experiment_id=1, best_trial_id="1-1", best_metric=0.5, trials=1, reason=WHY))
    token = (await world.post("/users", {"name": "eve"}))["token"]
    longer = {"overrides": {"searcher": {"max_length": {"batches": 200}}}}
    headers = {"Authorization": f"Bearer {token}"}
    refused = await world.http.post("/api/v1/experiments/1/continue", json=longer, headers=headers)
    assert refused.status_code == 403
    assert "loads what its code pickled" in refused.json()["error"]["message"]
    trusting = await world.http.post("/api/v1/experiments/1/continue", json={**longer, "trust": True}, headers=headers)
    child = await world.submitted(trusting.json()["id"])
    assert child.parent is not None
    assert (child.user, child.parent.trusted_user) == ("eve", (await world.submitted(1)).user)


async def test_code_that_is_gone_cannot_be_run_again(world: World) -> None:
    await world.submit()
    await world.trained(1)
    for archive in (world.shared / "contexts").iterdir():
        archive.unlink()
    status, message = await world.refused("POST", "/experiments/1/reproduce", json={})
    assert status == 409
    assert message.startswith("The code of experiment 1 is gone: contexts/")
