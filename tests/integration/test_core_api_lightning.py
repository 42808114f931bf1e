"""Lightning in real worker processes: lengths of a search, a kill, a preemption. No downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tenuto.schemas.reports import CheckpointReport, ValidationReport
from tenuto.workers.errors import UserError
from tenuto.workers.integrations import ranks
from tests.support import real_parts
from tests.support.agent_stand_in import WorkerBench, begins_with_weights
from tests.support.reactions import stop_at
from tests.support.trainers_on_ranks import check_two_ranks

real_parts.package("lightning")
pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning"
QUIET = {"OMP_NUM_THREADS": "1"}
MODULES = ("lightning", "sklearn.datasets", "torchdata.stateful_dataloader")
EPOCH_STEPS = 45


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorkerBench]:
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": 2 * EPOCH_STEPS}
    config["min_checkpoint_period"] = {"batches": 30}
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "train.py").write_text((EXAMPLE / "train.py").read_text())
    hyperparameters = {"learning_rate": 0.01, "hidden": 16, "dropout": 0.2}
    with WorkerBench(tmp_path, tmp_path / "context", config, hyperparameters, modules=MODULES) as bench:
        yield bench


@pytest.mark.timeout(400)
def test_lengths_of_a_search_and_exact_resume_within_an_epoch(trial: WorkerBench) -> None:
    whole = trial.agent(20)
    run = trial.start(whole, **QUIET)
    whole.wait_for(lambda: len(whole.validations()) == 1)  # it waits at the rung, within the first epoch
    whole.react = stop_at(2 * EPOCH_STEPS)
    whole.direct("run", 2 * EPOCH_STEPS)
    assert run.wait() == 0, run.output()
    validated = [report.batches for report in whole.validations()]
    assert validated == [20, EPOCH_STEPS, 2 * EPOCH_STEPS], "at the rung, and where Lightning does: at the ends of epochs"
    assert [report.batches for report in whole.checkpoints()] == [20, 30, 60, 90]
    order = [type(report) for report in whole.reports if report.batches in (20, 90) and report.kind != "progress"]
    assert order == [CheckpointReport, ValidationReport] * 2, "the checkpoint is reported first"
    assert set(whole.validations()[0].metrics) == {"validation_loss", "accuracy"}
    points = [point for report in whole.metrics for point in report.points]
    assert [point.batches for point in points] == list(range(10, 91, 10))
    assert set(points[0].metrics) == {"loss"}

    second_epoch = next(report for report in whole.checkpoints() if report.batches == 60)
    assert final_metrics(trial, second_epoch) == whole.validations()[-1].metrics

    signaled = trial.agent(20)
    run = trial.start(signaled, **QUIET)
    signaled.wait_for(lambda: len(signaled.validations()) == 1)
    run.process.terminate()  # Lightning has a handler of its own for this signal
    assert run.wait() == 80, run.output()
    assert final_metrics(trial, signaled.checkpoints()[-1]) == whole.validations()[-1].metrics
    assert [report.batches for report in trial.agents[-1].validations()] == [20, 45, 90], "what may be lost comes again"
    assert [report.batches for report in trial.agents[-1].checkpoints()] == [30, 60, 90]

    warm = trial.agent(10)
    warm.assignment = begins_with_weights(warm.assignment, whole.checkpoints()[-1])
    warm.react = stop_at(10)
    run = trial.start(warm, **QUIET)
    assert run.wait() == 0, run.output()
    assert "begins with the weights of checkpoint" in run.output()
    (validation,) = warm.validations()
    assert validation.batches == 10, "from its own first step on"
    assert validation.metrics["validation_loss"] < whole.validations()[0].metrics["validation_loss"], "what was trained is there"


def final_metrics(trial: WorkerBench, source: CheckpointReport) -> dict[str, float]:
    resumed = trial.agent(2 * EPOCH_STEPS, source)
    resumed.react = stop_at(2 * EPOCH_STEPS)
    run = trial.start(resumed, **QUIET)
    assert run.wait() == 0, run.output()
    return resumed.validations()[-1].metrics


@pytest.mark.timeout(400)
def test_two_ranks(tmp_path: Path) -> None:
    hyperparameters = {"learning_rate": 0.01, "hidden": 16, "dropout": 0.2}
    check_two_ranks(tmp_path, EXAMPLE, hyperparameters, MODULES, {"lightning.ckpt", "random.pt"})


def test_a_trainer_with_fewer_processes_than_ranks_is_refused() -> None:
    """Each of them would train a model of its own."""
    run: Any = SimpleNamespace(slots=2)
    ranks.expect(run, 2, "")
    with pytest.raises(UserError, match="the trial has 2 slots, but its trainer works with 1 processes; set devices"):
        ranks.expect(run, 1, "devices")
