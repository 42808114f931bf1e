"""A submitted script on a cluster whose workers have an account of their own reaches only its own files and processes."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.postgres import server_account
from tenuto.kernel.account import find_account
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tests.support.live_cluster import ROOT, LiveCluster
from tests.support.reachable import way_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run workers as another account"),
]
MODELS = Path(__file__).parent / "models"
ACCOUNTS = ("nobody", "daemon", "games")


@dataclass
class World:
    cluster: LiveCluster
    account: pwd.struct_passwd
    open_directory: Path
    """All may write to it."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    account = pwd.getpwnam(next(name for name in ACCOUNTS if name != server_account()))
    directory = Path(tempfile.mkdtemp(prefix="tenuto-security-"))
    directory.chmod(0o711)
    open_directory = directory / "reports"
    open_directory.mkdir()
    open_directory.chmod(0o777)
    (directory / "mounts").mkdir()
    inside = way_in(find_account(account.pw_name), directory / "mounts")
    if inside is None:
        shutil.rmtree(directory)
        pytest.skip(f"{account.pw_name} cannot use {sys.executable}, and this machine lets nobody mount it elsewhere")
    cluster = LiveCluster(directory / "cluster", inside=inside)
    try:
        cluster.up("--worker-user", account.pw_name)
        yield World(cluster, account, open_directory)
    finally:
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Raid:
    """Findings of the script, while another user's trial ran beside it."""

    found: dict[str, Any]
    secrets: dict[str, str]
    logs: str
    error: str
    victim: dict[int, str]
    """Processes of the other trial, and those that runs are forked from: command lines by pid."""
    parts: list[int]
    victim_id: str
    own: str
    """The script's own allocation."""


@pytest.fixture(scope="module")
def raid(world: World) -> Raid:
    cluster = world.cluster
    victim = cluster.json("exp", "create", MODELS / "victim/config.yaml", MODELS / "victim")["id"]
    cluster.wait_for(lambda: any(event.type == "TrialProgressed" or event.type == "WorkersStarted" for event in cluster.events()))
    cluster.wait_for(lambda: len(cluster.workers()) > 0)
    secrets = _secrets(cluster, f"{victim}-1-1")
    parts = [process["pid"] for process in cluster.state()["processes"].values()]
    victims = _processes(cluster)
    context = world.open_directory / "spy"
    shutil.copytree(MODELS / "spy", context)
    report = world.open_directory / "report.json"
    everything = list(cluster.directory.resolve().rglob("*"))
    targets = {
        "files": [str(path) for path in everything if path.is_file() and not path.is_symlink()],
        "directories": [str(path) for path in [cluster.directory, *everything] if path.is_dir()],
        "cluster": [*parts, cluster.state()["supervisor_pid"]],
        "secret": str(cluster.directory / "rest.token"),
    }
    (context / "targets.json").write_text(json.dumps(targets))
    with (context / "config.yaml").open("a") as file:
        file.write(f"environment: {{variables: {{SPY_REPORT: {report}}}}}\n")
    spy = cluster.json("exp", "create", context / "config.yaml", context)["id"]
    cluster.wait_for(report.exists)
    cluster.cli("exp", "wait", str(spy), check=False)
    error = cluster.json("trial", "describe", f"{spy}-1")
    return Raid(
        found=json.loads(report.read_text()),
        secrets=secrets,
        logs=cluster.cli("exp", "logs", str(spy)).stdout,
        error=json.dumps(error),
        victim=victims,
        parts=parts,
        victim_id=str(victim),
        own=f"{spy}-1-1",
    )


def _secrets(cluster: LiveCluster, allocation_id: str) -> dict[str, str]:
    root = cluster.directory
    found = {str(path): path.read_text().strip() for path in [root / "rest.token", *root.rglob("*.password")]}
    with contextlib.closing(sqlite3.connect(root / "agent/agent.sqlite")) as database:
        rows = database.execute("SELECT token FROM runs WHERE allocation_id = ?", (allocation_id,)).fetchall()
    assert len(rows) == 1
    return {**found, "token": rows[0][0]}


def _processes(cluster: LiveCluster) -> dict[int, str]:
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if environment.get("TENUTO_CLUSTER_DIRECTORY") == str(cluster.directory.resolve()) and RUN_VARIABLE in environment:
                found[process.pid] = " ".join(process.cmdline())
    assert found
    return found


def test_it_has_an_account_without_rights(raid: Raid, world: World) -> None:
    assert (raid.found["user"], raid.found["groups"]) == (world.account.pw_uid, [])
    assert raid.found["own_secrets"] == []
    assert raid.found["home"] == str(world.cluster.directory.resolve() / "agent/home")
    owners = {psutil.Process(pid).uids().real for pid in raid.victim if psutil.pid_exists(pid)}
    assert owners == {world.account.pw_uid}, "warm processes and other trials have that account, too"


def test_it_reads_no_file_but_code(raid: Raid, world: World) -> None:
    root = world.cluster.directory.resolve()
    code, checkpoints = f"{root}/agent/contexts/", f"{root}/shared/checkpoints/"
    output = f"{root}/agent/runs/"  # of trials of the same account, as docs/security.md says
    allowed = (code, checkpoints, output)
    assert [path for path in raid.found["read"] if not path.startswith(allowed)] == []
    assert [path for path in raid.found["written"] if not path.startswith((checkpoints, output))] == []
    home = (f"{root}/agent/home", f"{root}/agent/runs/", f"{root}/shared/checkpoints", f"{root}/agent/contexts/")
    assert [path for path in raid.found["listed"] if not path.startswith(home)] == []


def test_it_learns_no_secret_of_other_processes(raid: Raid) -> None:
    assert raid.found["environments"] == {}
    open_to_it = {*raid.found["memory"], *raid.found["traced"]}
    assert {pid: raid.victim[pid] for pid in open_to_it if pid in raid.victim} == {}
    assert open_to_it.isdisjoint(raid.parts)
    assert raid.found["signalled"] == []


def test_the_agent_publishes_nothing_for_it(raid: Raid) -> None:
    """Neither as the trial's output, nor as its error."""
    for name, secret in raid.secrets.items():
        assert secret not in raid.logs, name
        assert secret not in raid.error, name


def test_the_cluster_goes_on(raid: Raid, world: World) -> None:
    """Though the agent was given a pipe to read that nobody writes to."""
    described = world.cluster.json("trial", "describe", raid.own.rsplit("-", 1)[0])
    assert described["state"] == "failed"


def test_training_works_under_that_account(raid: Raid, world: World, tmp_path: Path) -> None:
    """On one slot and on two; checkpoints are written by one run and read by the next."""
    cluster = world.cluster
    cluster.cli("exp", "kill", raid.own.partition("-")[0], check=False)
    cluster.cli("exp", "kill", raid.victim_id)
    for slots in (1, 2):
        config = tmp_path / f"{slots}.yaml"
        config.write_text(
            f"name: summing\nentrypoint: train.py\nresources: {{slots_per_trial: {slots}}}\n"
            "min_checkpoint_period: {batches: 2}\nsearcher: {name: single, metric: total, max_length: {batches: 20}}\n"
        )
        experiment = cluster.json("exp", "create", config, ROOT / "tests/support/scripts/summing")["id"]
        cluster.cli("exp", "wait", str(experiment))
        assert cluster.json("exp", "describe", str(experiment))["state"] == "completed"
    stored = [path for path in (cluster.directory / "shared/checkpoints").rglob("*") if path.is_file()]
    assert stored
    assert {path.stat().st_uid for path in stored} == {world.account.pw_uid}
