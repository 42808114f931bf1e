"""The ruler of the suite, on a small suite of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support import waiting

ROOT = Path(__file__).parents[2]
SUITE = """
import os, pathlib, time

def test_good(): pass

def test_unsteady():
    seen = pathlib.Path("seen"); count = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (count + 1))
    assert count, "at first"

def test_waits_in_the_second_run():
    if pathlib.Path("wait").exists() and pathlib.Path(".steady/run-1").exists():
        pathlib.Path("waiting.new").write_text(str(os.getpid()))
        pathlib.Path("waiting.new").rename("waiting")
        time.sleep(600)
"""
PLUGINS = ("-p", "xdist", "-p", "pytest_timeout", "-p", "randomly", "-p", "no:cacheprovider")


def command(runs: int) -> list[str]:
    return [sys.executable, "-m", "tests.suite.steady", "--runs", str(runs), "--load", "1", "--", "-q", "-n", "0", *PLUGINS]


def _hear_interrupts() -> None:
    """Who runs these tests in the background has them ignored, which is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_runs_are_measured_and_a_stopped_measurement_goes_on(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "wait").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TENUTO_SUITE"))}
    given = {"cwd": tmp_path, "env": kept | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, "text": True}
    apart = {"start_new_session": True, "preexec_fn": _hear_interrupts}
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, 130)):
        with subprocess.Popen(command(2), stdout=subprocess.PIPE, **given, **apart) as process:  # type: ignore[call-overload]
            waiting.until((tmp_path / "waiting").exists, gone=waiting.ended(process))
            if number == signal.SIGINT:  # a terminal tells all
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            said, _ = process.communicate()
        assert process.returncode == status
        suite = int((tmp_path / "waiting").read_text())
        waiting.until(lambda pid=suite: not psutil.pid_exists(pid))  # type: ignore[misc]
        (tmp_path / "waiting").unlink()
    assert "run 0 is kept\n" in said
    assert "run 1 was stopped" in said
    first = (tmp_path / ".steady/run-0/result.json").read_text()
    (tmp_path / "wait").unlink()
    done = subprocess.run(command(2), stdout=subprocess.PIPE, check=False, **given)  # type: ignore[call-overload]
    assert done.returncode == 1, "an unsteady test is a defect"
    assert (tmp_path / ".steady/run-0/result.json").read_text() == first
    results = [json.loads((tmp_path / f".steady/run-{number}/result.json").read_text()) for number in range(2)]
    assert [(one["seed"], one["load"], one["status"], one["failed"]) for one in results] == [(1, 0, 0, []), (2, 1, 0, [])]
    assert results[0]["unsteady"] == ["test_it.py::test_unsteady"]
    assert all(0 <= one["idle_share"] <= 1 for one in results)
    assert "1/2 unsteady  test_it.py::test_unsteady" in done.stdout
    assert "AssertionError: at first" in done.stdout
    assert (tmp_path / ".steady/table.txt").read_text() in done.stdout
    other = subprocess.run([*command(2), "-x"], stdout=subprocess.PIPE, check=False, **given)  # type: ignore[call-overload]
    assert f"run 0 is kept, with arguments {' '.join(results[0]['arguments'])} (--fresh begins anew)" in other.stdout
