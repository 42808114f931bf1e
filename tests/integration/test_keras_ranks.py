"""A Keras trial on two ranks, by TensorFlow's MultiWorkerMirroredStrategy, on the torch back end, and by Horovod on both: like
one process, and the same bits after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tenuto.schemas.events.run import EXIT_CODE_WILL_REPEAT
from tests.integration.test_gang_training import stop_at
from tests.integration.test_horovod import TENSORFLOW, built, has_tensorflow
from tests.support import real_parts
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench
from tests.support.warm_starts import KERAS

real_parts.package("tensorflow")
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "keras_ranked"
EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorflow_ranks"
BUILT = {"torch": built, "tensorflow": TENSORFLOW}
KINDS = [("tensorflow", "ddp"), ("torch", "ddp")]
KINDS_TOO = [pytest.param(backend, "horovod", marks=BUILT[backend]) for backend in sorted(BUILT)]
EVERY = pytest.mark.parametrize(("backend", "strategy"), [*KINDS, *KINDS_TOO])
END = 8


def is_mirrored(backend: str, strategy: str) -> bool:
    """TensorFlow's own strategy: it needs a record for each rank."""
    return (backend, strategy) == ("tensorflow", "ddp")


class Bench(GangBench):
    """Of a trial on one of Keras's back ends."""

    def __init__(self, directory: Path, backend: str, strategy: str, *, random: bool, **changes: Any) -> None:
        config = {
            "name": "ranked",
            "entrypoint": "model_def:Ranked",
            "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": END}},
            "min_checkpoint_period": {"batches": 2},
            "log_period": {"batches": 3},
            "distributed": {"strategy": strategy},
            **changes,
        }
        # The last of 22 records are a batch of 4, or one of 1: then a rank has no record.
        hyperparameters = {"random": random, "global_batch_size": 9 if is_mirrored(backend, strategy) else 7}
        super().__init__(directory, CONTEXT, config, hyperparameters, modules=KERAS[backend])
        self._environment = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}

    def train(self, ranks: int, until: int = END, checkpoint: Any = None, **environment: str) -> tuple[Any, Any]:
        """The next allocation, from start to end: its agent and its run."""
        variables = {**self._environment, **environment}
        if ranks == 1:
            agent = self.agent(until, checkpoint)
            agent.react = stop_at(until)
            run: Any = self.start(agent, **variables)
        else:
            agent, [run] = self.gang(ranks, until, checkpoint, **variables)
            agent.react = stop_at(until)
        code = run.wait()
        assert code == (-9 if "TEST_DIE" in environment else 0), run.output()
        return agent, run


def weights_of(agent: Any) -> dict[str, Any]:
    return safetensors.numpy.load_file(stored_files(agent.checkpoints()[-1])["model.safetensors"])


def points_of(*agents: Any) -> dict[int, dict[str, float]]:
    return {point.batches: point.metrics for agent in agents for report in agent.metrics for point in report.points}


@EVERY
def test_two_ranks_train_like_one_process(tmp_path: Path, backend: str, strategy: str) -> None:
    """Also where the number of ranks changes on the way."""
    mirrored = is_mirrored(backend, strategy)
    close = 1e-4 if mirrored else 1e-5
    with Bench(tmp_path / "one", backend, strategy, random=False) as bench:
        one, _ = bench.train(1)
        expected, validation, points = weights_of(one), one.validations()[-1].metrics, points_of(one)
    with Bench(tmp_path / "two", backend, strategy, random=False) as bench:
        first, _ = bench.train(2)
        fewer, _ = bench.train(1, END, first.checkpoints()[1])
        more, _ = bench.train(2, END, fewer.checkpoints()[0])
        assert [agent.checkpoints()[0].batches for agent in (first, fewer, more)] == [2, 6, 8]
        for agent in (first, fewer, more):
            weights = weights_of(agent)
            assert weights.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(weights[name], value, rtol=close, atol=1e-6)
            assert agent.validations()[-1].metrics == pytest.approx(validation, rel=close)
            for batches, metrics in points_of(agent).items():
                if not mirrored:  # it weighs what does not divide approximately
                    assert metrics == pytest.approx(points[batches], rel=close), batches
        assert points_of(first).keys() == points.keys()


@EVERY
def test_a_killed_rank_and_the_same_bits(tmp_path: Path, backend: str, strategy: str) -> None:
    with Bench(tmp_path / "whole", backend, strategy, random=True) as bench:
        agent, _ = bench.train(2)
        expected = weights_of(agent), agent.validations()[-1].metrics, points_of(agent)
    with Bench(tmp_path / "killed", backend, strategy, random=True) as bench:
        killed, run = bench.train(2, TEST_DIE="1 5")
        assert run.error.startswith("rank 1 of 2 on agent first died by signal 9")
        again, _ = bench.train(2, END, (killed.checkpoints() or [None])[-1])
    assert again.validations()[-1].metrics == expected[1]
    assert points_of(killed, again) == expected[2]
    found = weights_of(again)
    for name, value in expected[0].items():
        np.testing.assert_array_equal(found[name], value)


