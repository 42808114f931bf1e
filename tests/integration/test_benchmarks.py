"""Every benchmark runs in its small form, so that none rots. No figure is judged: `make bench` measures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from tests.support import browser, commands, docker_daemon
from tests.support.forked_programs import ForkedPrograms
from tests.support.live_cluster import LiveCluster

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIGURES, CLUSTER = "BENCH_FIGURES", "BENCH_CLUSTER"
PROGRAM_SECONDS_MAX = 600.0
"""Only a hang takes as long: the longest takes half a minute on an idle machine, and three minutes on one with ten others."""
LAST_LINES = 60
"""Of a program's output, in the message of a test that fails."""
AGENTS, AGENT_SLOTS = 2, 2
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROGRAMS: dict[str, tuple[str, ...]] = {
    "chaos": (), "checkpoint_stall": (), "checkpoints": (), "client": (), "containers": (), "ddp_resume": (),
    "decision_latency": (), "distributed": (), "event_log": (), "event_streams": (), "from_determined": ("{determined}",),
    "horovod": (), "idle_connections": (), "lists": (), "metric_layouts": (), "metrics": (), "mlflow_ingest": (), "page": (),
    "past_queue": (),
    "provisioning": (), "provisioning_days": (), "reports": (), "scheduler": (), "scheduler_events": (), "search": (),
    "search_kills": (), "search_noise": (), "search_noise_rules": (), "search_quality": (), "service_loop": (),
    "shared_cluster": (), "start_up": (), "training": (), "turnover": (), "webhooks": (),
    "curves/surrogate": ("--out", "{tmp}/surrogate.npz"), "curves/table": ("{tmp}/table.csv", "{tmp}/config.yaml"),
    "curves/train": ("--out", "{tmp}/curves.npz"),
    "peers/curves_ours": ("--out", "{ours}"), "peers/curves_peers": ("{ours}",), "peers/curves_rules": (),
    "peers/rate_peers": ("optuna", "--url", "sqlite:///{tmp}/optuna.db"), "peers/trials_per_second": (),
}  # fmt: skip
"""Arguments of the small form, besides --small. Without their peers (the extra `bench`, peers/requirements.txt, an MLflow server)
event_log, metrics, mlflow_ingest, curves_peers and trials_per_second run what needs none."""
ON_A_CLUSTER = {
    "chaos", "client", "distributed", "mlflow_ingest", "search_kills", "shared_cluster", "turnover", "peers/trials_per_second",
}  # fmt: skip
"""They share a running cluster: its start and end cost ten seconds of a processor. What two of them kill is waited for before the
next one."""
NOT_INSTALLED = {
    "horovod": lambda: "" if Path(sys.executable).with_name("horovodrun").exists() else "Horovod has no wheel: make horovod.",
}
"""Reason why a whole program cannot run here, or empty; then only its options are read."""
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


class SharedCluster:
    """Starts when the first benchmark needs it, and anew after one that failed, which may have left anything in it."""

    def __init__(self) -> None:
        self._live: LiveCluster | None = None

    def directory(self) -> Path:
        if self._live is None:
            place = Path(tempfile.mkdtemp(prefix="tenuto-bench-"))
            place.chmod(0o711)  # workers may run as another user
            self._live = LiveCluster(place / "cluster", AGENT_SLOTS)
            self._live.up("--agents", str(AGENTS))
        self._live.wait_for(self._whole)
        return self._live.directory

    def _whole(self) -> bool:
        assert self._live is not None
        with contextlib.suppress(Exception):  # what was killed may be on its way up
            return sum(agent["state"] == "joined" for agent in self._live.client().get("/agents")) == AGENTS
        return False

    def end(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.down()
            shutil.rmtree(live.directory.parent, ignore_errors=True)


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedPrograms]:
    with ForkedPrograms(inherited=[commands.door().fileno()]) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    found = SharedCluster()
    yield found
    found.end()


class Run(Protocol):
    def __call__(self, name: str, *arguments: str) -> list[dict[str, Any]]: ...


