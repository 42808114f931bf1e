"""A PyTorch trial on several ranks: real processes, gradients by gloo, compared with one process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tenuto.schemas.config.experiment import Distributed
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.pytorch.distributed.fsdp import to_whole
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench, kill_when_saved, preempt_when_held, ranked_bench
from tests.support.reactions import stop_at
from tests.support.waiting import until

EPOCH_BATCHES = 6
RECORDS = 53


def bench_of(
    directory: Path, *, random: bool = True, noise: float = 0.1, batch: int = 9, workers: int = 0, **changes: Any
) -> GangBench:
    hyperparameters = {"random": random, "noise": noise, "batch": batch, "loader_workers": workers}
    return ranked_bench(directory, hyperparameters, **changes)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def weights(report: CheckpointReport) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(stored_files(report)["model.safetensors"])


def state_of(report: CheckpointReport) -> dict[str, torch.Tensor]:
    """The same, also of a divided model."""
    files = stored_files(report)
    if "shards.json" not in files:
        return weights(report)
    parts = [torch.load(files[f"shard-{rank}.pt"]) for rank in range(json.loads(files["shards.json"].read_text())["ranks"])]
    return dict(to_whole(parts)["models"][0])


def finish(bench: GangBench, ranks: int, length: int, checkpoint: CheckpointReport | None = None, **more: Any) -> Any:
    agent, runs = bench.gang(ranks, length, checkpoint, **more)
    agent.react = stop_at(length)
    for run in runs:
        assert run.wait() == 0, run.output()
    return agent


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (3, 1), (1, 2)])
def test_ranks_train_like_one_process(directory: Path, ranks: int, nodes: int) -> None:
    notes = directory / "notes"
    with bench_of(directory / "many", random=False, noise=0.0) as bench:
        many = finish(bench, ranks, 2 * EPOCH_BATCHES, nodes=nodes, TEST_NOTES=str(notes))
        found = weights(many.checkpoints()[-1])
    with bench_of(directory / "one", random=False, noise=0.0) as bench:
        one = bench.agent(2 * EPOCH_BATCHES)
        one.react = stop_at(2 * EPOCH_BATCHES)
        assert bench.start(one).wait() == 0
        expected = weights(one.checkpoints()[-1])
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
    validation, reference = many.validations()[-1].metrics, one.validations()[-1].metrics
    assert validation.keys() == reference.keys()
    for name, number in reference.items():
        assert validation[name] == pytest.approx(number, rel=1e-5)
    points = [[point.metrics["loss"] for report in agent.metrics for point in report.points] for agent in (many, one)]
    assert points[0] == pytest.approx(points[1], rel=1e-5)
    lines = [line.split() for line in notes.read_text().splitlines()]
    for epoch in ("0", "1"):
        seen = Counter(index for line in lines if line[:2] == ["train", epoch] for index in line[4].split(","))
        assert seen == Counter(str(index) for index in range(RECORDS)), "each record once"
    validated = Counter(index for line in lines if line[0] == "validate" for index in line[2].split(","))
    assert validated == Counter(str(index) for index in range(RECORDS))


def test_a_killed_rank_ends_the_gang_and_the_resumed_one_ends_with_the_same_bits(directory: Path) -> None:
    with bench_of(directory / "whole", workers=2) as bench:
        expected = weights(finish(bench, 2, 24).checkpoints()[-1])
    with bench_of(directory / "killed", workers=2) as bench:
        held = directory / "held"
        agent, [run] = bench.gang(2, 24, TEST_ACT="hold 1 13", TEST_HELD=str(held), TEST_GO=str(directory / "never"))
        last = kill_when_saved(agent, run, 1, held, 10)  # saved every 5 batches
        assert run.error.startswith("rank 1 of 2 on agent first died by signal 9 (SIGKILL")
        assert not run.processes()
        again = finish(bench, 2, 24, last)
        assert [report.batches for report in again.checkpoints()] == [15, 20, 24]
        assert same(expected, weights(again.checkpoints()[-1]))


def test_all_ranks_leave_in_the_same_batch_and_go_on_from_there(directory: Path) -> None:
    held, go = directory / "held", directory / "go"
    often = {"optimizations": {"aggregation_frequency": 4}, "checkpoint_period_minutes": 0.0005}
    with bench_of(directory / "whole", **often) as bench:
        expected = weights(finish(bench, 2, 24).checkpoints()[-1])
    with bench_of(directory / "left", **often) as bench:
        # Slow, so that the word comes long before the end.
        agent, [run] = bench.gang(2, 24, TEST_ACT="hold 1 8", TEST_HELD=str(held), TEST_GO=str(go), TEST_SLOW="step 1 0.05")
        preempt_when_held(agent, run, held, go)
        assert run.wait() == 80, run.output()
        left_at = agent.checkpoints()[-1].batches
        assert 9 <= left_at < 24
        again = finish(bench, 2, 24, agent.checkpoints()[-1])
        assert same(expected, weights(again.checkpoints()[-1]))


def test_another_number_of_ranks_goes_on(directory: Path) -> None:
    """Batches are divided anew, and each record is augmented as it would have been."""
    elastic = {"resources": {"slots_per_trial": {"min": 1, "max": 3}}}
    with bench_of(directory / "whole", random=False, **elastic) as bench:
        agent = finish(bench, 2, 24)
        expected = weights(agent.checkpoints()[-1])
    with bench_of(directory / "moved", random=False, **elastic) as bench:
        first = finish(bench, 2, 7)
        second = finish(bench, 3, 14, first.checkpoints()[-1])
        alone = bench.agent(19, second.checkpoints()[-1])
        alone.react = stop_at(19)
        assert bench.start(alone).wait() == 0
        last = finish(bench, 2, 24, alone.checkpoints()[-1])
        for name, value in expected.items():
            torch.testing.assert_close(weights(last.checkpoints()[-1])[name], value, rtol=1e-5, atol=1e-6)


def test_a_batch_with_fewer_records_than_ranks(directory: Path) -> None:
    """53 records in batches of 26: the third has one."""
    with bench_of(directory / "many", random=False, noise=0.0, batch=26) as bench:
        found = weights(finish(bench, 2, 6).checkpoints()[-1])
    with bench_of(directory / "one", random=False, noise=0.0, batch=26) as bench:
        one = bench.agent(6)
        one.react = stop_at(6)
        assert bench.start(one).wait() == 0
        for name, value in weights(one.checkpoints()[-1]).items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_the_rank_that_failed_first_is_named_with_the_users_line(directory: Path) -> None:
    with bench_of(directory) as bench:
        _, runs = bench.gang(1, 24, nodes=2, TEST_ACT="raise 1 3")
        first, second = runs
        assert second.wait() == 1, second.output()
        assert first.wait() == 83, first.output()
        headline = second.error.splitlines()[0]
        assert headline.startswith("model_def.py:")
        assert "ValueError: no data for this rank" in headline
        assert headline.endswith("(rank 1 of 2 on agent second failed first)")


def test_a_rank_that_hangs_is_found(directory: Path) -> None:
    # Where machines are crowded, ranks take seconds to start.
    with bench_of(directory, distributed={"progress_seconds_max": 8}) as bench:
        _, [run] = bench.gang(2, 24, TEST_ACT="sleep 1 6")
        assert run.wait() == 85, run.output()
        assert run.error.startswith("rank 1 of 2 on agent first hangs: computing for")
        assert not run.processes()


def test_a_node_that_vanishes_is_noticed_by_the_others(directory: Path) -> None:
    go = directory / "go"
    with bench_of(directory) as bench:
        _, [first, second] = bench.gang(1, 24, nodes=2, TEST_ACT="hold 0 6", TEST_HELD=str(directory / "held"), TEST_GO=str(go))
        until((directory / "held").exists, gone=lambda: first.output() if first.process.poll() is not None else "")
        second.die()
        assert first.wait() == 83, first.output()
        assert first.error == "the ranks on agent second have gone"


def test_a_divided_model_trains_like_a_whole_one_and_moves_between_numbers_of_ranks(directory: Path) -> None:
    """FSDP on 2 ranks, killed, resumed there bit for bit; then 3 ranks, one process, and 2 ranks that each hold the whole."""
    fsdp = {"distributed": {"strategy": "fsdp"}}
    with bench_of(directory / "whole", **fsdp) as bench:
        expected = state_of(finish(bench, 2, 24).checkpoints()[-1])
    with bench_of(directory / "killed", **fsdp) as bench:
        agent, [run] = bench.gang(2, 24, TEST_ACT="kill 1 13")
        assert run.wait() == -9, run.output()
        again = finish(bench, 2, 24, (agent.checkpoints() or [None])[-1])
        assert same(expected, state_of(again.checkpoints()[-1]))
    with bench_of(directory / "one", random=False, noise=0.0) as bench:
        one = bench.agent(24)
        one.react = stop_at(24)
        assert bench.start(one).wait() == 0
        expected = state_of(one.checkpoints()[-1])
    with bench_of(directory / "moved", random=False, noise=0.0, **fsdp) as bench:
        first = finish(bench, 2, 7)
        second = finish(bench, 3, 14, first.checkpoints()[-1])
        alone = bench.agent(19, second.checkpoints()[-1])
        alone.react = stop_at(19)
        assert bench.start(alone).wait() == 0
        bench.config = bench.config.model_copy(update={"distributed": Distributed()})
        last = finish(bench, 2, 24, alone.checkpoints()[-1])
        for name, value in expected.items():
            torch.testing.assert_close(state_of(last.checkpoints()[-1])[name], value, rtol=1e-5, atol=1e-6)