def test_a_step_of_ones_own_with_two_optimizers_and_a_loader_that_draws(tmp_path: Path) -> None:
    """Also the bits of a trial that was killed on the way. What one process draws for a record, elastic slots draw."""
    own = {
        "entrypoint": "model_def:OwnStep",
        "log_period": {"batches": 1},
        "resources": {"slots_per_trial": {"min": 1, "max": 2}},
    }
    with Bench(tmp_path / "one", "torch", "ddp", random=False, **own) as bench:
        one, _ = bench.train(1)
    with Bench(tmp_path / "two", "torch", "ddp", random=False, **own) as bench:
        two, _ = bench.train(2)
        killed, _ = bench.train(2, TEST_DIE="0 5")
        again, _ = bench.train(2, END, (killed.checkpoints() or [None])[-1])
    weights = weights_of(two)
    for name, value in weights_of(one).items():
        np.testing.assert_allclose(weights[name], value, rtol=1e-5, atol=1e-6)
    points = points_of(two)
    assert points_of(again)[END] == points[END]
    for batches, metrics in points_of(one).items():
        assert metrics.keys() == {"head", "other"}
        assert points[batches] == pytest.approx(metrics, rel=1e-5)
    for name, value in weights_of(again).items():
        np.testing.assert_array_equal(value, weights[name])


def test_a_script_with_tensorflows_own_strategy_and_a_killed_rank(tmp_path: Path) -> None:
    """The example: TF_CONFIG brings its ranks together, and one tf.train.Checkpoint brings them back."""
    end = 150
    config = {
        "name": "script",
        "entrypoint": "train.py",
        "searcher": {"name": "single", "metric": "accuracy", "max_length": {"batches": end}},
        "min_checkpoint_period": {"batches": 40},
        "log_period": {"batches": 1},
        "distributed": {"strategy": "multi_worker_mirrored"},
    }
    found = []
    for ranks, kill in ((1, False), (2, False), (2, True)):
        hyperparameters = {"learning_rate": 0.01, "batch_size": 20}
        directory = tmp_path / f"{ranks}{kill}"
        with GangBench(directory, EXAMPLE, config, hyperparameters, modules=KERAS["tensorflow"]) as bench:
            points, last = {}, None
            if kill:
                agent, [run] = bench.gang(2, end)
                agent.react = lambda report, run=run: run.rank(1).kill() if report.kind == "checkpoint" else None  # type: ignore[misc]
                assert run.wait() == -9, run.output()
                assert run.error.startswith("rank 1 of 2 on agent first died by signal 9")
                last = agent.checkpoints()[-1]
                assert last.batches < end
                points = {batches: metrics for batches, metrics in points_of(agent).items() if batches <= last.batches}
            if ranks == 1:
                agent = bench.agent(end)
                run = bench.start(agent)
            else:
                agent, [run] = bench.gang(2, end, last)
            agent.react = stop_at(end)
            assert run.wait() == 0, run.output()
            found.append((points | points_of(agent), agent.validations()[-1].metrics))
    (one, _), whole, again = found
    assert again == whole
    assert whole[0].keys() == one.keys() == set(range(1, end + 1))
    for batches, metrics in one.items():
        assert whole[0][batches] == pytest.approx(metrics, rel=1e-4)


@pytest.mark.parametrize(
    ("backend", "changes", "words"),
    [
        ("torch", {"distributed": {"strategy": "fsdp"}}, "distributed.strategy is fsdp, which divides PyTorch trials only"),
        ("torch", {"distributed": {"global_batch_size": "scale"}}, "the batches of a Keras trial are those of all slots"),
        ("torch", {"distributed": {"sync_batch_norm": True}}, "give the layer BatchNormalization(synchronized=True)"),
        pytest.param(
            "tensorflow",
            {"distributed": {"strategy": "horovod"}},
            "distributed.strategy is horovod, but Horovod is not",
            marks=pytest.mark.skipif(has_tensorflow(), reason="Horovod is built for TensorFlow"),
        ),
    ],
)
def test_strategies_that_cannot_be_had_are_refused(tmp_path: Path, backend: str, changes: Any, words: str) -> None:
    with Bench(tmp_path / "t", backend, "ddp", random=False, **changes) as bench:
        _, [run] = bench.gang(2, END, KERAS_BACKEND=backend)
        missing = "Horovod is not" in words  # another agent may have it
        assert run.wait() == (1 if missing else EXIT_CODE_WILL_REPEAT), run.output()
        assert words in run.error
