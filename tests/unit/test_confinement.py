"""Root without its rights over other accounts, and what of a cluster is kept from it."""

from __future__ import annotations

import json
import os
import pwd
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.kernel.account import check_account, confined_root
from tenuto.kernel.anchor_targets import FileTarget
from tenuto.kernel.confinement import KEPT, OF_CONTAINERS, can_confine
from tenuto.kernel.private_files import keep_as, make_private, private, take_back, write_private
from tenuto.kernel.storage.stores import write_stores
from tenuto.schemas.anchors import Anchor, sign
from tenuto.workers.agent import secret_masks
from tenuto.workers.agent.database import open_database
from tenuto.workers.agent.runtimes.files import RunFiles
from tenuto.workers.agent.runtimes.process.processes import kill, spawn

pytestmark = pytest.mark.skipif(not can_confine(), reason="only root has rights to withhold")
KEEPER = 65_534
LOOK = """
import json, os, sys
def can(path, flags):
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "rights": int(status["CapEff"], 16) | int(status["CapPrm"], 16) | int(status["CapInh"], 16),
    "bounds": int(status["CapBnd"], 16),
    "read": [path for path in sys.argv[2:] if can(path, os.O_RDONLY)],
    "environment": can(f"/proc/{sys.argv[1]}/environ", os.O_RDONLY) and bool(open(f"/proc/{sys.argv[1]}/environ").read()),
    "memory": can(f"/proc/{sys.argv[1]}/mem", os.O_RDONLY),
    "variables": sorted(os.environ),
}))
"""


def _look(*paths: Path, **environment: str) -> dict[str, object]:
    command = [sys.executable, "-I", "-S", "-c", LOOK, str(os.getpid()), *map(str, paths)]
    process = confined_root().start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    found: dict[str, object] = json.loads(out)
    return found


def test_it_reads_what_is_roots_and_nothing_that_is_closed_to_root(tmp_path: Path) -> None:
    own, others = tmp_path / "own", tmp_path / "others"
    for path in (own, others):
        path.write_text("secret")
        path.chmod(0o600)
    os.chown(others, KEEPER, KEEPER)
    found = _look(own, others, A="b")
    assert found["read"] == [str(own)]
    assert (found["environment"], found["memory"]) == (False, False), "processes with more rights are closed to it"
    assert isinstance(found["rights"], int)
    assert isinstance(found["bounds"], int)
    assert (found["rights"] & ~KEPT, found["bounds"] & ~KEPT) == (0, 0)
    assert {"A"} <= {*found["variables"]} <= {"A", "LC_CTYPE"}  # type: ignore[misc]


def test_it_reads_what_trials_in_containers_open_to_their_group(tmp_path: Path) -> None:
    """A trial whose checkpoint was saved in a container goes on as a process."""
    saved, closed = tmp_path / "saved", tmp_path / "closed"
    found = pwd.getpwnam(OF_CONTAINERS)
    for path, mode in ((saved, 0o660), (closed, 0o600)):
        path.write_text("weights")
        path.chmod(mode)
        os.chown(path, found.pw_uid, found.pw_gid)
    assert _look(saved, closed)["read"] == [str(saved)]


def test_nothing_of_the_users_is_loaded_before_the_rights_are_gone(tmp_path: Path) -> None:
    """A library that LD_PRELOAD names would be: this one is no library, of which the loader complains wherever it tries."""
    library = tmp_path / "library.so"
    library.write_text("no library")
    process = confined_root().start(
        ["/bin/sh", "-c", "exit 0"], {"LD_PRELOAD": str(library)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, said = process.communicate(timeout=60)
    assert said.decode().count(str(library)) == 1, "by the shell alone"


def test_a_worker_that_starts_cold_has_no_rights(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    worker = [sys.executable, "-I", "-S", "-c", LOOK, str(os.getpid())]
    spawned = spawn(worker, files, {"A": "b"}, tmp_path, confined_root())
    try:
        spawned.go()
        os.waitpid(spawned.identity.pid, 0)
    finally:
        kill(spawned.identity)
    found = json.loads(files.stdout.read_text())
    assert found["rights"] & ~KEPT == 0
    assert not found["environment"]
    assert files.exit.read_text() == "0 exited\n"


def test_private_files_of_a_kept_directory_belong_to_its_keeper(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir(mode=0o700)
    (directory / "earlier").write_text("secret")
    (directory / "earlier").chmod(0o600)
    keep_as(directory, KEEPER, KEEPER, 0o711)
    write_private(directory / "written", "secret")
    make_private(directory / "made", b"secret")
    open(directory / "opened", "w", opener=private).close()
    write_stores(directory / "stores.yaml", {})
    FileTarget(directory / "anchors.jsonl").keep(_anchor())
    secret_masks.store(directory, "1-1-1", {"NAME": "secret"})
    database = open_database(directory / "agent.sqlite")
    database.execute("INSERT INTO meta VALUES ('a', 'b')")
    owners = {path.name: path.stat().st_uid for path in directory.iterdir()}
    assert {"agent.sqlite", "agent.sqlite-wal", "agent.sqlite-shm", "secrets", "stores.yaml", "anchors.jsonl"} <= owners.keys()
    assert {name for name, owner in owners.items() if owner != KEEPER} == set()
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert _look(*files)["read"] == []
    database.close()
    take_back(directory)
    assert {path.stat().st_uid for path in [directory, *directory.iterdir()]} == {0}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o711
    assert sqlite3.connect(directory / "agent.sqlite").execute("SELECT value FROM meta").fetchall() == [("b",)]


def test_elsewhere_private_files_stay_roots(tmp_path: Path) -> None:
    """Also in a directory of somebody else, who must not read what root writes there."""
    directory = tmp_path / "home"
    directory.mkdir(mode=0o700)
    os.chown(directory, KEEPER, KEEPER)
    write_private(directory / "token", "secret")
    assert (directory / "token").stat().st_uid == 0


def test_it_can_use_this_interpreter(tmp_path: Path) -> None:
    check_account(confined_root(), tmp_path)


def test_its_processes_end_by_signals_of_the_agent(tmp_path: Path) -> None:
    process = confined_root().start(["/bin/sh", "-c", "echo ready; sleep 60"], {}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()


def _anchor() -> Anchor:
    return sign(1, b"\0" * 32, 1, "key")
