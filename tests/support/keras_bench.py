"""Trials of Keras in real worker processes, and programs of the tests on its back ends."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.checkpoint_reports import stored_files
from tests.support.warm_starts import KERAS, run_program

SUPPORT = Path(__file__).parent
CONTEXT = SUPPORT / "trials" / "keras_everything"
TARGET_BATCHES = 14
KILL_AFTER_US_MAX = 30_000
PROGRAM_SECONDS_MAX = 1_500.0
"""Half a minute of TensorFlow's computing takes several where others compute, too; a program that hangs takes for ever."""


def last_line(directory: Path, backend: str, name: str, *arguments: str) -> str:
    """What this program of the folder `scripts` prints last."""
    program, path = SUPPORT / "scripts" / name, str(SUPPORT.parents[1])
    done = run_program(KERAS[backend], program, *arguments, directory=directory, seconds_max=PROGRAM_SECONDS_MAX, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.splitlines()[-1])


def bench(directory: Path, backend: str, data: str, **changes: Any) -> WorkerBench:
    directory.mkdir()
    config = {
        "name": "keras",
        "entrypoint": "model_def:Everything",
        "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": TARGET_BATCHES}},
        "min_checkpoint_period": {"batches": 2},
        "min_validation_period": {"epochs": 1},
        "log_period": {"batches": 1},
        "environment": {"variables": {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}},
        "reproducibility": "exact",
        **changes,
    }
    hyperparameters = {"learning_rate": 0.01, "data": data}
    return WorkerBench(directory, CONTEXT, config, hyperparameters, modules=KERAS[backend])


def start(trial: WorkerBench, agents: list[AgentStandIn], checkpoint: CheckpointReport | None, **environment: str) -> Any:
    agent = trial.agent(TARGET_BATCHES, checkpoint)
    agents.append(agent)

    def stop(report: TrackerReport) -> pb.Directive | None:
        if report.kind == "validation" and report.batches == TARGET_BATCHES:
            return pb.Directive(action=pb.Directive.STOP, target_length=TARGET_BATCHES)
        return None

    agent.react = stop
    return trial.start(agent, **trial.config.environment.variables, **environment)


def last_of(agents: list[AgentStandIn]) -> CheckpointReport | None:
    """None: the first one was killed before its first checkpoint was stored."""
    return ([report for agent in agents for report in agent.checkpoints()] or [None])[-1]


def result(agents: list[AgentStandIn]) -> dict[str, Any]:
    """All that the trial came to, and every metric that it reported, by position."""
    checkpoint = last_of(agents)
    assert checkpoint is not None
    assert checkpoint.batches == TARGET_BATCHES
    files = stored_files(checkpoint)
    points = {point.batches: point.metrics for agent in agents for report in agent.metrics for point in report.points}
    return {
        "weights": files["model.safetensors"].read_bytes(),
        "state": files["state.safetensors"].read_bytes(),
        "validations": {report.batches: report.metrics for agent in agents for report in agent.validations()},
        "training metrics": dict(sorted(points.items())),
        "exactness": files["exactness.json"].read_text(),
    }


def check_killed_or_preempted(directory: Path, backend: str, data: str, seed: int) -> None:
    """A trial that is killed, and on torch preempted after that, ends with the bits of one that was left alone."""
    instants = random.Random(seed)
    with bench(directory / "whole", backend, data) as trial:
        agents: list[AgentStandIn] = []
        run = start(trial, agents, None)
        assert run.wait() == 0, run.output()
        expected = result(agents)
    with bench(directory / "killed", backend, data) as trial:
        agents = []
        kill_at = f"{instants.randrange(4, 8)}:{instants.randrange(KILL_AFTER_US_MAX)}"
        run = start(trial, agents, None, TEST_KILL_AT=kill_at)
        assert run.wait() == -9, run.output()
        if backend == "torch":  # each process of the other one traces for seconds
            run = start(trial, agents, last_of(agents), TEST_PREEMPT_AT="11")
            assert run.wait() == 80, run.output()
        run = start(trial, agents, last_of(agents))
        assert run.wait() == 0, run.output()
        assert result(agents) == expected
