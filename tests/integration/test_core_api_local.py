"""Scripts that use the Core API without a cluster: plain `python train.py`, killed, interrupted, run again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenuto.schemas.reports import CheckpointReport, DataReport, EnvironmentReport, MetricsReport, ValidationReport
from tenuto.workers.core_api.local_record import Started, checkpoints_of, read_lines, read_run
from tests.support.agent_stand_in import WAIT_SECONDS_MAX
from tests.support.waiting import ended, until

SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "summing" / "train.py"
CONFIG = """\
name: summing by hand
entrypoint: train.py
hyperparameters: {factor: 2}
searcher: {name: asha, metric: total, max_length: {epochs: 3}, max_trials: 4, smaller_is_better: false}
min_validation_period: {epochs: 1}
min_checkpoint_period: {batches: 4}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def start(here: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
    return subprocess.Popen(
        [sys.executable, *(arguments or (str(SCRIPT),))],
        cwd=here,
        env={**clean, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(here: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    process = start(here, *arguments, **environment)
    _, said = process.communicate(timeout=WAIT_SECONDS_MAX)
    return process.returncode, said


def in_record(here: Path) -> str:
    """A program that runs the script with its record in `here/record`."""
    return (
        f"import sys, runpy, functools, tenuto; sys.argv = [{str(SCRIPT)!r}]; "
        "tenuto.init = functools.partial(tenuto.init, directory='record'); "
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )


def bodies(directory: Path, kind: type[Any]) -> list[Any]:
    return [line.body for line in read_lines(directory) if isinstance(line.body, kind)]


def expected_sum(steps: int) -> float:
    return 2.0 * sum(range(steps))


def test_keeps_a_record_of_its_own(here: Path) -> None:
    code, said = run(here)
    assert code == 0, said
    record = here / "tenuto-runs" / "summing-by-hand-1"
    assert f"no cluster here: the record of this run is kept in {record}" in said
    assert "alert (warning): done: sum 870" in said
    description = read_run(record)
    assert (description.hyperparameters, description.config.searcher.metric) == ({"factor": 2}, "total")
    validations = bodies(record, ValidationReport)
    assert [(item.batches, item.length, item.metrics["total"]) for item in validations] == [
        (steps, steps // 10, expected_sum(steps)) for steps in (10, 20, 30)
    ]
    assert [point.batches for report in bodies(record, MetricsReport) for point in report.points] == [10, 20, 30]
    assert [item.batches for item in checkpoints_of(record)] == [30], "the best and the latest are one here"
    assert [path.name for path in (record / "checkpoints" / "manifests").iterdir()] == ["0-1-1-30.json"]
    assert run(here)[0] == 0
    assert (here / "tenuto-runs" / "summing-by-hand-2").is_dir(), "each run has a record of its own"


def test_killed_and_run_again_goes_on_from_its_checkpoint(here: Path) -> None:
    code, said = run(here, "-c", in_record(here), TEST_KILL_AT="15")
    assert code == -signal.SIGKILL, said
    record = here / "record"
    with (record / "reports.jsonl").open("a") as file:
        file.write('{"half a li')
    code, said = run(here, "-c", in_record(here))
    assert code == 0, said
    # What it saved last may not have been stored when it was killed.
    assert re.search(r"resumes from checkpoint 0-1-1-(8 at step 8|12 at step 12)\n", said), said
    assert not list((record / "checkpoints").rglob(".partial-*")), "what it left half stored is swept"
    validations = bodies(record, ValidationReport)
    assert [(item.batches, item.metrics["total"]) for item in validations] == [(n, expected_sum(n)) for n in (10, 20, 30)]
    assert len(bodies(record, Started)) == 2
    code, said = run(here, "-c", in_record(here))
    assert code == 0, said
    assert len(bodies(record, ValidationReport)) == 3, "a run that is over is not trained again"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_saves_and_ends(here: Path, tmp_path: Path, number: signal.Signals) -> None:
    hold = tmp_path / "hold.go"
    process = start(here, TEST_HOLD_AT="13", TEST_HOLD_FILE=str(hold))
    until(hold.with_suffix(".held").exists, gone=ended(process))
    process.send_signal(number)
    hold.touch()
    _, said = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 0, said
    saved = bodies(here / "tenuto-runs" / "summing-by-hand-1", CheckpointReport)
    assert saved[-1].batches == 13


def test_checkpoint_policy_all_keeps_every_one(here: Path) -> None:
    (here / "config.yaml").write_text(CONFIG + "checkpoint_policy: all\n")
    assert run(here)[0] == 0
    saved = checkpoints_of(here / "tenuto-runs" / "summing-by-hand-1")
    assert [item.batches for item in saved] == [4, 8, 12, 16, 20, 24, 28, 30]


INIT = "import tenuto, sys; sys.argv = ['my train.py']; "


@pytest.mark.parametrize(
    ("config", "program", "expected"),
    [
        (None, "tenuto.init()", "there is no cluster here, and no config.yaml in "),
        (None, "tenuto.init('other.yaml')", "tenuto.init(config): other.yaml cannot be read: No such file"),
        ("name: [", "tenuto.init()", "config.yaml: line 1, column 8: not valid YAML"),
        ("name: x\n", "tenuto.init()", "config.yaml: entrypoint: is required: "),
        (None, "tenuto.init({'searcher': {'metric': 'loss'}})", "tenuto.init(config): searcher.max_length: is required"),
        (
            CONFIG.replace("factor: 2", "factor: {type: int, minval: 1, maxval: 3}"),
            "tenuto.init()",
            "hyperparameters.factor is a range, and without a cluster there is no search; give a value: "
            "tenuto.init(hyperparameters={'factor': ...}).",
        ),
        (
            CONFIG,
            "tenuto.init(hyperparameters={'facto': 1})",
            "tenuto.init(hyperparameters): the configuration has no 'facto'; it has factor.",
        ),
        (
            CONFIG,
            "run = tenuto.init(directory='a'); run.close(); tenuto.init(directory='a', hyperparameters={'factor': 3})",
            "a holds a run with another configuration or other hyperparameters; give tenuto.init() another directory.",
        ),
    ],
)
def test_what_a_user_sees(tmp_path: Path, config: str | None, program: str, expected: str) -> None:
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    code, said = run(tmp_path, "-c", INIT + program)
    assert code == 1
    assert expected in said.splitlines()[-1]


def test_configuration_as_data_and_a_value_for_a_range(tmp_path: Path) -> None:
    program = """
import tenuto, json
config = {"hyperparameters": {"rate": {"type": "double", "minval": 0, "maxval": 1}, "net": {"size": 4}},
          "searcher": {"metric": "loss", "max_length": {"batches": 2}}}
for rate in (0.25, 0.5):
    with tenuto.init(config, hyperparameters={"rate": rate}, directory=f"rate-{rate}") as run:
        for operation in run.operations():
            for step in range(operation.steps):
                run.report_training(step + 1, {"loss": run.hyperparameters["rate"]})
            run.report_validation(operation.steps, {"loss": run.hyperparameters["net"]["size"]})
"""
    code, said = run(tmp_path, "-c", program)
    assert code == 0, said
    for rate in (0.25, 0.5):
        (report,) = bodies(tmp_path / f"rate-{rate}", MetricsReport)
        assert [point.metrics["loss"] for point in report.points] == [rate, rate]
    assert json.loads((tmp_path / "rate-0.5" / "run.json").read_text())["hyperparameters"] == {"rate": 0.5, "net": {"size": 4}}


def test_a_checkpoint_is_due_by_the_clock(tmp_path: Path) -> None:
    program = """
import tenuto, time
def ask(minutes, directory):
    config = {"checkpoint_period_minutes": minutes, "searcher": {"metric": "loss", "max_length": {"batches": 2}}}
    with tenuto.init(config, directory=directory) as run:
        time.sleep(0.01)
        first = run.should_save(1), run.checkpoint_due()
        with run.checkpoint.save(1):
            pass
        due = run.checkpoint_due()
        run.checkpoint.begun_clock -= 60 * minutes
        return first, due, run.checkpoint_due()
assert ask(1e-5, "soon")[0] == (True, True)
assert ask(1000, "late") == ((False, False), False, True)
"""
    code, said = run(tmp_path, "-c", program)
    assert code == 0, said


def test_environment_data_and_code_are_on_record(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "late.py").write_text("SCALE = 2\n")
    (tmp_path / "own" / "unused.py").write_text("")
    (tmp_path / "points.txt").write_text("3")
    (tmp_path / "train.py").write_text(
        """
import tenuto
config = {"searcher": {"metric": "loss", "max_length": {"batches": 2}}, "reproducibility": {"experiment_seed": 1}}
with tenuto.init(config, directory="record") as run:
    from own import late
    run.report_validation(1, {"loss": float(tenuto.data("points.txt").read_text()) * late.SCALE})
"""
    )
    assert run(tmp_path, "train.py")[0] == 0
    (tmp_path / "points.txt").write_text("4")
    code, said = run(tmp_path, "train.py", OMP_NUM_THREADS="3")
    assert code == 0, said
    assert "the data 'points.txt' are not what they were when trial 0-1 started with them" in said
    assert "the trial goes on in another environment than before" in said
    first, second = bodies(tmp_path / "record", EnvironmentReport)
    assert first.environment.packages["tenuto"]
    assert second.environment.threads["OMP_NUM_THREADS"] == "3"
    assert [item.changed_from is None for item in bodies(tmp_path / "record", DataReport)] == [True, False]
    kept = sorted(path.relative_to(tmp_path / "record").as_posix() for path in (tmp_path / "record" / "code").rglob("*.py"))
    assert kept == ["code/own/late.py", "code/train.py"], "what it imported, also late, and nothing else"


def test_one_process_at_a_time_writes_a_record(here: Path, tmp_path: Path) -> None:
    hold = tmp_path / "hold.go"
    first = start(here, "-c", in_record(here), TEST_HOLD_AT="3", TEST_HOLD_FILE=str(hold))
    try:
        until(hold.with_suffix(".held").exists, gone=ended(first))
        code, said = run(here, "-c", in_record(here))
        assert code == 1
        assert f"another process writes the record in {here / 'record'}" in said
    finally:
        hold.touch()
        first.communicate(timeout=WAIT_SECONDS_MAX)
    assert first.returncode == 0


def test_import_is_light() -> None:
    """Neither `import tenuto` nor a run without a cluster loads what only services or workers of a cluster need."""
    program = (
        "import sys, tenuto; light = len(sys.modules); tenuto.init; "
        "print([m for m in ('torch', 'grpc', 'nats', 'asyncpg', 'numpy', 'tenuto.services') if m in sys.modules], light < 200)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


INFINITE = """
import math, sys, tenuto
with tenuto.init(directory=sys.argv[1]) as run:
    run.epoch_batches = 10
    for steps, total in ((6, math.inf), (12, 0.5), (18, -math.inf), (24, 0.25), (30, math.nan)):
        with run.checkpoint.save(steps) as directory:
            (directory / "sum.txt").write_text(str(total))
        run.report_validation(steps, {"total": total})
"""


@pytest.mark.parametrize(("smaller", "best"), [("false", 12), ("true", 24)])
def test_an_infinite_metric_makes_no_local_checkpoint_the_best(here: Path, smaller: str, best: int) -> None:
    (here / "config.yaml").write_text(CONFIG.replace("smaller_is_better: false", f"smaller_is_better: {smaller}"))
    (here / "infinite.py").write_text(INFINITE)
    code, said = run(here, "infinite.py", str(here / "record"))
    assert code == 0, said
    assert [item.batches for item in checkpoints_of(here / "record")] == [best, 30]
