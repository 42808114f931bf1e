"""A submitted script on the cluster of a root that has no account for workers: it is root, and learns no secret."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.cluster import marked_processes
from tenuto.embedded.files import Layout
from tenuto.embedded.postgres import server_account
from tenuto.kernel.confinement import KEPT, can_confine
from tests.support.live_cluster import ROOT, LiveCluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not can_confine(), reason="only root has rights to withhold"),
]
MODELS = Path(__file__).parent / "models"


@dataclass
class Raid:
    """Findings of the script, while another trial ran beside it."""

    found: dict[str, Any]
    root: Path
    secrets: dict[str, str]
    commands: list[str]
    """Command lines of all processes of the machine at that time."""
    said: str
    """What `tenuto up` wrote."""
    victims: list[int]


@pytest.fixture(scope="module")
def cluster(server_directory: Path) -> Iterator[LiveCluster]:
    made = LiveCluster(server_directory / "as-root", cpu_slots=2)
    made.environment["TENUTO_WORKER_CONFINED"] = "1"  # else an account is used where the interpreter is open to all
    try:
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def raid(cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory) -> Raid:
    said = cluster.cli("up", "--detach", "--cpu-slots", "2").stderr
    root = cluster.directory.resolve()
    victim = cluster.json("exp", "create", MODELS / "victim/config.yaml", MODELS / "victim")["id"]
    cluster.wait_for(lambda: len(cluster.workers()) > 0)
    victims = [process.pid for process in cluster.workers()]
    everything = list(root.rglob("*"))
    parts = [process["pid"] for process in cluster.state()["processes"].values()]
    marked = [process.pid for process in marked_processes(Layout(root)) if process.pid not in victims]
    place = tmp_path_factory.mktemp("curious")
    report, context = place / "report.json", place / "model"
    shutil.copytree(MODELS / "curious", context)
    targets = {
        "files": [str(path) for path in everything if path.is_file() and not path.is_symlink()],
        "directories": [str(path) for path in [root, *everything] if path.is_dir()],
        "processes": sorted({*parts, *victims, cluster.state()["supervisor_pid"], *_services(marked)}),
        "postgres": int((root / "postgres/port").read_text()),
        "nats": int((root / "nats/port").read_text()),
    }
    (context / "targets.json").write_text(json.dumps(targets))
    with (context / "config.yaml").open("a") as file:
        file.write(f"environment: {{variables: {{SPY_REPORT: {report}}}}}\n")
    spy = cluster.json("exp", "create", context / "config.yaml", context)["id"]
    cluster.cli("exp", "wait", str(spy), check=False)
    assert report.exists(), cluster.cli("exp", "logs", str(spy)).stdout
    commands = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            commands.append(" ".join(process.cmdline()))
    secrets = _secrets(root, f"{victim}-1-1")
    cluster.cli("exp", "kill", str(victim))
    return Raid(json.loads(report.read_text()), root, secrets, commands, said, victims)


def _services(marked: list[int]) -> list[int]:
    """Of the cluster's processes those that no worker is forked from."""
    found = []
    for pid in marked:
        with contextlib.suppress(psutil.Error):
            if "zygote" not in " ".join(psutil.Process(pid).cmdline()):
                found.append(pid)
    return found


def _secrets(root: Path, allocation_id: str) -> dict[str, str]:
    found = {str(path): path.read_text().strip() for path in [root / "rest.token", *root.rglob("*.password")]}
    found |= json.loads((root / "bus-users/agents.json").read_text())
    with contextlib.closing(sqlite3.connect(root / "agent/agent.sqlite")) as database:
        ((found["token"],),) = database.execute("SELECT token FROM runs WHERE allocation_id = ?", (allocation_id,)).fetchall()
    return found


def test_up_says_what_the_code_can_do(raid: Raid) -> None:
    assert "Training code runs as root without root's rights over other accounts' files" in raid.said


def test_the_code_is_root_without_roots_rights(raid: Raid) -> None:
    assert raid.found["user"] == 0
    rights = {who: int(bits, 16) for who, bits in raid.found["rights"].items()}
    assert set(rights) == {"itself", "started"}
    assert all(bits & ~KEPT == 0 for bits in rights.values())


def test_it_reads_and_changes_no_file_but_those_of_workers(raid: Raid) -> None:
    own = tuple(f"{raid.root}/{name}/" for name in ("agent/contexts", "agent/runs", "shared/checkpoints"))
    assert [path for path in raid.found["read"] if not path.startswith(own)] == []
    assert [path for path in raid.found["written"] if not path.startswith(own)] == []
    assert [path for path in raid.found["listed"] if not f"{path}/".startswith(own)] == []


def test_it_sees_into_no_process(raid: Raid) -> None:
    for how in ("environments", "memory", "threads", "descriptors", "traced"):
        assert raid.found[how] == [], how


def test_no_command_line_has_a_secret(raid: Raid) -> None:
    assert raid.secrets
    for name, secret in raid.secrets.items():
        assert not any(secret in command for command in raid.commands), name


def test_database_and_bus_ask_for_a_password(raid: Raid) -> None:
    assert raid.found["postgres"] == "R10", "PostgreSQL wants SCRAM"
    assert "Authorization Violation" in raid.found["nats"]


def test_what_is_made_later_is_kept_from_it_too(raid: Raid, cluster: LiveCluster) -> None:
    """Files that are written anew or appear while the cluster is up, such as those of SQLite, have the keeper's account."""
    keeper = psutil.Process(cluster.pid("postgres")).username()
    assert keeper == server_account()
    cluster.cli("agent", "credentials", "later")
    for path in [*raid.root.iterdir(), *(raid.root / "agent").iterdir(), *(raid.root / "shared").iterdir()]:
        state = path.stat()
        if path.is_file() and path.owner() == "root":
            assert state.st_mode & stat.S_IRWXO | state.st_size == 0, path
    assert {(raid.root / "agent" / name).owner() for name in ("agent.sqlite", "agent.sqlite-wal")} == {keeper}


def test_training_works_like_that(raid: Raid, cluster: LiveCluster, tmp_path: Path) -> None:
    """On one slot and on two; checkpoints are written by one run and read by the next."""
    for slots in (1, 2):
        config = tmp_path / f"{slots}.yaml"
        config.write_text(
            f"name: summing\nentrypoint: train.py\nresources: {{slots_per_trial: {slots}}}\n"
            "min_checkpoint_period: {batches: 2}\nsearcher: {name: single, metric: total, max_length: {batches: 20}}\n"
        )
        experiment = cluster.json("exp", "create", config, ROOT / "tests/support/scripts/summing")["id"]
        cluster.cli("exp", "wait", str(experiment))
        assert cluster.json("exp", "describe", str(experiment))["state"] == "completed"


def test_a_start_without_it_gives_the_files_back(raid: Raid, cluster: LiveCluster) -> None:
    cluster.down()
    layout = Layout(raid.root)
    assert layout.token.owner() == server_account()
    layout.close_to_others(worker_user=False)
    assert {path.owner() for path in (layout.root, layout.token, layout.agent / "agent.sqlite", layout.nats)} == {"root"}
    assert os.stat(layout.root).st_mode & stat.S_ISUID == 0
    cluster.up()  # for tests that come after this one
