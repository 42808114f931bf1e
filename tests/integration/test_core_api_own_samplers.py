"""Samplers and streams with generators and counts of their own, in other libraries' trainers, killed within an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tenuto.schemas.reports import CheckpointReport
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.reactions import stop_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tests" / "support" / "scripts"
STEPS, SAVED_EVERY = 15, 3
"""Of 6 in an epoch."""
LIBRARIES = {
    "huggingface": ("transformers", ("transformers.trainer", "transformers.models.bert.modeling_bert", "accelerate")),
    "lightning": ("lightning", ("lightning", "sklearn.datasets", "torchdata.stateful_dataloader")),
}
"""With what tests of the same library have their workers import ahead: so one warm process serves both files."""


@contextmanager
def bench(library: str, tmp_path: Path) -> Iterator[WorkerBench]:
    name, modules = LIBRARIES[library]
    real_parts.package(name)
    config = yaml.safe_load((REPOSITORY / "examples" / library / "config.yaml").read_text())
    config["searcher"] |= {"metric": "eval_loss", "max_length": {"batches": STEPS}}
    config |= {"hyperparameters": {}, "min_checkpoint_period": {"batches": SAVED_EVERY}, "log_period": {"batches": STEPS}}
    config.pop("min_validation_period", None)
    context = tmp_path / "context"
    context.mkdir()
    for file in (SCRIPTS / "own_samplers.py", SCRIPTS / f"own_{library}" / "train.py"):
        (context / file.name).write_text(file.read_text())
    with WorkerBench(tmp_path, context, config, {}, modules=modules) as opened:
        yield opened


@pytest.fixture(params=LIBRARIES)
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerBench]:
    with bench(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def lightning(tmp_path: Path) -> Iterator[WorkerBench]:
    with bench("lightning", tmp_path) as opened:
        yield opened


def result(trial: WorkerBench, source: CheckpointReport | None, **environment: str) -> tuple[AgentStandIn, float, str]:
    agent = trial.agent(STEPS, source)
    agent.react = stop_at(STEPS)
    run = trial.start(agent, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", **environment)
    assert run.wait() == 0, run.output()
    return agent, agent.validations()[-1].metrics["eval_loss"], run.output()


@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "counted stream"])
def test_a_trial_that_was_killed_within_an_epoch_sees_the_records_it_had_not_seen(trial: WorkerBench, kind: str) -> None:
    environment = {"KIND": kind}
    whole, expected, said = result(trial, None, **environment)
    assert "not resumed exactly" not in said
    assert all(not report.breaks for report in whole.checkpoints())

    killed = trial.agent(STEPS)
    run = trial.start(killed, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", **environment)
    killed.wait_for(lambda: len(killed.checkpoints()) >= 3)
    run.kill()
    within = next(report for report in killed.checkpoints() if report.batches == 9)
    _, found, said = result(trial, within, **environment)
    assert found == expected
    assert "not resumed exactly" not in said
    between = next(report for report in whole.checkpoints() if report.batches == 6)
    assert result(trial, between, **environment)[1] == expected, "between two epochs"


@pytest.mark.parametrize("kind", ["shuffled", "workers", "stream", "shuffled, stateful", "sampler, stateful"])
def test_lightning_goes_on_with_the_next_batch_whatever_the_loader(lightning: WorkerBench, kind: str) -> None:
    """Resumed within an epoch, and at the end of one, also after a validation there."""
    kind, _, stateful = kind.partition(", ")
    environment = {"KIND": kind} | ({"STATEFUL": "1"} if stateful else {})
    whole, expected, said = result(lightning, None, **environment)
    assert "not resumed exactly" not in said
    for position in (6, 9, 12):
        source = next(report for report in whole.checkpoints() if report.batches == position)
        assert result(lightning, source, **environment)[1] == expected, f"resumed at {position}"
    assert all(not report.breaks for agent in lightning.agents for report in agent.checkpoints())


def test_what_is_not_found_again_is_said_and_reported(trial: WorkerBench) -> None:
    """A sampler without a length."""
    agent, _, said = result(trial, None, KIND="endless")
    assert said.count("this trial is not resumed exactly: the ") == 1
    [sentence] = agent.checkpoints()[-1].breaks
    assert sentence in said
    assert "the sampler (Endless) has no length" in sentence


def test_what_the_hugging_face_trainer_leaves_out_is_said(tmp_path: Path) -> None:
    """Records that draw from global generators: the batches that were trained are not made again."""
    with bench("huggingface", tmp_path) as trial:
        agent, _, said = result(trial, None, KIND="noisy")
    assert said.count("the data set draws from the global random generators") == 1
    assert "the data set draws from the global random generators" in agent.checkpoints()[0].breaks[0]


def test_lightnings_several_loaders_are_said(lightning: WorkerBench) -> None:
    agent, _, said = result(lightning, None, KIND="sampler", SEVERAL="1")
    assert said.count("Lightning begins the data of an epoch that is interrupted anew") == 1
    several, place = agent.checkpoints()[0].breaks
    assert several.startswith("there are several training loaders")
    assert place in said
