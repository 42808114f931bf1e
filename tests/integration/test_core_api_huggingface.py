"""Hugging Face's Trainer in real worker processes: lengths of a search, a kill, a preemption. No downloads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from tenuto.schemas.config.experiment import Length
from tenuto.schemas.reports import CheckpointReport, ValidationReport
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench, begins_with_weights
from tests.support.reactions import stop_at
from tests.support.trainers_on_ranks import check_two_ranks

real_parts.package("transformers")
pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "huggingface"
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
MODULES = ("transformers.trainer", "transformers.models.bert.modeling_bert", "accelerate")


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorkerBench]:
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": 12}
    config["min_checkpoint_period"] = {"batches": 4}
    config["log_period"] = {"batches": 2}
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "train.py").write_text((EXAMPLE / "train.py").read_text())
    values = {"learning_rate": 0.002, "hidden_size": 8}
    with WorkerBench(tmp_path, tmp_path / "context", config, values, modules=MODULES) as bench:
        yield bench


def final_weights(agent: AgentStandIn) -> str:
    last = agent.checkpoints()[-1]
    assert last.batches == 12
    return next(file.sha256 for file in last.files if file.path == "model.safetensors")


@pytest.mark.timeout(400)
def test_lengths_of_a_search_and_exact_resume_after_a_kill_and_a_pause(trial: WorkerBench) -> None:
    whole = trial.agent(6)
    run = trial.start(whole, **QUIET)
    whole.wait_for(lambda: len(whole.validations()) == 1)  # it waits at the rung
    whole.react = stop_at(12)
    whole.direct("run", 12)
    assert run.wait() == 0, run.output()
    assert [report.batches for report in whole.validations()] == [6, 12]
    assert [report.batches for report in whole.checkpoints()] == [4, 6, 8, 12]
    order = [type(report) for report in whole.reports if report.batches in (6, 12) and report.kind != "progress"]
    assert order == [CheckpointReport, ValidationReport] * 2, "the checkpoint is reported first"
    assert set(whole.validations()[0].metrics) == {"eval_loss", "eval_accuracy"}
    points = [point for report in whole.metrics for point in report.points]
    assert [point.batches for point in points] == [2, 4, 6, 8, 10, 12]
    assert set(points[0].metrics) == {"loss", "grad_norm", "learning_rate"}
    assert list((trial.context_directory / "output" / "1-1").iterdir()) == [], "no copy of a checkpoint is left"

    killed = trial.agent(12)
    run = trial.start(killed, **QUIET)
    killed.wait_for(lambda: bool(killed.checkpoints()))
    run.kill()
    paused = trial.agent(6, killed.checkpoints()[0])
    run = trial.start(paused, **QUIET)
    paused.wait_for(lambda: len(paused.validations()) == 1)
    paused.direct("pause")
    assert run.wait() == 81, run.output()
    resumed = trial.agent(12, paused.checkpoints()[-1])
    resumed.react = stop_at(12)
    run = trial.start(resumed, **QUIET)
    assert run.wait() == 0, run.output()
    assert [report.batches for report in resumed.validations()] == [6, 12], "the one that may have been lost comes again"
    assert [report.batches for report in resumed.checkpoints()] == [8, 12]
    assert resumed.validations()[-1].metrics == whole.validations()[-1].metrics
    assert final_weights(resumed) == final_weights(whole)

    warm = trial.agent(4)
    warm.assignment = begins_with_weights(warm.assignment, whole.checkpoints()[-1])
    warm.react = stop_at(4)
    run = trial.start(warm, **QUIET)
    assert run.wait() == 0, run.output()
    assert "begins with the weights of checkpoint" in run.output()
    assert [report.batches for report in warm.validations()] == [4], "from its own first step on"
    first = {point.batches: point.metrics["loss"] for report in whole.metrics for point in report.points}
    began = {point.batches: point.metrics["loss"] for report in warm.metrics for point in report.points}
    assert began[2] < first[2], "what was trained is there"


@pytest.mark.timeout(400)
def test_the_first_loss_after_a_resume_is_that_of_the_same_steps(trial: WorkerBench) -> None:
    """Saved between two logs: of the four steps that the next log is about, another process trained two or three."""
    trial.config = trial.config.model_copy(update={"min_checkpoint_period": Length(batches=3), "log_period": Length(batches=4)})
    whole = trial.agent(12)
    whole.react = stop_at(12)
    assert (run := trial.start(whole, **QUIET)).wait() == 0, run.output()
    expected = losses_of(whole)
    assert sorted(expected) == [4, 8, 12]
    saved = {report.batches: report for report in whole.checkpoints()}
    for place, nexts in ((3, [4, 8, 12]), (6, [8, 12])):
        resumed = trial.agent(12, saved[place])
        resumed.react = stop_at(12)
        assert (run := trial.start(resumed, **QUIET)).wait() == 0, run.output()
        assert losses_of(resumed) == {steps: expected[steps] for steps in nexts}


def losses_of(agent: AgentStandIn) -> dict[int, float]:
    return {point.batches: point.metrics["loss"] for report in agent.metrics for point in report.points}


@pytest.mark.timeout(400)
def test_two_ranks(tmp_path: Path) -> None:
    files = {"model.safetensors", "rng_state_0.pth", "rng_state_1.pth"}
    check_two_ranks(tmp_path, EXAMPLE, {"learning_rate": 0.002, "hidden_size": 8}, MODULES, files, HF_HUB_OFFLINE="1")


@pytest.mark.parametrize(("drop_last", "steps"), [(False, [10, 4, 2]), (True, [10, 3, 2])])
def test_an_epoch_has_the_steps_that_each_rank_makes(drop_last: bool, steps: list[int]) -> None:
    """100 records in batches of 10, on one rank, on three, and on three with two batches a step."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    from tenuto.workers.integrations.huggingface import _epoch_steps

    found = []
    for world_size, accumulated in ((1, 1), (3, 1), (3, 2)):
        sampler = BatchSampler(range(100), 10, drop_last)
        made = [len(list(BatchSamplerShard(sampler, world_size, rank))) for rank in range(world_size)]
        arguments = SimpleNamespace(
            train_batch_size=10, dataloader_drop_last=drop_last, world_size=world_size, gradient_accumulation_steps=accumulated
        )
        found.append(_epoch_steps(cast(Any, SimpleNamespace(args=arguments, train_dataset=range(100)))))
        assert found[-1] == math.ceil(made[0] / accumulated)
    assert found == steps