@pytest.fixture
def run(forked: ForkedPrograms, cluster: SharedCluster, tmp_path: Path) -> Run:
    """Runs a benchmark to its end, and returns all figures so far."""
    figures, log = tmp_path / "figures.jsonl", tmp_path / "output.log"

    def run(name: str, *arguments: str) -> list[dict[str, Any]]:
        if name not in ON_A_CLUSTER:
            cluster.end()  # which costs processor time while it waits
        environment = {**os.environ, FIGURES: str(figures)}
        if name in ON_A_CLUSTER:
            environment[CLUSTER] = str(cluster.directory())
            environment[commands.DOOR_VARIABLE] = str(commands.door().fileno())
        program = BENCHMARKS / f"{name}.py"
        ended = forked.run(program, arguments, environment, tmp_path, log, seconds_max=PROGRAM_SECONDS_MAX)
        output = log.read_text(errors="replace")
        if (ended.code or ended.too_long) and name in ON_A_CLUSTER:
            cluster.end()
        assert not ended.too_long, f"{name} did not end in {PROGRAM_SECONDS_MAX:.0f} s:\n{_last(output)}"
        assert ended.code == 0, f"{name} ended with {ended.code}:\n{_last(output)}"
        assert output.strip(), f"{name} prints nothing"
        print(f"{name}: {ended.cpu_seconds} s of a processor\n{_last(output)}")
        return [json.loads(line) for line in figures.read_text().splitlines()] if figures.exists() else []

    return run


def _last(output: str) -> str:
    return "\n".join(output.splitlines()[-LAST_LINES:])


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


def in_turn() -> list[str]:
    """Those that share a cluster first."""
    return sorted(PROGRAMS.keys() & set(programs()), key=lambda name: (name not in ON_A_CLUSTER, name))


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in in_turn()])
def test_benchmark(name: str, run: Run, tmp_path: Path, ours: Path) -> None:
    places = {"tmp": tmp_path, "ours": ours, "determined": tmp_path / "determined"}
    if reason := NOT_INSTALLED.get(name, lambda: "")():
        run(name, "--help")
        pytest.skip(reason)
    if "{determined}" in PROGRAMS[name]:
        places["determined"].mkdir()
        (places["determined"] / "const.yaml").write_text(DETERMINED)
    if name == "peers/curves_peers" and not ours.exists():
        run("peers/curves_ours", "--small", "--out", str(places["ours"]))
    figures = run(name, *(argument.format(**places) for argument in PROGRAMS[name]), "--small")
    mine = [figure for figure in figures if figure["benchmark"] == name]
    assert mine, f"{name} gives no figure: call `figure` of benchmarks/figures.py"
    assert all(isinstance(figure["value"], int | float) for figure in mine)


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
        "print('ends with', ends.wait(), ends.poll())\n"
        "stays.terminate()\n"
        "print('stays until', stays.wait(60.0), stays.poll())\n"
        "print(*sorted(open(said).read().splitlines()), sep='\\n')\n"
        "os.environ.pop('BENCH_FORKS')\n"
        "print('alone', start([service, 'ends'], environment).wait())\n"
    )
    ended = forked.run(program, [], os.environ, tmp_path, log, seconds_max=60.0)
    text = log.read_text()
    assert ended.code == 0, text
    assert text.splitlines() == [
        "ends with 3 3", "stays until -15 -15", "ends here True", "stays here True", "ends here False", "alone 3",
    ], "forked, it ends as an interpreter of its own does"  # fmt: skip


def test_program_that_fails_says_so(forked: ForkedPrograms, tmp_path: Path) -> None:
    program, log = tmp_path / "fails.py", tmp_path / "log"
    program.write_text("import sys\nprint('some words')\nsys.exit('the reason')\n")
    ended = forked.run(program, [], os.environ, tmp_path, log, seconds_max=60.0)
    assert (ended.code, ended.too_long, log.read_text().split("\n")[:2]) == (1, False, ["some words", "the reason"])
