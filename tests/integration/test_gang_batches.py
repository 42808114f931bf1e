"""Global batch size and learning rate on several numbers of ranks: real processes, compared with one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tenuto.schemas.reports import CheckpointReport
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench, kill_when_saved, ranked_bench
from tests.support.reactions import stop_at

RECORDS = 53
"""An epoch has 6 batches of 9 records, in the last 8."""


def bench_of(
    directory: Path,
    *,
    noise: float = 0.0,
    random: bool = False,
    batch: int = 9,
    lr: float = 0.01,
    norm: bool = False,
    stream: bool = False,
    per_slot: bool = False,
    **changes: Any,
) -> GangBench:
    """`random`: with dropout. `norm`: with batch normalization. `per_slot`: the loader is given the batch of one slot."""
    hyperparameters = {"random": random, "noise": noise, "batch": batch, "lr": lr, "norm": norm, "stream": stream}
    if per_slot:
        hyperparameters |= {"per_slot": True, "global_batch_size": batch}
    return ranked_bench(directory, hyperparameters, **changes)


def finish(bench: GangBench, ranks: int, length: int, checkpoint: CheckpointReport | None = None, **more: Any) -> Any:
    """All reports of an allocation on so many ranks; one: a process alone."""
    if ranks == 1:
        agent = bench.agent(length, checkpoint)
        agent.react = stop_at(length)
        assert bench.start(agent, **more).wait() == 0
        return agent
    agent, [run] = bench.gang(ranks, length, checkpoint, **more)
    agent.react = stop_at(length)
    assert run.wait() == 0, run.output()
    return agent


def weights(agent: Any, batches: int) -> dict[str, torch.Tensor]:
    [report] = [item for item in agent.checkpoints() if item.batches == batches]
    return safetensors.torch.load_file(stored_files(report)["model.safetensors"])


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def training_losses(agent: Any) -> list[float]:
    return [point.metrics["loss"] for report in agent.metrics for point in report.points]


def lines_of(notes: Path) -> list[list[str]]:
    return [line.split() for line in notes.read_text().splitlines() if line.startswith("train")]


def test_a_trial_that_has_shrunk_keeps_its_batch_and_its_memory(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    elastic = {"resources": {"slots_per_trial": {"min": 1, "max": 4}}}
    with bench_of(tmp_path / "shrunk", **elastic) as bench:
        shrunk = finish(bench, 2, 12, TEST_NOTES=str(notes))
        losses, found = training_losses(shrunk), weights(shrunk, 12)
    with bench_of(tmp_path / "one") as bench:
        one = finish(bench, 1, 12)
        assert_close(found, weights(one, 12))
        torch.testing.assert_close(losses, training_losses(one), rtol=1e-5, atol=1e-6)
    lines = lines_of(notes)
    assert max(len(line[4].split(",")) for line in lines) == 3, "of 9 records on 4 slots"
    for epoch in ("0", "1"):
        seen = Counter(index for line in lines if line[1] == epoch for index in line[4].split(","))
        assert seen == Counter(str(index) for index in range(RECORDS)), "each record once"


def test_a_loader_that_asks_for_the_batch_of_one_slot_trains_that_of_all(tmp_path: Path) -> None:
    """As Determined counts batches: 9 records a step on 2 slots, 5 of them on one."""
    notes = tmp_path / "notes"
    with bench_of(tmp_path / "two", per_slot=True, resources={"slots_per_trial": 2}) as bench:
        found = weights(finish(bench, 2, 12, TEST_NOTES=str(notes)), 12)
    with bench_of(tmp_path / "one") as bench:
        assert_close(found, weights(finish(bench, 1, 12), 12))
    lines = lines_of(notes)
    assert {len(line[4].split(",")) for line in lines} == {4, 5}
    seen = Counter(index for line in lines if line[1] == "0" for index in line[4].split(","))
    assert seen == Counter(str(index) for index in range(RECORDS)), "each record once"


SCALED = {
    "distributed": {
        "global_batch_size": "scale",
        "learning_rate_scaling": "linear",
        "learning_rate_warmup": {"batches": 10},
    }
}


def test_a_divided_model_is_trained_in_parts_too(tmp_path: Path) -> None:
    fsdp = {"distributed": {"strategy": "fsdp"}, "resources": {"slots_per_trial": {"min": 1, "max": 6}}}
    with bench_of(tmp_path / "divided", **fsdp) as bench:
        last = finish(bench, 2, 6).checkpoints()[-1]
        found = weights(finish(bench, 1, 12, last), 12)
    with bench_of(tmp_path / "one") as bench:
        assert_close(found, weights(finish(bench, 1, 12), 12))


def test_scaled_ranks_take_a_batch_each_of_a_stream(tmp_path: Path) -> None:
    with bench_of(tmp_path / "two", stream=True, distributed={"global_batch_size": "scale"}) as bench:
        found = weights(finish(bench, 2, 12), 12)
    with bench_of(tmp_path / "one", stream=True, batch=18) as bench:
        assert_close(found, weights(finish(bench, 1, 6), 6))


def test_synchronized_batch_norm_has_the_statistics_of_one_process(tmp_path: Path) -> None:
    """On 4 ranks the last batch of an epoch, with 3 records, leaves one rank without any."""
    synchronized = {"distributed": {"sync_batch_norm": True}}
    with bench_of(tmp_path / "four", batch=10, norm=True, **synchronized) as bench:
        found = weights(finish(bench, 4, 12), 12)
    with bench_of(tmp_path / "one", batch=10, norm=True, **synchronized) as bench:
        expected = weights(finish(bench, 1, 12), 12)
    assert "1.running_var" in expected
    assert_close(found, expected)


def test_otherwise_the_running_statistics_are_those_of_rank_0(tmp_path: Path) -> None:
    with bench_of(tmp_path / "two", norm=True) as bench:
        found = weights(finish(bench, 2, 1), 1)
    with bench_of(tmp_path / "share", norm=True, batch=4) as bench:
        share = weights(finish(bench, 1, 1), 1)  # the 4 records that rank 0 has of the first 9
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[name], share[name], rtol=1e-6, atol=1e-7)


def test_scaled_ranks_step_like_one_process_with_a_larger_batch_and_learning_rate(tmp_path: Path) -> None:
    at_once = {"distributed": {"global_batch_size": "scale", "learning_rate_scaling": "linear"}}
    with bench_of(tmp_path / "two", **at_once) as bench:
        two = finish(bench, 2, 11)
        assert [point.batches for report in two.metrics for point in report.points] == [4, 8, 11]
        assert [report.batches for report in two.checkpoints()] == [6, 10, 11], (
            "the first steps after 5, 10; the last had one batch"
        )
        assert "2 times the learning rate (linear)" in bench.gangs[-1].output()
        found = weights(two, 10)
    with bench_of(tmp_path / "one", batch=18, lr=0.02) as bench:
        assert_close(found, weights(finish(bench, 1, 5), 5))


def test_a_scaled_trial_resumes_exactly_and_sees_each_record_once_on_any_number_of_ranks(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with bench_of(tmp_path / "whole", noise=0.1, random=True, **SCALED) as bench:
        expected = weights(finish(bench, 2, 24), 24)
    with bench_of(tmp_path / "killed", noise=0.1, random=True, **SCALED) as bench:
        held, never = tmp_path / "held", str(tmp_path / "never")
        agent, [run] = bench.gang(2, 24, TEST_ACT="hold 1 14", TEST_HELD=str(held), TEST_GO=never)
        again = weights(finish(bench, 2, 24, kill_when_saved(agent, run, 1, held, 10)), 24)
        assert all(torch.equal(again[name], value) for name, value in expected.items())
    with bench_of(tmp_path / "resized", **SCALED) as bench:
        last = None
        for ranks, until in ((2, 7), (3, 14), (1, 19), (2, 24)):
            last = finish(bench, ranks, until, last, TEST_NOTES=str(notes)).checkpoints()[-1]
    lines = lines_of(notes)
    for epoch in range(4):
        seen = Counter(index for line in lines if line[1] == str(epoch) for index in line[4].split(","))
        assert seen == Counter(str(index) for index in range(RECORDS)), "each record once"
    assert {int(line[2]) for line in lines} == {0, 2, 4, 6, 7, 10, 12, *range(14, 19), 19, 21, 23}, "where steps began"


def test_what_reducers_have_gathered_survives_changes_of_the_number_of_ranks(tmp_path: Path) -> None:
    """Reported at batch 12, gathered by 3 ranks, by 2, and by one process; each change is a kill after a checkpoint."""
    rarely = {"log_period": {"batches": 12}}
    with bench_of(tmp_path / "whole", **rarely) as bench:
        [expected] = [point.metrics for report in finish(bench, 2, 12).metrics for point in report.points]
    with bench_of(tmp_path / "changed", **rarely) as bench:
        last = None
        for ranks, killed_at, saved_at in ((3, 6, 5), (2, 11, 10)):
            held, never = tmp_path / f"held-{ranks}", str(tmp_path / "never")
            agent, [run] = bench.gang(ranks, 12, last, TEST_ACT=f"hold 1 {killed_at}", TEST_HELD=str(held), TEST_GO=never)
            last = kill_when_saved(agent, run, 1, held, saved_at)
        [found] = [point.metrics for report in finish(bench, 1, 12, last).metrics for point in report.points]
    assert found["checksum"] == expected["checksum"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
