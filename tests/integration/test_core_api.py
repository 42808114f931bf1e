"""Scripts that use the Core API in real worker processes, with a real gRPC server in the agent's place."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tenuto.schemas.reports import CheckpointReport, NoticeReport, ValidationReport
from tests.support.agent_stand_in import WorkerBench, wait_for_file
from tests.support.core_api_scripts import SCRIPTS, config, script
from tests.support.reactions import stop_at


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorkerBench]:
    with WorkerBench(tmp_path, SCRIPTS, config(), {"factor": 2}) as bench:
        yield bench


def expected_sum(steps: int) -> float:
    return 2.0 * sum(range(steps))


def test_reports_checkpoint_then_validation_and_ends_when_stopped(trial: WorkerBench) -> None:
    agent = trial.agent(2)
    agent.react = stop_at(2)
    run = trial.start(agent)
    assert run.wait() == 0, run.output()
    checkpoint, validation = agent.reports
    assert isinstance(checkpoint, CheckpointReport)
    assert isinstance(validation, ValidationReport)
    assert (checkpoint.batches, checkpoint.length) == (validation.batches, validation.length) == (20, 2)
    assert validation.metrics == {"total": expected_sum(20)}
    assert [point.batches for report in agent.metrics for point in report.points] == [10, 20]
    assert {file.path for file in checkpoint.files} == {"sum.txt", "tenuto.json", "tenuto_metadata.json"}
    (alert,) = [line for report in agent.logs for line in report.lines]
    assert (alert.stream, alert.text) == ("tenuto", "alert (warning): done: sum 380, arguments ['--flag', 'two words']")


def test_goes_on_when_its_target_is_extended(trial: WorkerBench) -> None:
    agent = trial.agent(1)
    run = trial.start(agent)
    agent.wait_for(lambda: len(agent.validations()) == 1)
    agent.react = stop_at(4)
    agent.direct("run", 4)
    assert run.wait() == 0, run.output()
    assert [report.length for report in agent.validations()] == [1, 4]


@pytest.mark.parametrize(("action", "code"), [("pause", 81), ("preempt", 80), ("stop", 0), ("kill", -signal.SIGKILL)])
def test_waits_at_its_target_until_told_to_leave(trial: WorkerBench, action: str, code: int) -> None:
    agent = trial.agent(1)
    run = trial.start(agent)
    agent.wait_for(lambda: len(agent.validations()) == 1)
    agent.direct(action)
    assert run.wait() == code, run.output()


@pytest.mark.parametrize("how", ["directive", "signal"])
def test_preempted_saves_there_and_resumes(trial: WorkerBench, tmp_path: Path, how: str) -> None:
    agent = trial.agent(3)
    hold = tmp_path / "hold.go"
    run = trial.start(agent, TEST_HOLD_AT="13", TEST_HOLD_FILE=str(hold))
    wait_for_file(hold.with_suffix(".held"))
    if how == "directive":
        agent.wait_for(lambda: agent.watchers > 0)
        agent.direct("preempt")
    else:
        run.process.send_signal(signal.SIGTERM)
    hold.touch()
    assert run.wait() == 80, run.output()
    checkpoint = agent.checkpoints()[-1]
    if how == "signal":
        assert checkpoint.batches == 13
    resumed = trial.agent(3, checkpoint)
    resumed.react = stop_at(3)
    assert trial.start(resumed).wait() == 0
    assert resumed.validations()[-1].metrics["total"] == expected_sum(30)


def test_a_report_lost_with_its_worker_is_made_again(trial: WorkerBench) -> None:
    """The script saves before it validates, so a validation that was lost with its worker is made again at the same step."""
    agent = trial.agent(2)
    run = trial.start(agent)
    agent.wait_for(lambda: len(agent.validations()) == 1)
    run.kill()
    resumed = trial.agent(2, agent.checkpoints()[0])
    resumed.react = stop_at(2)
    assert trial.start(resumed).wait() == 0
    assert [report.metrics["total"] for report in resumed.validations()] == [expected_sum(20)]


def test_killed_resumes_from_the_last_checkpoint_of_its_period(tmp_path: Path) -> None:
    periods = {"min_validation_period": {"epochs": 1}, "min_checkpoint_period": {"batches": 4}}
    with WorkerBench(tmp_path, SCRIPTS, config(**periods), {"factor": 2}) as trial:
        agent, hold = trial.agent(2), tmp_path / "hold.go"
        run = trial.start(agent, TEST_HOLD_AT="15", TEST_HOLD_FILE=str(hold))
        wait_for_file(hold.with_suffix(".held"))
        agent.wait_for(lambda: bool(agent.checkpoints()))
        run.kill()
        assert [report.batches for report in agent.checkpoints()] == [4, 8, 12][: len(agent.checkpoints())]
        resumed = trial.agent(2, agent.checkpoints()[-1])
        resumed.react = stop_at(2)
        assert trial.start(resumed).wait() == 0
        assert resumed.validations()[-1].metrics["total"] == expected_sum(20)


def test_a_script_without_a_loop_starts_again_for_more(tmp_path: Path) -> None:
    """It knows nothing of operations(): it trains to where the search wants it, validates and ends."""
    text = """
import tenuto
run = tenuto.init()
run.epoch_batches = 10
start = run.checkpoint.latest.steps if run.checkpoint.latest else 0
with run.checkpoint.save(run.target_steps()) as directory:
    (directory / "begun_at").write_text(str(start))
