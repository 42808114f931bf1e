"""Every benchmark runs in its small form, so that none rots; those that take a running cluster in test_cluster_benchmarks.py. No
figure is judged: `make bench` measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import browser, commands, docker_daemon
from tests.support.benchmark_runs import BENCHMARKS, ON_A_CLUSTER, PROGRAMS, Runs
from tests.support.forked_programs import ForkedPrograms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NOT_INSTALLED = {
    "horovod": lambda: "" if Path(sys.executable).with_name("horovodrun").exists() else "Horovod has no wheel: make horovod.",
}
"""Reason why a whole program cannot run here, or empty; then only its options are read."""
WITH_FORKED_COMMANDS = {"containers"}
"""They start a cluster, and measure nothing of its start: it is forked, and so are their commands."""
DETERMINED = """
name: mnist
entrypoint: python3 train.py
hyperparameters: {learning_rate: 0.1}
searcher: {name: single, metric: loss, max_length: {batches: 100}}
"""
TABLE = "table"
"""No benchmark: it shows what they found."""


def programs() -> list[str]:
    """Every file that can be started, but the models that benchmarks train."""
    found = [path.relative_to(BENCHMARKS).with_suffix("") for path in BENCHMARKS.rglob("*.py") if _can_be_started(path)]
    return sorted(str(path) for path in found if path.parts[0] != "models" and str(path) != TABLE)


def _can_be_started(path: Path) -> bool:
    return 'if __name__ == "__main__":' in path.read_text()


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedPrograms]:
    with ForkedPrograms(inherited=[commands.door().fileno()]) as found:
        yield found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What curves_ours writes and curves_peers reads: made once."""
    return tmp_path_factory.mktemp("curves") / "ours.npz"


def test_every_program_has_its_small_form_here() -> None:
    missing, gone = set(programs()) - PROGRAMS.keys(), PROGRAMS.keys() - set(programs())
    assert not missing, f"add these to PROGRAMS, with the arguments of their small form: {sorted(missing)}"
    assert not gone, f"these do not exist: {sorted(gone)}"


MARKS = {
    "page": [pytest.mark.real_part(browser.lack()), pytest.mark.real_part(browser.lack_of_page(), installable=False)],
    "containers": [
        pytest.mark.real_part(docker_daemon.lack()), pytest.mark.real_part(docker_daemon.why_not(), installable=False)
    ],
}  # fmt: skip


ALONE = sorted(set(programs()) & PROGRAMS.keys() - ON_A_CLUSTER)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in ALONE])
def test_benchmark(name: str, forked: ForkedPrograms, tmp_path: Path, ours: Path) -> None:
    variables = {commands.DOOR_VARIABLE: str(commands.door().fileno())} if name in WITH_FORKED_COMMANDS else {}
    runs, places = Runs(forked, tmp_path, variables), {"tmp": tmp_path, "ours": ours, "determined": tmp_path / "determined"}
    if reason := NOT_INSTALLED.get(name, lambda: "")():
        runs.run(name, "--help")
        pytest.skip(reason)
    if "{determined}" in PROGRAMS[name]:
        places["determined"].mkdir()
        (places["determined"] / "const.yaml").write_text(DETERMINED)
    if name == "peers/curves_peers" and not ours.exists():
        runs.run("peers/curves_ours", "--small", "--out", str(places["ours"]))
    runs.small(name, places)


def test_figures_of_all_become_one_table(tmp_path: Path) -> None:
    figure = {"benchmark": "lists", "figure": "p99", "value": 75.2, "unit": "ms", "beside": "select", "of": 30.08, "ratio": 2.5}
    alone = {**figure, "figure": "rows", "value": 12_345, "unit": "", "beside": "", "of": None, "ratio": None}
    file = tmp_path / "figures.jsonl"
    file.write_text("".join(json.dumps({**line, "bar": bar}) + "\n" for line, bar in ((figure, "at most 150 ms"), (alone, ""))))
    shown = subprocess.run([sys.executable, BENCHMARKS / "table.py", file], capture_output=True, text=True, check=True).stdout
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()]
    assert cells[2:] == [
        ["lists", "p99", "75.2 ms", "select", "30.1 ms", "2.50", "at most 150 ms"],
        ["", "rows", "12,345", "", "", "", ""],
    ]


def test_program_that_hangs_is_ended_with_all_that_it_started(forked: ForkedPrograms, tmp_path: Path) -> None:
    program, log = tmp_path / "hangs.py", tmp_path / "log"
    program.write_text(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "signal.pause()\n"
    )
    ended = forked.run(program, [], os.environ, tmp_path, log, seconds_max=2.0, leave_seconds_max=0.5)
    assert ended.too_long
    assert not psutil.pid_exists(int(log.read_text()))


def test_service_that_a_program_starts_is_a_process_like_any_other(forked: ForkedPrograms, tmp_path: Path) -> None:
    program, service, log = tmp_path / "starts.py", tmp_path / "service.py", tmp_path / "log"
    service.write_text(
        "import os, signal, sys\n"
        "print(sys.argv[1], os.environ['WORD'], 'torch' in sys.modules, flush=True)\n"
        "signal.pause() if sys.argv[1] == 'stays' else sys.exit(3)\n"
    )
    program.write_text(
        f"import os, sys\nsys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from service_process import start\n"
        f"service, environment = {str(service)!r}, dict(os.environ, WORD='here')\n"
        "said, says = os.pipe()\n"
        "ends, stays = (start([service, what], environment, stdout=says) for what in ('ends', 'stays'))\n"
        "os.close(says)\n"
        "lines = open(said)\n"
        "both = [lines.readline(), lines.readline()]\n"  # each has begun
        "print('ends with', ends.wait(), ends.poll())\n"
        "stays.terminate()\n"
        "print('stays until', stays.wait(60.0), stays.poll())\n"
        "print(*sorted(both), lines.read(), sep='')\n"
        "os.environ.pop('BENCH_FORKS')\n"
        "print('alone', start([service, 'ends'], environment).wait())\n"
    )
    ended = forked.run(program, [], os.environ, tmp_path, log, seconds_max=60.0)
    text = log.read_text()
    assert ended.code == 0, text
    assert text.splitlines() == [
        "ends with 3 3", "stays until -15 -15", "ends here True", "stays here True", "", "ends here False", "alone 3",
    ], "forked, it ends as an interpreter of its own does"  # fmt: skip


def test_program_that_fails_says_so(forked: ForkedPrograms, tmp_path: Path) -> None:
    program, log = tmp_path / "fails.py", tmp_path / "log"
    program.write_text("import sys\nprint('some words')\nsys.exit('the reason')\n")
    ended = forked.run(program, [], os.environ, tmp_path, log, seconds_max=60.0)
    assert (ended.code, ended.too_long, log.read_text().split("\n")[:2]) == (1, False, ["some words", "the reason"])
