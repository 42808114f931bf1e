"""`tenuto check` on this machine: a real cluster of its own, trials that are killed, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from tenuto.embedded.cluster import marked_processes
from tenuto.embedded.files import Layout, is_up
from tests.support.live_cluster import CONFINED, TENUTO, tenuto
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_this_machine_is_checked_and_nothing_is_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    environment = {**os.environ, **CONFINED, "TENUTO_DATA_DIRECTORY": str(data), "TMPDIR": tempfile.mkdtemp(prefix="tenuto-e2e-")}
    scratch = Path(environment["TMPDIR"])
    scratch.chmod(0o711)
    try:
        done = tenuto(["check", "--quick", "--json"], environment, forked_up=True)
        told = json.loads(done.stdout)
        findings = {item["subject"]: item for item in told["findings"]}
        assert (done.returncode == 0) == told["ok"], done
        assert findings["one slot"]["level"] == "ok", findings["one slot"]
        assert "bit for bit" in findings["one slot"]["found"]
        assert "steps/s" in findings["speed"]["found"]
        if len(os.sched_getaffinity(0)) > 1:
            assert findings["gang of 2"]["level"] == "ok", findings["gang of 2"]
        assert not list(data.iterdir()), "the user's own directory was touched"
        assert not list(scratch.glob("tenuto-*-check-*"))
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert not [line for line in lines if str(scratch) in line]
    finally:
        shutil.rmtree(scratch)


def test_a_check_that_is_killed_leaves_no_cluster(tmp_path: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="tenuto-e2e-"))
    scratch.chmod(0o711)
    environment = {**os.environ, **CONFINED, "TENUTO_DATA_DIRECTORY": str(tmp_path / "data"), "TMPDIR": str(scratch)}
    try:
        with subprocess.Popen(
            [TENUTO, "check", "--quick"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as check:
            assert check.stderr is not None
            seen = list(takewhile(lambda line: "training on" not in line, check.stderr))
            (place,) = scratch.glob("tenuto-*-check-*")
            layout = Layout.of(place / "cluster")
            assert list(marked_processes(layout)), seen
            check.kill()
        until(lambda: is_up(layout) or [*marked_processes(layout)], lambda found: not found)
    finally:
        shutil.rmtree(scratch)


def test_parts_are_judged_without_training(tmp_path: Path) -> None:
    environment = {**os.environ, "TENUTO_DATA_DIRECTORY": str(tmp_path / "absent")}
    done = subprocess.run(
        [sys.executable, "-m", "tenuto.cli.main", "check", "--no-training", "--data-dir", "/proc/tenuto"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1
    assert "PROBLEM  disk" in done.stdout
    assert "--data-dir" in done.stdout
    assert "one slot" not in done.stdout
