"""Trials with generators, counts and tensors of their own, killed by SIGKILL and resumed by another process, alone and on two
ranks: they end with the weights of those that were left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tenuto.schemas.reports import CheckpointReport
from tests.support.agent_stand_in import AgentStandIn
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench
from tests.support.reactions import stop_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "own_state"
LENGTH = 23
"""Batches, of 5 in an epoch; a checkpoint after each 7."""


def bench(directory: Path, kind: str) -> GangBench:
    config: dict[str, Any] = {
        "name": "own-state",
        "entrypoint": "model_def:OwnTrial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": LENGTH}},
        "min_checkpoint_period": {"batches": 7},
    }
    return GangBench(directory, CONTEXT, config, {"kind": kind})


def started(trial: GangBench, ranks: int, source: CheckpointReport | None = None) -> tuple[AgentStandIn, Any]:
    if ranks > 1:
        agent, [run] = trial.gang(ranks, LENGTH, source)
        return agent, run
    agent = trial.agent(LENGTH, source)
    return agent, trial.start(agent, OMP_NUM_THREADS="1")


def finished(trial: GangBench, ranks: int, source: CheckpointReport | None = None) -> CheckpointReport:
    agent, run = started(trial, ranks, source)
    agent.react = stop_at(LENGTH)
    assert run.wait() == 0, run.output()
    assert "not resumed exactly" not in run.output()
    assert agent.checkpoints()[-1].batches == LENGTH
    return agent.checkpoints()[-1]


def weights(report: CheckpointReport) -> dict[str, torch.Tensor]:
    assert report.breaks == ()
    return safetensors.torch.load_file(stored_files(report)["model.safetensors"])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["sampler", "batches", "stream"])
def test_killed_it_ends_with_the_same_weights(tmp_path: Path, kind: str, ranks: int) -> None:
    with bench(tmp_path / "whole", kind) as trial:
        expected = weights(finished(trial, ranks))
    with bench(tmp_path / "killed", kind) as trial:
        killed, run = started(trial, ranks)
        killed.wait_for(lambda: len(killed.checkpoints()) >= 1)
        if ranks > 1:
            run.rank(1).kill()
            run.wait()
        else:
            run.kill()
        found = weights(finished(trial, ranks, killed.checkpoints()[0]))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