run.report_validation(run.target_steps(), {"total": start})
"""
    with script(tmp_path, text) as trial:
        agent = trial.agent(1)
        run = trial.start(agent)
        agent.wait_for(lambda: len(agent.validations()) == 1)
        agent.direct("run", 3)
        assert run.wait() == 80, run.output()  # its trial goes on
        assert "train.py starts again" in run.output()
        again = trial.agent(3, agent.checkpoints()[0])
        again.react = stop_at(3)
        assert trial.start(again).wait() == 0
        assert again.validations()[-1].metrics == {"total": 10.0}


def test_one_position_may_be_saved_twice_and_a_failed_block_leaves_nothing(tmp_path: Path) -> None:
    text = """
import tenuto
with tenuto.init() as run:
    run.epoch_batches = 10
    for number in range(2):
        with run.checkpoint.save(10) as directory:
            (directory / "number").write_text(str(number))
    try:
        with run.checkpoint.save(15) as directory:
            (directory / "half").write_text("x")
            raise RuntimeError
    except RuntimeError:
        pass
    with run.checkpoint.restore() as directory:
        run.report_validation(10, {"total": int((directory / "number").read_text())})
"""
    with script(tmp_path, text) as trial:
        agent = trial.agent(1)
        agent.react = stop_at(1)
        assert trial.start(agent).wait() == 0
        assert [report.checkpoint_id for report in agent.checkpoints()] == ["1-1-1-10", "1-1-1-10-2"]
        assert sorted(path.name for path in trial.checkpoint_directory.iterdir()) == ["blobs", "manifests"]
        assert agent.validations()[0].metrics == {"total": 1.0}


def test_a_module_of_a_package_with_spawned_helpers(tmp_path: Path) -> None:
    """`python -m` as users know it: helpers that multiprocessing spawns find the script's own functions."""
    context = tmp_path / "context" / "package"
    context.mkdir(parents=True)
    (context / "__init__.py").touch()
    (context / "train.py").write_text(
        "import multiprocessing, tenuto\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with tenuto.init() as run:\n"
        "        run.epoch_batches = 10\n"
        "        with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "            run.report_validation(10, {'total': pool.map(double, [21])[0]})\n"
    )
    with WorkerBench(tmp_path, context.parent, config(entrypoint="python -m package.train"), {}) as trial:
        agent = trial.agent(1)
        agent.react = stop_at(1)
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        assert agent.validations()[0].metrics == {"total": 42.0}


def test_the_example_ends_alike_whether_killed_or_not(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "core_api"
    changes = yaml.safe_load((example / "config.yaml").read_text())
    changes["searcher"]["max_length"] = {"epochs": 3}
    weights = []
    for killed in (False, True):
        place = tmp_path / str(killed)
        place.mkdir()
        with WorkerBench(place, example, changes, {"learning_rate": 0.3, "batch_size": 32}) as trial:
            agent = trial.agent(3)
            if killed:
                run = trial.start(agent)
                agent.wait_for(lambda agent=agent: bool(agent.checkpoints()))  # type: ignore[misc]
                run.kill()
                agent = trial.agent(3, agent.checkpoints()[0])
            agent.react = stop_at(3)
            run = trial.start(agent)
            assert run.wait() == 0, run.output()
            assert agent.validations()[-1].metrics["accuracy"] > 0.85
            weights.append(next(file.sha256 for file in agent.checkpoints()[-1].files if file.path == "weights.npy"))
    assert weights[0] == weights[1]


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    with WorkerBench(tmp_path, SCRIPTS, config(min_checkpoint_period={"batches": 4}), {"factor": 2}) as trial:
        agent = trial.agent(1)
        agent.react = stop_at(1)
        assert trial.start(agent).wait() == 0
        *_, before, latest = agent.checkpoints()
        assert (before.batches, latest.batches) == (8, 10)
        (damaged,) = (trial.checkpoint_directory / "blobs").glob(
            f"{next(file.sha256 for file in latest.files if file.path == 'sum.txt')}*"
        )
        damaged.chmod(0o644)
        damaged.write_text("0")
        resumed = trial.agent(2, latest, earlier=[before])
        resumed.react = stop_at(2)
        run = trial.start(resumed)
        assert run.wait() == 0, run.output()
        assert "resumes from checkpoint 1-1-1-8 at step 8" in run.output()
        assert resumed.validations()[-1].metrics["total"] == expected_sum(20)


def test_a_storage_that_takes_nothing_is_told_and_training_goes_on(trial: WorkerBench, tmp_path: Path) -> None:
    trial.checkpoint_directory = tmp_path / "storage" / "checkpoints"
    (tmp_path / "storage").write_text("not a directory")
    agent = trial.agent(1)
    run = trial.start(agent)
    agent.wait_for(lambda: len(agent.validations()) == 1)
    assert agent.checkpoints() == []
    agent.direct("stop")
    assert run.wait() == 0, run.output()
    assert f"{tmp_path / 'storage'}" in run.output()
    assert "training goes on without it" in run.output()


def test_a_notice_of_the_script_is_reported(tmp_path: Path) -> None:
    text = (
        "import tenuto\n"
        "with tenuto.init() as run:\n"
        "    run.epoch_batches = 1\n"
        "    sent = [run.notify(f'notice {number}', level='warning') for number in range(30)]\n"
        "    assert sent == [True] * 20 + [False] * 10\n"
        "    for operation in run.operations():\n"
        "        run.report_validation(operation.steps, {'total': 1.0})\n"
    )
    with script(tmp_path, text) as trial:
        agent = trial.agent(1)
        agent.react = stop_at(1)
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        notices = [report for report in agent.reports if isinstance(report, NoticeReport)]
        assert [report.text for report in notices] == [f"notice {number}" for number in range(20)]
        assert {report.level for report in notices} == {"warning"}
        assert "notices are left out" in run.output()
