"""Code in the documentation of the Trial API runs as printed, and so does the GAN example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import tenuto.pytorch
from tenuto.pytorch import PyTorchCallback, PyTorchTrial, PyTorchTrialContext, load_model_state
from tenuto.schemas.config import ExperimentConfig
from tenuto.schemas.config.experiment import Optimizations
from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files

SOURCE = Path(__file__).parents[2]
PAGE = (SOURCE / "docs" / "pytorch.md").read_text()


def stop_at(target: int, agent: AgentStandIn) -> AgentStandIn:
    def react(report: TrackerReport) -> pb.Directive | None:
        done = report.kind == "validation" and report.length == target
        return pb.Directive(action=pb.Directive.STOP, target_length=target) if done else None

    agent.react = react
    return agent


def run_to_end(trial: WorkerBench, target: int, checkpoint: CheckpointReport | None = None) -> AgentStandIn:
    agent = stop_at(target, trial.agent(target, checkpoint))
    run = trial.start(agent)
    assert run.wait() == 0, run.output()
    return agent


@pytest.fixture
def page_files(tmp_path: Path) -> Path:
    for name, kind in (("model_def.py", "python"), ("config.yaml", "yaml")):
        found = re.search(rf"`{re.escape(name)}`\n\n```{kind}\n(.*?)```", PAGE, re.DOTALL)
        assert found is not None, f"docs/pytorch.md shows no {name}"
        (tmp_path / "context").mkdir(exist_ok=True)
        (tmp_path / "context" / name).write_text(found[1])
    return tmp_path / "context"


def test_the_example_of_the_page_runs_and_learns(tmp_path: Path, page_files: Path) -> None:
    config = yaml.safe_load((page_files / "config.yaml").read_text())
    (tmp_path / "bench").mkdir()
    with WorkerBench(tmp_path / "bench", page_files, config, {"width": 48, "learning_rate": 0.02}) as trial:
        agent = run_to_end(trial, 6)
        metrics = agent.validations()[-1].metrics
        assert metrics["accuracy"] > 0.85
        assert metrics["recall"] > 0.7
        assert [report.length for report in agent.checkpoints()] == [2, 4, 6]
        (downloaded := tmp_path / "downloaded").mkdir()
        for name, file in stored_files(agent.checkpoints()[-1]).items():
            (downloaded / name).write_bytes(file.read_bytes())
        assert sorted(load_model_state(downloaded)) == ["0.bias", "0.weight", "3.bias", "3.weight"]
        # From its second checkpoint it comes to the same end.
        again = run_to_end(trial, 6, agent.checkpoints()[1])
        assert again.validations()[-1].metrics == metrics


def test_the_page_names_everything_that_users_can_call() -> None:
    names = {name for name in vars(PyTorchTrialContext) if not name.startswith("_")}
    names |= {name for name in vars(PyTorchCallback) if not name.startswith("_")}
    names |= {name for name in vars(PyTorchTrial) if not name.startswith("_")} - {"deterministic", "make_trainer"}
    names |= set(tenuto.pytorch.__all__) | set(Optimizations.model_fields)
    few_need = {"get_global_batch_size", "get_per_slot_batch_size", "PyTorchTrialContext"}
    assert sorted(name for name in names - few_need if name not in PAGE) == []


def test_the_gan_example_learns_and_comes_to_the_same_end_after_an_interruption(tmp_path: Path) -> None:
    config = yaml.safe_load((SOURCE / "examples" / "gan" / "config.yaml").read_text())
    space = ExperimentConfig.model_validate(config).hyperparameters
    values = {"generator_learning_rate": 1e-3, "discriminator_learning_rate": 1e-3, "noise_size": 16, "batch_size": 64}
    assert values.keys() == space.keys()
    with WorkerBench(tmp_path, SOURCE / "examples" / "gan", config, values) as trial:
        agent = run_to_end(trial, 6)
        metrics = agent.validations()[-1].metrics
        assert metrics["frechet_distance"] < 5  # 11 before training
        again = run_to_end(trial, 6, agent.checkpoints()[0])
        assert again.validations()[-1].metrics == metrics
