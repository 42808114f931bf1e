"""What a test needs and cannot have skips it in one sentence, and fails it where it was to be installed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import mlflow_versions, real_parts


@pytest.mark.parametrize(("required", "outcome"), [("required", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_client_that_cannot_be_had_is_no_success_where_it_is_required(
    required: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, "", "No matching distribution found")

    monkeypatch.setenv(real_parts.REQUIRED, required)
    monkeypatch.setattr(mlflow_versions, "CLIENTS", tmp_path)
    monkeypatch.setattr(subprocess, "run", refused)
    with pytest.raises(outcome, match=r"MLflow's client 2\.22\.\d+ cannot be had .*No matching distribution found"):
        mlflow_versions.client_paths(mlflow_versions.MLFLOW_2)


def test_what_no_package_brings_skips_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(real_parts.REQUIRED, "required")
    with pytest.raises(pytest.skip.Exception):
        real_parts.lacks("There is no network.", installable=False)
