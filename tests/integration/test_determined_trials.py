"""Trials and scripts in the forms of Determined, in real worker processes with a stand-in for their agent: hooks and their order,
batch sizes, reducers, positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.from_determined import convert
from tenuto.schemas.events.run import EXIT_CODE_INVALID_HYPERPARAMETERS, EXIT_CODE_WILL_REPEAT
from tenuto.schemas.reports import CheckpointReport
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.reactions import stop_at, stop_ended
from tests.support.warm_starts import KERAS
from tests.support.worker_run import WorkerRun

CODE = Path(__file__).parents[1] / "support" / "trials" / "from_determined"
CONFIG: dict[str, Any] = {
    "entrypoint": "model_def:Points",
    "data": {"place": "here"},
    "records_per_epoch": 40,
    "scheduling_unit": 2,
    "hyperparameters": {"global_batch_size": 10, "lr": 0.1},
    "searcher": {"name": "single", "metric": "records", "max_length": {"epochs": 2}},
    "min_validation_period": {"batches": 3},
}


@pytest.fixture
def benches() -> Iterator[list[WorkerBench]]:
    found: list[WorkerBench] = []
    yield found
    for bench in found:
        bench.__exit__()


def bench(benches: list[WorkerBench], directory: Path, modules: tuple[str, ...] = (), **changes: Any) -> WorkerBench:
    """A trial of the configuration, as it is converted."""
    conversion = convert({**CONFIG, **changes})
    assert conversion.config is not None, conversion.notes
    benches.append(WorkerBench(directory, CODE, conversion.config, CONFIG["hyperparameters"], modules=modules))
    return benches[-1].__enter__()


def done(trial: WorkerBench, agent: AgentStandIn, code: int = 0) -> WorkerRun:
    run = trial.start(agent, **trial.config.environment.variables)
    assert run.wait() == code, run.output()
    return run


def hooks(run: WorkerRun) -> list[str]:
    return [line.partition("HOOK ")[2] for line in run.output().splitlines() if "HOOK " in line]


EPOCH_ONE = ["epoch start 0", "epoch start second", "workload 2 2"]
VALIDATION = [
    *("validation start first", "validation start second", "validation epoch start", "validation epoch end [8, 8, 4]"),
    *("validation end ['all', 'largest', 'most', 'records']", "save start 1 1", "write end", "upload end True"),
]


def test_a_trial_class(benches: list[WorkerBench], tmp_path: Path) -> None:
    trial = bench(benches, tmp_path)
    agent = trial.agent(2)
    agent.react = stop_at(2)
    run = done(trial, agent)
    facts, sizes, config, *called = hooks(run)
    assert facts == "facts {'place': 'here'} 1000001 1000001 {'place': 'here'} {'global_batch_size': 10, 'lr': 0.1}"
    assert (sizes, config) == ("sizes 10 10 1", "config 40 2")
    assert called == [
        *("startup 0 False", "training start", *EPOCH_ONE, "workload 3 1", *VALIDATION),
        *("epoch end 0 1", "workload 4 1", "epoch start 1", "epoch start second", "workload 6 2", *VALIDATION),
        *("epoch end 1 2", "workload 8 2", *VALIDATION, "shutdown second", "shutdown first"),
    ]
    assert [report.batches for report in agent.validations()] == [3, 6, 8]
    # Each batch counts once, a short one too: (8 + 8 + 4) / 3.
    expected = {"records": 20 / 3, "most": 2.0, "all": 20.0, "largest": pytest.approx(0.95)}
    assert agent.validations()[-1].metrics == expected
    points = {point.batches: point.metrics for report in agent.metrics for point in report.points}
    assert {at: (metrics["records"], metrics["rate"]) for at, metrics in points.items()} == {
        2: (10.0, 0.1),
        3: (10.0, 0.1),
        4: (10.0, 0.1),
        6: (10.0, 0.05),
        8: (10.0, 0.05),
    }
    assert "note.txt" in {file.path for file in checkpoints(agent)[-1].files}
    # Another process goes on from there: what hooks saved is given back.
    more = trial.agent(3, checkpoints(agent)[0])
    more.react = stop_at(3)
    resumed = hooks(done(trial, more))[3:]
    assert resumed[:3] == ["startup 3 True", "load start mine", "training start"]
    assert "epoch end 2 3" in resumed


def checkpoints(agent: AgentStandIn) -> list[CheckpointReport]:
    return [report for report in agent.reports if isinstance(report, CheckpointReport)]


def test_a_script_with_a_trainer(benches: list[WorkerBench], tmp_path: Path) -> None:
    trial = bench(benches, tmp_path, entrypoint="python3 train.py", searcher={"name": "single", "metric": "records"})
    agent = trial.agent(1)
    agent.react = stop_at(1)
    run = done(trial, agent)
    assert "after fit" in run.output()
    assert [(report.batches, report.length) for report in agent.validations()] == [(3, 0), (6, 0), (8, 1)]
    assert [report.batches for report in checkpoints(agent)] == [2, 3, 4, 6, 8]
    points = [point for report in agent.metrics for point in report.points]
    assert [point.batches for point in points] == [2, 3, 4, 6, 8]
    assert points[0].metrics["rate"] == 0.2
    # Told to leave, it saves and ends; another process goes on from there.
    left = trial.agent(1, checkpoints(agent)[1], action="run")
    left.react = lambda report: None
    left.direct("preempt", 1)
    done(trial, left, 80)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("", 1, "ValueError: the data set is not where it should be"),
        (" refuse", EXIT_CODE_INVALID_HYPERPARAMETERS, "lr and batch size do not fit"),
    ],
)
def test_an_error_where_the_trial_is_made_is_the_one_that_is_told(
    benches: list[WorkerBench], tmp_path: Path, words: str, code: int, said: str
) -> None:
    entrypoint = f"python3 refusing.py{words}"
    trial = bench(benches, tmp_path, entrypoint=entrypoint, searcher={"name": "single", "metric": "records"})
    agent = trial.agent(1)
    done(trial, agent, code)
    error = agent.error_file.read_text()
    assert said in error
    assert "_started" not in error


def test_a_script_that_calls_nothing_is_complete_for_single_and_run_once_for_a_search(
    benches: list[WorkerBench], tmp_path: Path
) -> None:
    for name in ("single", "random"):
        (tmp_path / name).mkdir()
    searcher = {"name": "single", "metric": "records"}
    trial = bench(benches, tmp_path / "single", entrypoint="python3 silent.py", searcher=searcher)
    agent = trial.agent(1)
    agent.react = stop_ended
    done(trial, agent)
    comparing = {"name": "random", "metric": "records", "max_trials": 2, "max_length": {"batches": 1}}
    trial = bench(benches, tmp_path / "random", entrypoint="python3 silent.py", searcher=comparing)
    agent = trial.agent(1)
    done(trial, agent, EXIT_CODE_WILL_REPEAT)
    assert "silent.py ended without calling tenuto.init()" in agent.error_file.read_text()


@pytest.mark.parametrize("asks", [False, True])
def test_a_script_with_the_core_api(benches: list[WorkerBench], tmp_path: Path, asks: bool) -> None:
    length = {"max_length": 6} if asks else {}
    entrypoint = "python3 -m determined.launch.torch_distributed python3 count.py" + (" ask" if asks else "")
    trial = bench(benches, tmp_path, entrypoint=entrypoint, searcher={"name": "single", "metric": "loss", **length})
    target = 6 if asks else 1
    agent = trial.agent(target)
    agent.react = stop_at(target)
    run = done(trial, agent)
    expected = [(2, 2), (4, 4), (6, 6)] if asks else [(2, 0), (4, 0), (6, 1)]
    assert [(report.batches, report.length) for report in agent.validations()] == expected
    assert agent.validations()[-1].metrics == {"loss": -6.0}
    assert "metric 'word' is not recorded, because it is no number (str)" in run.output()
    again = trial.agent(target, checkpoints(agent)[0])
    again.react = stop_at(target)
    done(trial, again)
    assert [report.batches for report in again.validations()][-2:] == [4, 6]
    assert [point.batches for report in again.metrics for point in report.points] == [3, 4, 5, 6]


def test_a_keras_trial(benches: list[WorkerBench], tmp_path: Path) -> None:
    searcher = {"name": "single", "metric": "val_loss", "max_length": {"epochs": 2}}
    variables = ["KERAS_BACKEND=torch"]
    changes = {"entrypoint": "keras_def:Circles", "searcher": searcher, "environment": {"environment_variables": variables}}
    trial = bench(benches, tmp_path, KERAS["torch"], **changes)
    agent = trial.agent(2)
    agent.react = stop_at(2)
    assert hooks(done(trial, agent)) == ["facts {'place': 'here'} 1000001 10 10"]
    assert [(report.batches, report.length) for report in agent.validations()] == [(3, 0), (6, 1), (8, 2)]
    assert sorted(agent.validations()[-1].metrics) == ["val_loss", "val_mean_absolute_error"]
