"""`tenuto check` on machines that cannot train: what is said, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tenuto.checking import facts
from tenuto.checking.machine import DriverFacts, MachineFacts, TorchFacts
from tenuto.cli.main import app

GOOD = MachineFacts(cores=4, memory_bytes=8 << 30, data_directory="/data", free_bytes=100 << 30, port=8080)


def checked(monkeypatch: pytest.MonkeyPatch, torch: TorchFacts, driver: DriverFacts, *options: str) -> tuple[int, str]:
    monkeypatch.setattr(facts, "machine_facts", lambda layout: GOOD)
    monkeypatch.setattr(facts, "torch_facts", lambda: torch)
    monkeypatch.setattr(facts, "driver_facts", lambda: driver)
    done = CliRunner().invoke(app, ["check", *options])
    return done.exit_code, done.stdout


def test_without_torch_training_is_not_run_and_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = checked(monkeypatch, TorchFacts(missing=True), DriverFacts())
    assert code == 0
    assert "not run  training" in said
    assert "pip install 'tenuto[torch]'" in said


def test_a_driver_that_does_not_answer_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = checked(monkeypatch, TorchFacts(version="2.9", cuda="12.8"), DriverFacts(error="no answer"), "--json")
    assert code == 1
    told = json.loads(said)
    assert not told["ok"]
    assert {"subject": "training", "level": "not run", "found": "the GPUs cannot be read", "advice": ""} in told["findings"]


def test_facts_of_this_machine_can_be_read(tmp_path: Path) -> None:
    from tenuto.embedded.files import Layout

    found = facts.machine_facts(Layout.of(tmp_path / "deep" / "cluster"))
    assert found.cores >= 1
    assert found.memory_bytes > 0
    assert found.free_bytes > 0
    assert not found.directory_error
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_looked_at_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tenuto.embedded.files import Layout

    def closed(self: Path, *_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    layout = Layout.of(tmp_path / "closed" / "cluster")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", closed)
        patched.setattr(facts, "is_up", lambda layout: False)
        found = facts.machine_facts(layout)
    assert "Permission denied" in found.directory_error


def test_the_cluster_of_a_check_has_no_settings_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenuto.checking import training

    monkeypatch.setenv("TENUTO_ANCHOR_TARGETS", "file:///somewhere")
    monkeypatch.setenv("TENUTO_POOL", "gpus")
    monkeypatch.setenv("TENUTO_WORKER_CONFINED", "1")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    found = training._environment()
    assert "TENUTO_ANCHOR_TARGETS" not in found
    assert "TENUTO_POOL" not in found
    assert found["TENUTO_WORKER_CONFINED"] == "1"
    assert found["HTTPS_PROXY"] == "http://proxy"
