"""The example for Hugging Face's accelerate in real worker processes: killed, paused and resumed, with the same bits. No
downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.reactions import stop_at
from tests.support.trainers_on_ranks import check_two_ranks

real_parts.package("accelerate")
EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerate"
QUIET = {"OMP_NUM_THREADS": "1"}
EPOCH, END = 89, 100
"""Batches: the second epoch has begun at the end."""


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[WorkerBench]:
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": END}
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "train.py").write_text((EXAMPLE / "train.py").read_text())
    values = {"learning_rate": 0.01, "batch_size": 16}
    with WorkerBench(tmp_path, tmp_path / "context", config, values, modules=("accelerate", "sklearn.datasets")) as bench:
        yield bench


def files_of(agent: AgentStandIn) -> dict[str, str]:
    last = agent.checkpoints()[-1]
    assert last.batches == END
    return {file.path: file.sha256 for file in last.files}


def losses_of(agent: AgentStandIn) -> dict[int, float]:
    return {point.batches: point.metrics["loss"] for report in agent.metrics for point in report.points}


@pytest.mark.timeout(400)
def test_killed_and_paused_it_ends_with_the_same_bits(trial: WorkerBench) -> None:
    whole = trial.agent(60)
    run = trial.start(whole, **QUIET)
    whole.wait_for(lambda: len(whole.validations()) == 1)
    whole.react = stop_at(END)
    whole.direct("run", END)
    assert run.wait() == 0, run.output()
    assert [report.batches for report in whole.checkpoints()] == [25, 50, 60, 75, 100]

    killed = trial.agent(60)
    run = trial.start(killed, **QUIET)
    killed.wait_for(lambda: bool(killed.checkpoints()))
    run.kill()
    first = killed.checkpoints()[0]
    assert first.batches == 25
    paused = trial.agent(60, first)
    run = trial.start(paused, **QUIET)
    paused.wait_for(lambda: len(paused.validations()) == 1)
    paused.direct("pause")
    assert run.wait() == 81, run.output()
    resumed = trial.agent(END, paused.checkpoints()[-1])
    resumed.react = stop_at(END)
    run = trial.start(resumed, **QUIET)
    assert run.wait() == 0, run.output()
    assert resumed.validations()[-1].metrics == whole.validations()[-1].metrics
    assert losses_of(paused) | losses_of(resumed) == {
        steps: loss for steps, loss in losses_of(whole).items() if steps > first.batches
    }
    ours, theirs = files_of(resumed), files_of(whole)
    for name in ("model.safetensors", "optimizer.bin", "scheduler.bin"):
        assert ours[name] == theirs[name], name


@pytest.mark.timeout(400)
def test_two_ranks_leave_together_and_end_with_the_same_validation(tmp_path: Path) -> None:
    values = {"learning_rate": 0.01, "batch_size": 16}
    generators = {"random_states_0.pkl", "random_states_1.pkl"}
    check_two_ranks(tmp_path, EXAMPLE, values, ("accelerate", "sklearn.datasets"), {"model.safetensors", *generators}, **QUIET)
