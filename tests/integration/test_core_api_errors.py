"""Messages for wrong uses of the Core API, in real worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.schemas.events.run import EXIT_CODE_INVALID_HYPERPARAMETERS, EXIT_CODE_WILL_REPEAT
from tenuto.schemas.reports import TrainingEndedReport
from tests.support.agent_stand_in import WorkerBench
from tests.support.core_api_scripts import SCRIPTS, config, fail, script
from tests.support.reactions import stop_at, stop_ended
from tests.support.warm_starts import WarmProcess

COMPARING = {"name": "random", "metric": "total", "max_trials": 2, "max_length": {"epochs": 5}}


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorkerBench]:
    with WorkerBench(tmp_path, SCRIPTS, config(), {"factor": 2}) as bench:
        yield bench


def test_a_script_without_init_is_told_so_at_once(tmp_path: Path) -> None:
    """And not when it ends, which may be hours later: this one waits for its end to be allowed."""
    text = "import os, time\nwhile not os.path.exists(os.environ['GO']):\n    time.sleep(0.01)\n"
    with script(tmp_path, text, searcher=COMPARING) as bench:
        agent = bench.agent(1)
        run = bench.start(agent, GO=str(tmp_path / "go"))
        run.wait_output("mentions tenuto, and before train.py calls tenuto.init()")
        assert run.process.poll() is None
        (tmp_path / "go").touch()
        assert run.wait() == EXIT_CODE_WILL_REPEAT, "it would end so again, after as many hours"
        told = agent.error_file.read_text()
        assert (
            "ended without calling tenuto.init(), so nothing of it could be recorded, and random has nothing to compare" in told
        )


def test_a_script_that_calls_nothing_is_complete_where_no_trials_are_compared(tmp_path: Path) -> None:
    with script(tmp_path, "print('trained')\n") as bench:
        agent = bench.agent(5)
        agent.react = stop_ended
        run = bench.start(agent)
        assert run.wait() == 0, run.output()
        assert [type(report) for report in agent.reports] == [TrainingEndedReport]
        assert agent.endings == ["finished"]
        assert "the trial is complete, and no metric and no checkpoint is recorded" in run.output()


@pytest.mark.parametrize("text", ["raise ValueError('odd')\n", "import sys\nsys.exit(3)\n", "import os\nos._exit(0)\n"])
def test_one_that_ends_otherwise_is_not(tmp_path: Path, text: str) -> None:
    with script(tmp_path, text) as bench:
        agent = bench.agent(5)
        agent.react = stop_ended
        bench.start(agent).wait()
        assert (agent.reports, agent.endings in ([], ["failed"])) == ([], True)


@pytest.mark.parametrize("code", [0, 80, 82, 137])
def test_a_script_that_ends_its_process_tells_nothing_whatever_the_code(tmp_path: Path, code: int) -> None:
    with script(tmp_path, f"import os, tenuto\nwith tenuto.init() as run:\n    os._exit({code})\n") as bench:
        agent = bench.agent(1)
        run = bench.start(agent)
        run.wait()
        assert agent.endings == [], run.output()
        assert isinstance(run.process, WarmProcess)
        assert run.process.exit_file.read_text() == f"{code} exited\n", "no signal, although 137 looks like one"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import tenuto\nrun = tenuto.init()\nrun.epoch_batches = 10\nrun.report_training(7, {'loss': 1})\n",
            "train.py ended at step 7 of 20, without a validation: the search waits for 'total'.",
        ),
        (
            "import tenuto\nrun = tenuto.init()\nrun.epoch_batches = 10\nrun.end_training('enough')\n",
            "train.py:4: run.end_training: nothing was validated yet, and the search compares 'total': call "
            "run.report_validation(steps, metrics) before.",
        ),
        (
            "import tenuto\nwith tenuto.init() as run:\n    run.epoch_batches = 10\n"
            "    for operation in run.operations():\n        pass\n",
            "train.py:4: the search asked to train until step 20, but the body of `for operation in run.operations()` ended "
            "at step 0 without a validation. Train until operation.steps and call "
            "run.report_validation(20, {'total': ...}) there, or before you end the training early.",
        ),
        (
            "import tenuto\nrun = tenuto.init()\nrun.report_validation(20, {'total': 1})\n",
            "train.py:3: searcher.max_length counts epochs: right after tenuto.init(), set run.epoch_batches",
        ),
        (
            "import tenuto\nrun = tenuto.init()\nrun.report_validation(20, {'total': 'high'})\n",
            "train.py:3: run.report_validation: metric 'total' is 'high'; metrics are numbers.",
        ),
        ("import tenuto\ntenuto.init()\ntenuto.init()\n", "train.py:3: tenuto.init() was called before in this script"),
        (
            "import tenuto\nrun = tenuto.init()\nwith run.checkpoint.restore(): pass\n",
            "train.py:3: there is no checkpoint to restore",
        ),
        ("x = 1\nraise ValueError('odd')\n", "train.py:2: ValueError: odd"),
        ("import sys\nsys.exit(3)\n", "train.py:2: the trial's code ended the process by sys.exit(3)"),
        ("x = (\n", "train.py:1: SyntaxError: '(' was never closed"),
    ],
)
def test_what_a_user_sees(tmp_path: Path, text: str, expected: str) -> None:
    with script(tmp_path, text) as trial:
        code = EXIT_CODE_WILL_REPEAT if "SyntaxError" in expected else 1
        assert fail(trial, trial.agent(2), code=code).splitlines()[0].startswith(expected)


def test_a_script_refuses_hyperparameters(tmp_path: Path) -> None:
    text = """
import tenuto
with tenuto.init() as run:
    if run.hyperparameters.get("heads", 3) == 3:
        raise tenuto.InvalidHyperparameters("heads must divide width")
"""
    with script(tmp_path, text) as trial:
        agent = trial.agent(1)
        run = trial.start(agent)
        assert run.wait() == EXIT_CODE_INVALID_HYPERPARAMETERS, run.output()
        assert agent.error_file.read_text().startswith("train.py:5: heads must divide width")


def test_a_metric_that_is_never_reported_is_named(trial: WorkerBench) -> None:
    agent = trial.agent(1)
    agent.react = stop_at(1)
    run = trial.start(agent, TEST_METRIC="sum")
    assert run.wait() == 0
    assert "searcher.metric is 'total', but report_validation was given sum" in run.output()


def test_what_was_reached_before_an_error_is_recorded(tmp_path: Path) -> None:
    text = """
import tenuto
with tenuto.init() as run:
    run.epoch_batches = 10
    with run.checkpoint.save(3) as directory:
        (directory / "x").write_text("x")
    run.report_training(5, {"loss": 1})
    raise KeyError("mend me")
"""
    with script(tmp_path, text) as trial:
        agent = trial.agent(1)
        assert fail(trial, agent).splitlines()[0] == "train.py:8: KeyError: 'mend me'"
        assert [report.batches for report in agent.checkpoints()] == [3], "what was saved before is on record"
        assert [point.batches for report in agent.metrics for point in report.points] == [5]
