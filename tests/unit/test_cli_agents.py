"""`agent ls` names the devices of each agent's slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli import agents


def agent(name: str, devices: Sequence[str], **more: Any) -> dict[str, Any]:
    kind = "cpu" if set(devices) <= {"cpu"} else "cuda"
    slots = [{"slot_id": n, "kind": kind, "device": device, "enabled": True} for n, device in enumerate(devices)]
    joined = {"id": name, "state": "joined", "pool": "default", "joined_us": 1_767_225_600_000_000}
    return {**joined, "slots": slots, "runtimes": ["process"], "notice": "", **more}


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        (["NVIDIA H100"] * 2, "NVIDIA H100"),
        (["NVIDIA H100", "NVIDIA A100", "NVIDIA H100"], "1 NVIDIA A100, 2 NVIDIA H100"),
        (["cpu", "cpu"], "cpu"),
        ([""], ""),
    ],
)
def test_devices_have_a_column(monkeypatch: pytest.MonkeyPatch, devices: list[str], shown: str) -> None:
    class Rest:
        def get(self, path: str) -> Any:
            return [agent("node-1", devices)] if path == "/agents" else None

    monkeypatch.setattr(agents, "client", lambda _: Rest())
    monkeypatch.setattr(agents, "items", lambda found: found)
    done = CliRunner().invoke(agents.app, ["ls"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    [head] = [line for line in lines if "devices" in line]
    [row] = [line for line in lines if "node-1" in line]
    begins, ends = head.index("devices"), head.index("runtimes")
    assert row[begins:ends].strip(" │") == shown


def test_an_agent_that_runs_in_an_image_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rest:
        def get(self, path: str) -> Any:
            return [agent("node-1", ["cpu"], image="example.org/vision:3"), agent("node-2", ["cpu"])]

    monkeypatch.setattr(agents, "client", lambda _: Rest())
    done = CliRunner().invoke(agents.app, ["ls"], env={"COLUMNS": "200"})
    first, second = [line for line in done.output.splitlines() if "node-" in line]
    assert "process in example.org/vision:3" in first
    assert " in " not in second
