"""A Keras trial on two ranks, by TensorFlow's MultiWorkerMirroredStrategy: like one process, and the same bits after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tests.integration.test_gang_training import stop_at
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench

pytest.importorskip("tensorflow")
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "keras_ranked"
END = 8


def bench_of(directory: Path, *, random: bool) -> GangBench:
    config = {
        "name": "ranked",
        "entrypoint": "model_def:Ranked",
        "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": END}},
        "min_checkpoint_period": {"batches": 2},
        "log_period": {"batches": 3},
    }
    return GangBench(directory, CONTEXT, config, {"random": random, "global_batch_size": 9})


def result(agent: Any) -> tuple[dict[str, Any], dict[str, float], dict[int, dict[str, float]]]:
    points = {point.batches: point.metrics for report in agent.metrics for point in report.points}
    weights = safetensors.numpy.load_file(stored_files(agent.checkpoints()[-1])["model.safetensors"])
    return weights, agent.validations()[-1].metrics, points


def on_two(bench: GangBench, checkpoint: Any = None, **environment: str) -> Any:
    agent, [run] = bench.gang(2, END, checkpoint, TF_CPP_MIN_LOG_LEVEL="3", **environment)
    agent.react = stop_at(END)
    return agent, run


def test_two_ranks_train_like_one_process(tmp_path: Path) -> None:
    with bench_of(tmp_path / "two", random=False) as bench:
        agent, run = on_two(bench)
        assert run.wait() == 0, run.output()
        weights, validation, points = result(agent)
    with bench_of(tmp_path / "one", random=False) as bench:
        agent = bench.agent(END)
        agent.react = stop_at(END)
        single = bench.start(agent, TF_CPP_MIN_LOG_LEVEL="3")
        assert single.wait() == 0, single.output()
        expected, reference, reference_points = result(agent)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-6)
    assert validation == pytest.approx(reference, rel=1e-4)
    assert points.keys() == reference_points.keys()


def test_a_killed_rank_and_the_same_bits(tmp_path: Path) -> None:
    with bench_of(tmp_path / "whole", random=True) as bench:
        agent, run = on_two(bench)
        assert run.wait() == 0, run.output()
        expected = result(agent)[:2]
    with bench_of(tmp_path / "killed", random=True) as bench:
        agent, run = on_two(bench, TEST_DIE="1 5")
        assert run.wait() == -9, run.output()
        assert run.error.startswith("rank 1 of 2 on agent first died by signal 9")
        again, run = on_two(bench, agent.checkpoints()[-1])
        assert run.wait() == 0, run.output()
        found = result(again)[:2]
    assert found[1] == expected[1]
    for name, value in expected[0].items():
        np.testing.assert_array_equal(found[0][name], value)
