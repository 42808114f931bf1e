"""The second look, on small suites of its own that are run by pytest as ours is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = """
import os, pathlib, pytest, time

def times(name):
    file = pathlib.Path("times-" + name)
    count = int(file.read_text()) if file.exists() else 0
    file.write_text(str(count + 1))
    return count

def test_good(): pass

@pytest.mark.skip(reason="not here")
def test_skipped(): pass
"""
ONCE = """
@pytest.mark.parametrize("n", range(COUNT))
def test_once(n):
    assert times(f"once{n}") > 0, "first of its kind"
"""
ALWAYS = "\ndef test_always():\n    assert times('always') < 0\n"
EVERY_SECOND = "\ndef test_every_second():\n    assert times('second') % 2 == 1\n"
HANGS_ONCE = "\n@pytest.mark.timeout(1)\ndef test_hangs_once():\n    if times('hangs') == 0: time.sleep(60)\n"
DIES_ONCE = "\ndef test_dies_once():\n    if times('dies') == 0: os._exit(7)\n"
SETUP_ONCE = """
@pytest.fixture
def broken():
    assert times("setup") > 0, "no server yet"

def test_setup_once(broken): pass
"""
DISTURBED = """
def test_disturbs():
    os.environ["LEFT"] = "1"

def test_disturbed():
    assert "LEFT" not in os.environ, "left by another"
"""
PLUGINS = ("-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider")


def once(count: int) -> str:
    return ONCE.replace("COUNT", str(count))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.suite.second_look", "-q", *PLUGINS, *arguments]


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TENUTO_SUITE"))}
    # What other plugins import takes longer than these tests.
    return kept | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def suite(directory: Path, *parts: str, processes: str = "0") -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(SOURCE + "".join(parts))
    (directory / "pytest.ini").write_text("[pytest]\n")
    options = ("-n", processes, "--dist=loadfile")
    return subprocess.run(command(*options), cwd=directory, env=environment(), capture_output=True, text=True, check=False)


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The line of counts: the last but for what was left on the machine, where other tests run."""
    return next(line for line in reversed(done.stdout.splitlines()) if line.startswith("suite: "))


def test_nothing_is_looked_at_where_nothing_failed(tmp_path: Path) -> None:
    done = suite(tmp_path)
    assert done.returncode == 0
    assert "Second look" not in done.stdout
    assert not (tmp_path / ".suite/unsteady.txt").exists()


def test_what_fails_once_is_told_in_full_and_does_not_refuse_the_run(tmp_path: Path) -> None:
    done = suite(tmp_path, once(1), HANGS_ONCE, SETUP_ONCE)
    assert done.returncode == 0, done.stdout
    told = (tmp_path / ".suite/unsteady.txt").read_text()
    assert told in done.stdout
    for name, words in [("once[0]", "first of its kind"), ("hangs_once", "Timeout"), ("setup_once", "no server yet")]:
        assert f"unsteady: test_it.py::test_{name} " in told
        assert words in told
    assert last(done) == "suite: 4 passed, 0 failed, 1 skipped"


def test_a_test_is_alone_at_the_second_look_also_if_it_ended_its_process(tmp_path: Path) -> None:
    done = suite(tmp_path, DISTURBED, DIES_ONCE, processes="2")
    assert done.returncode == 0, done.stdout
    told = (tmp_path / ".suite/unsteady.txt").read_text()
    assert "unsteady: test_it.py::test_disturbed " in told
    assert "unsteady: test_it.py::test_dies_once " in told


def test_two_passes_in_a_row_are_needed(tmp_path: Path) -> None:
    done = suite(tmp_path, ALWAYS, EVERY_SECOND, once(1))
    assert done.returncode == 1
    assert last(done) == "suite: 2 passed, 2 failed, 1 skipped"


def test_four_unsteady_tests_are_too_many(tmp_path: Path) -> None:
    done = suite(tmp_path, once(4))
    assert done.returncode == 1
    assert last(done) == "suite: 5 passed, 0 failed, 1 skipped"


def test_many_failures_are_not_all_looked_at(tmp_path: Path) -> None:
    done = suite(tmp_path, once(12))
    assert done.returncode == 1
    assert "Second look at 10 of 12 failed tests" in done.stdout
    assert last(done) == "suite: 11 passed, 2 failed, 1 skipped"


def test_what_cannot_be_collected_is_not_looked_at(tmp_path: Path) -> None:
    done = suite(tmp_path, ALWAYS, "\nimport nothing_of_this_name\n")
    assert done.returncode not in (0, 5)
    assert "Second look" not in done.stdout


def test_an_interrupted_run_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SOURCE + ALWAYS + "\ndef test_long():\n    times('long'); time.sleep(60)\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command("-n", "0"), **options) as process:  # type: ignore[call-overload]
        while not (tmp_path / "times-long").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "Second look" not in output
