"""Keras trials on TensorFlow: killed and resumed, they end with the bits of one that was left alone; from every kind of data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto.schemas.wire import worker_pb2 as pb
from tests.integration.test_keras_early_end import check_end
from tests.support import real_parts
from tests.support.agent_stand_in import AgentStandIn, WorkerBench
from tests.support.keras_bench import PROGRAM_SECONDS_MAX, TARGET_BATCHES, check_killed_or_preempted, last_line
from tests.support.seeds import SEEDS
from tests.support.warm_starts import KERAS

real_parts.package("tensorflow")
EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = ("dataset", "drawing", "stateless", "endless", "pydataset", "arrays")


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
def test_every_kind_of_data_goes_on_where_it_was(tmp_path: Path) -> None:
    assert json.loads(last_line(tmp_path, "tensorflow", "keras_data.py", *DATA)) == []


@pytest.mark.timeout(PROGRAM_SECONDS_MAX + 60)
@pytest.mark.parametrize("name", ["keras_attributes.py", "keras_own_state.py"])
def test_what_a_trial_keeps_itself_goes_on_or_is_said(tmp_path: Path, name: str) -> None:
    assert last_line(tmp_path, "tensorflow", name) == "all as it was"


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_it_ends_with_the_same_bits(tmp_path: Path, seed: int) -> None:
    check_killed_or_preempted(tmp_path, "tensorflow", "dataset", seed)


def test_a_tensorflow_loop_through_the_core_api_goes_on_where_it_was(tmp_path: Path) -> None:
    """The example: its tf.train.Checkpoint holds model, optimizer and the place in the data."""
    config = {
        "name": "loop",
        "entrypoint": "train.py",
        "searcher": {"name": "single", "metric": "accuracy", "max_length": {"batches": TARGET_BATCHES}},
        "log_period": {"batches": 1},
        "environment": {"variables": {"TF_CPP_MIN_LOG_LEVEL": "3"}},
    }
    losses = []
    for stops in ([TARGET_BATCHES], [6, TARGET_BATCHES]):
        directory = tmp_path / str(len(stops))
        directory.mkdir()
        with WorkerBench(
            directory,
            EXAMPLES / "tensorflow_loop",
            config,
            {"learning_rate": 0.01, "batch_size": 20},
            modules=KERAS["tensorflow"],
        ) as trial:
            agents: list[AgentStandIn] = []
            for stop in stops:
                agent = trial.agent(stop, agents[-1].checkpoints()[-1] if agents else None)
                agents.append(agent)
                agent.react = lambda report, stop=stop: (  # type: ignore[misc]
                    pb.Directive(action=pb.Directive.STOP, target_length=stop) if report.kind == "validation" else None
                )
                run = trial.start(agent, **trial.config.environment.variables)
                assert run.wait() == 0, run.output()
            points = {point.batches: point.metrics for item in agents for report in item.metrics for point in report.points}
            losses.append((points, agents[-1].validations()[-1].metrics))
    assert len(losses[0][0]) == TARGET_BATCHES
    assert losses[0] == losses[1]


def test_a_trial_ends_where_its_callback_stops_it(tmp_path: Path) -> None:
    check_end(tmp_path, "tensorflow", "EarlyStopping", 15, "Keras's EarlyStopping: val_loss did not improve in 2 epochs")
