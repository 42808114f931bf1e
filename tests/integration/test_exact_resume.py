"""A trial that was killed or preempted, and resumed, equals one that was not: weights, optimizer, metrics, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files

CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "augmented"
TARGET_BATCHES = 40
EPOCH_BATCHES = 12  # 90 records in batches of 8, the last one short


def config(**changes: Any) -> dict[str, Any]:
    return {
        "name": "exact",
        "entrypoint": "model_def:AugmentedTrial",
        "searcher": {
            "name": "single",
            "metric": "accuracy",
            "smaller_is_better": False,
            "max_length": {"batches": TARGET_BATCHES},
        },
        "min_checkpoint_period": {"batches": 7},
        "log_period": {"batches": 1},
        **changes,
    }


def bench(directory: Path, loader_workers: int = 0, **changes: Any) -> WorkerBench:
    directory.mkdir()
    return WorkerBench(directory, CONTEXT, config(**changes), {"learning_rate": 0.01, "loader_workers": loader_workers})


def stop_at_target(report: TrackerReport) -> pb.Directive | None:
    if report.kind == "validation" and report.batches == TARGET_BATCHES:
        return pb.Directive(action=pb.Directive.STOP, target_length=TARGET_BATCHES)
    return None


def finish(trial: WorkerBench, checkpoint: CheckpointReport | None = None) -> AgentStandIn:
    agent = trial.agent(TARGET_BATCHES, checkpoint)
    agent.react = stop_at_target
    run = trial.start(agent)
    assert run.wait() == 0, run.output()
    return agent


def content(agent: AgentStandIn, before: CheckpointReport | None = None) -> dict[str, Any]:
    """Content of the checkpoint at the target, apart from file formats' own bytes. `before`: the one that the agent's run began
    with, which may be at the target."""
    checkpoint = agent.checkpoints()[-1] if agent.checkpoints() else before
    assert checkpoint is not None
    assert checkpoint.batches == TARGET_BATCHES
    files = stored_files(checkpoint)
    return {
        "weights": files["model.safetensors"].read_bytes(),
        "state": torch.load(files["state.pt"], weights_only=False),
        "validation": agent.validations()[-1].metrics,
    }


def assert_equal(ours: Any, theirs: Any, path: str = "") -> None:
    assert type(ours) is type(theirs), path
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), path
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs), path
        for name in ours:
            assert_equal(ours[name], theirs[name], f"{path}.{name}")
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), path
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(*pair, path=f"{path}[{index}]")
    else:
        assert ours == theirs, path


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with bench(tmp_path_factory.mktemp("whole") / "t") as trial:
        return content(finish(trial))


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, uninterrupted: dict[str, Any], loader_workers: int) -> None:
    with bench(tmp_path / "t", loader_workers) as trial:
        # Killed past its second checkpoint (batch 14, in the second epoch, two batches into the accumulation of gradients).
        agent = trial.agent(TARGET_BATCHES)
        run = trial.start(agent)
        agent.wait_for(lambda: len(agent.checkpoints()) >= 2)
        run.kill()
        checkpoint = agent.checkpoints()[1]
        assert checkpoint.batches == 14
        assert_equal(content(finish(trial, checkpoint)), uninterrupted)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_preempted_twice_and_resumed_equals_uninterrupted(
    tmp_path: Path, uninterrupted: dict[str, Any], loader_workers: int
) -> None:
    with bench(tmp_path / "t", loader_workers, min_checkpoint_period=None) as trial:
        agent = trial.agent(TARGET_BATCHES)
        run = trial.start(agent, TEST_SIGTERM_AT="15")
        assert run.wait() == 80, run.output()
        (checkpoint,) = agent.checkpoints()
        assert checkpoint.batches == 16
        assert agent.validations() == []
        # And once more, wherever the agent's directive finds it.
        agent = trial.agent(TARGET_BATCHES, checkpoint)
        run = trial.start(agent)
        agent.wait_for(lambda: agent.watchers > 0)
        agent.direct("preempt")
        assert run.wait() == 80, run.output()
        last = (agent.checkpoints() or [checkpoint])[-1]
        assert_equal(content(finish(trial, last), last), uninterrupted)


def test_validating_more_often_changes_nothing_in_training(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    with bench(tmp_path / "t", min_validation_period={"batches": 5}) as trial:
        agent = finish(trial)
        assert [report.batches for report in agent.validations()] == [5, 10, 15, 20, 25, 30, 35, 40]
        assert_equal(content(agent), uninterrupted)


def test_extending_in_steps_equals_training_in_one_go(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    with bench(tmp_path / "t") as trial:
        agent = trial.agent(10)

        def extend(report: TrackerReport) -> pb.Directive | None:
            if report.kind != "validation" or report.batches == TARGET_BATCHES:
                return stop_at_target(report)
            return pb.Directive(action=pb.Directive.RUN, target_length=min(TARGET_BATCHES, report.batches * 2))

        agent.react = extend
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        assert [report.batches for report in agent.validations()] == [10, 20, 40]
        assert_equal(content(agent), uninterrupted)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_runs_that_share_a_process_equal_one_of_its_own(
    tmp_path: Path, uninterrupted: dict[str, Any], loader_workers: int
) -> None:
    """The whole training, its first part, and the rest of it, one after the other in one worker that stays."""
    with bench(tmp_path / "t", loader_workers) as trial:
        trial.keeps = True
        assert_equal(content(finish(trial)), uninterrupted)
        assert_equal(content(finish(trial)), uninterrupted)
        agent = trial.agent(TARGET_BATCHES)
        agent.react = lambda report: (
            pb.Directive(action=pb.Directive.PAUSE, target_length=TARGET_BATCHES) if report.kind == "checkpoint" else None
        )
        run = trial.start(agent)
        assert run.wait() == 81, run.output()
        assert_equal(content(finish(trial, agent.checkpoints()[-1])), uninterrupted)
        assert len({run.process.pid for run in trial.runs}) == 1
