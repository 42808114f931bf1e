"""Everything at once, killed again and again: a GAN under bf16 with gathered gradients, augmentation, dropout, loader workers.

One trial is killed with SIGKILL at five seeded random instants, resumes each time from its latest checkpoint, and ends with
the weights of one that was left alone, bit for bit. TENUTO_TEST_SEEDS=3 tries other instants.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.integration.test_exact_resume import assert_equal
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files
from tests.support.seeds import SEEDS

CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "everything"
TARGET_BATCHES = 45
KILLS = 5
KILL_AFTER_US_MAX = 20_000
"""Some batches, a checkpoint or a validation of this trial."""


def bench(directory: Path, loader_workers: int, stream: bool, **optimizations: Any) -> WorkerBench:
    directory.mkdir()
    config = {
        "name": "everything",
        "entrypoint": "model_def:Everything",
        "searcher": {"name": "single", "metric": "distance", "max_length": {"batches": TARGET_BATCHES}},
        "min_checkpoint_period": {"batches": 4},
        "min_validation_period": {"batches": 11},
        "log_period": {"batches": 3},
        "optimizations": {"aggregation_frequency": 3, "mixed_precision": "bf16", "clip_grad_norm": 1.0} | optimizations,
        "reproducibility": "exact",
    }
    return WorkerBench(directory, CONTEXT, config, {"loader_workers": loader_workers, "stream": stream})


def agent_for(trial: WorkerBench, checkpoint: CheckpointReport | None, ends: bool = True) -> AgentStandIn:
    """`ends`: the trial is told to stop when it is at its target, else it waits there."""
    agent = trial.agent(TARGET_BATCHES, checkpoint)
    if not ends:
        return agent

    def stop(report: TrackerReport) -> pb.Directive | None:
        if report.kind == "validation" and report.batches == TARGET_BATCHES:
            return pb.Directive(action=pb.Directive.STOP, target_length=TARGET_BATCHES)
        return None

    agent.react = stop
    return agent


def result(agents: list[AgentStandIn]) -> dict[str, Any]:
    """All that the trial came to: weights, state, and every metric that it reported, by position."""
    checkpoint = [report for agent in agents for report in agent.checkpoints()][-1]
    assert checkpoint.batches == TARGET_BATCHES
    files = stored_files(checkpoint)
    points = {point.batches: point.metrics for agent in agents for report in agent.metrics for point in report.points}
    return {
        "generator": files["model.safetensors"].read_bytes(),
        "discriminator": files["model_1.safetensors"].read_bytes(),
        "state": torch.load(files["state.pt"], weights_only=True),
        "validations": {report.batches: report.metrics for agent in agents for report in agent.validations()},
        "training metrics": dict(sorted(points.items())),
        "exactness": files["exactness.json"].read_text(),
    }


def whole(directory: Path, loader_workers: int, stream: bool, **optimizations: Any) -> dict[str, Any]:
    with bench(directory, loader_workers, stream, **optimizations) as trial:
        agent = agent_for(trial, None)
        run = trial.start(agent)
        assert run.wait() == 0, run.output()
        return result([agent])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return whole(tmp_path_factory.mktemp("whole") / "t", 0, stream=False)


def killed_again_and_again(directory: Path, loader_workers: int, stream: bool, seed: int) -> dict[str, Any]:
    instants = random.Random(seed)
    with bench(directory, loader_workers, stream) as trial:
        agents: list[AgentStandIn] = []
        checkpoint: CheckpointReport | None = None
        for number in range(KILLS):
            start = checkpoint.batches if checkpoint else 0
            if start == TARGET_BATCHES:
                break  # a kill comes late where the machine is crowded
            agents.append(agent_for(trial, checkpoint, ends=False))
            batch = min(start + instants.randrange(3, 12), TARGET_BATCHES - KILLS + number)
            run = trial.start(agents[-1], TEST_KILL_AT=f"{batch}:{instants.randrange(KILL_AFTER_US_MAX)}")
            assert run.wait() == -9, run.output()
            checkpoint = agents[-1].checkpoints()[-1] if agents[-1].checkpoints() else checkpoint
        agents.append(agent_for(trial, checkpoint))
        run = trial.start(agents[-1])
        assert run.wait() == 0, run.output()
        return result(agents)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loader_workers", [0, 2])
def test_killed_at_random_instants(tmp_path: Path, uninterrupted: dict[str, Any], loader_workers: int, seed: int) -> None:
    assert_equal(killed_again_and_again(tmp_path / "t", loader_workers, False, seed), uninterrupted)


def test_preempted_in_the_middle(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    with bench(tmp_path / "t", 2, stream=False) as trial:
        agents: list[AgentStandIn] = []
        checkpoint: CheckpointReport | None = None
        for batch in (9, 23):
            agents.append(agent_for(trial, checkpoint))
            run = trial.start(agents[-1], TEST_PREEMPT_AT=str(batch))
            assert run.wait() == 80, run.output()
            checkpoint = agents[-1].checkpoints()[-1]
            assert checkpoint.batches == batch + 1
        agents.append(agent_for(trial, checkpoint))
        run = trial.start(agents[-1])
        assert run.wait() == 0, run.output()
        assert_equal(result(agents), uninterrupted)
