"""A worker whose checkpoint is beyond its target, or at it without a validation: it is asked for no fewer steps than there are,
validates where it is, and has a checkpoint of its own there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tenuto.schemas.config import Length
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench, goes_on_with
from tests.support.reactions import stop_at

SUPPORT = Path(__file__).parents[1] / "support"
EXAMPLES = Path(__file__).parents[2] / "examples"
LENGTHS = {"epochs": 5}


def counting(tmp_path: Path) -> WorkerBench:
    config = {"name": "t", "entrypoint": "model_def:CountingTrial"}
    searcher = {"name": "single", "metric": "total", "max_length": LENGTHS}
    return WorkerBench(tmp_path, SUPPORT / "trials" / "counting", {**config, "searcher": searcher}, {})


def summing(tmp_path: Path) -> WorkerBench:
    config = {"name": "t", "entrypoint": "train.py"}
    searcher = {"name": "single", "metric": "total", "max_length": LENGTHS}
    return WorkerBench(tmp_path, SUPPORT / "scripts" / "summing", {**config, "searcher": searcher}, {"factor": 1})


def of_example(name: str, tmp_path: Path, modules: tuple[str, ...], values: dict[str, Any]) -> WorkerBench:
    config = yaml.safe_load((EXAMPLES / name / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": 12}
    config.pop("min_checkpoint_period", None)
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "train.py").write_text((EXAMPLES / name / "train.py").read_text())
    return WorkerBench(tmp_path, tmp_path / "context", config, values, modules=modules)


def huggingface(tmp_path: Path) -> WorkerBench:
    real_parts.package("transformers")
    modules = ("transformers.trainer", "transformers.models.bert.modeling_bert", "accelerate")
    return of_example("huggingface", tmp_path, modules, {"learning_rate": 0.002, "hidden_size": 8})


def lightning(tmp_path: Path) -> WorkerBench:
    real_parts.package("lightning")
    modules = ("lightning", "sklearn.datasets", "torchdata.stateful_dataloader")
    return of_example("lightning", tmp_path, modules, {"learning_rate": 0.01, "hidden": 16, "dropout": 0.2})


QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
ALL = pytest.mark.parametrize(
    ("bench_of", "unit"),
    [
        (counting, 10),
        (summing, 10),
        pytest.param(huggingface, 1, marks=pytest.mark.slow),
        pytest.param(lightning, 1, marks=pytest.mark.slow),
    ],
    ids=["class", "script", "huggingface", "lightning"],
)


def trained(trial: WorkerBench, length: int) -> AgentStandIn:
    """A trial that reached this length and was paused there."""
    agent = trial.agent(length)
    run = trial.start(agent, **QUIET)
    agent.wait_for(lambda: len(agent.validations()) == 1)
    agent.direct("pause")
    assert run.wait() == 81, run.output()
    return agent


@ALL
def test_a_trial_of_an_earlier_experiment_counts_where_it_is(bench_of: Any, unit: int, tmp_path: Path) -> None:
    with bench_of(tmp_path) as trial:
        parent = trained(trial, 4)
        child = goes_on_with(trial.agent(1), parent.checkpoints()[-1])
        run = trial.start(child, **QUIET)
        child.wait_for(lambda: len(child.validations()) == 1)
        child.react = stop_at(5)
        child.direct("run", 5)
        assert run.wait() == 0, run.output()
    reached, ended = child.validations()
    assert (reached.batches, reached.length, ended.batches) == (4 * unit, 4, 5 * unit)
    [before] = parent.validations()
    searched = trial.config.searcher.metric
    assert reached.metrics[searched] == before.metrics[searched], "the very weights"
    assert [report.batches for report in child.checkpoints()] == [4 * unit, 5 * unit], "the best stays, whatever follows"
    assert child.checkpoints()[0].checkpoint_id.startswith("2-1-")


@ALL
def test_a_trial_that_left_between_training_and_validation_validates(bench_of: Any, unit: int, tmp_path: Path) -> None:
    """Its checkpoint is at the target, and its validation nowhere."""
    with bench_of(tmp_path) as trial:
        trial.config = trial.config.model_copy(update={"min_checkpoint_period": Length(batches=4 * unit)})
        whole = trial.agent(5)
        whole.react = stop_at(5)
        run = trial.start(whole, **QUIET)
        assert run.wait() == 0, run.output()
        saved = whole.checkpoints()[0]
        assert saved.batches == 4 * unit
        again = trial.agent(4, saved)
        again.react = stop_at(4)
        run = trial.start(again, **QUIET)
        assert run.wait() == 0, run.output()
    assert [report.batches for report in again.validations()] == [4 * unit]
