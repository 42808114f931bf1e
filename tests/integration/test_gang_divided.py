"""Models divided among the ranks (fsdp): checkpoints between two steps of the optimizer, and copies of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.schemas.config.experiment import Distributed
from tenuto.schemas.reports import CheckpointReport
from tenuto.workers.pytorch.distributed.fsdp import to_whole
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench, ranked_bench
from tests.support.reactions import stop_at

LENGTH = 24
STEP = {"optimizations": {"aggregation_frequency": 4}}
"""Checkpoints come every 5 batches: all of them but one between two steps."""
DIVIDED = {"distributed": {"strategy": "fsdp"}, **STEP}


def bench_of(directory: Path, hyperparameters: dict[str, Any] | None = None, **changes: Any) -> GangBench:
    given = {"random": True, "noise": 0.1, "batch": 9, **(hyperparameters or {})}
    return ranked_bench(directory, given, **changes)


def models_of(report: CheckpointReport) -> list[dict[str, torch.Tensor]]:
    files = stored_files(report)
    count = json.loads(files["shards.json"].read_text())["ranks"]
    return list(to_whole([torch.load(files[f"shard-{rank}.pt"]) for rank in range(count)])["models"])


def finish(bench: GangBench, ranks: int, length: int, checkpoint: CheckpointReport | None = None) -> CheckpointReport:
    agent, [run] = bench.gang(ranks, length, checkpoint)
    agent.react = stop_at(length)
    assert run.wait() == 0, run.output()
    return agent.checkpoints()[-1]


def same(one: list[dict[str, torch.Tensor]], other: list[dict[str, torch.Tensor]]) -> bool:
    return len(one) == len(other) and all(
        mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
        for mine, theirs in zip(one, other, strict=True)
    )


def test_killed_between_two_steps_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Beside the model, an average of it: a copy that was made before both were divided."""
    copies = {"copies": "before"}
    with bench_of(tmp_path / "whole", copies, **DIVIDED) as bench:
        last = finish(bench, 2, LENGTH)
        assert last.breaks == ()
        expected = models_of(last)
        assert len(expected) == 2
    with bench_of(tmp_path / "killed", copies, **DIVIDED) as bench:
        agent, [run] = bench.gang(2, LENGTH, TEST_ACT="kill 1 18")
        assert run.wait() == -9, run.output()
        saved = agent.checkpoints()[-1]
        assert saved.batches % 4, "between two steps"
        assert same(expected, models_of(finish(bench, 2, LENGTH, saved)))


@pytest.mark.parametrize(("first", "second"), [((2, True), (3, True)), ((2, False), (2, True)), ((2, True), (2, False))])
def test_gradients_move_between_numbers_of_ranks_and_ways_to_divide(
    tmp_path: Path, first: tuple[int, bool], second: tuple[int, bool]
) -> None:
    """Batch 5 of 8: one batch of the second step was trained before the move."""
    plain = {"random": False, "noise": 0.0}
    with bench_of(tmp_path / "whole", plain, **DIVIDED) as bench:
        [expected] = models_of(finish(bench, 2, 8))
    with bench_of(tmp_path / "moved", plain, **STEP) as bench:
        saved = None
        for (ranks, divided), length in ((first, 5), (second, 8)):
            strategy = Distributed(strategy="fsdp") if divided else Distributed()
            bench.config = bench.config.model_copy(update={"distributed": strategy})
            saved = finish(bench, ranks, length, saved)
        assert saved is not None
        moved = models_of(saved)[0] if second[1] else _weights(saved)
        for name, value in expected.items():
            torch.testing.assert_close(moved[name], value, rtol=1e-5, atol=1e-6)


def _weights(report: CheckpointReport) -> dict[str, torch.Tensor]:
    import safetensors.torch

    return safetensors.torch.load_file(stored_files(report)["model.safetensors"])


def test_a_copy_of_a_divided_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with bench_of(tmp_path, {"copies": "after"}, **DIVIDED) as bench:
        _, [run] = bench.gang(2, LENGTH)
        assert run.wait() != 0
        headline = run.error.splitlines()[0]
        assert "model_def.py:" in headline
        assert "Copy the model before wrap_model, and wrap both" in headline


def test_gradients_that_were_not_exchanged_are_told(tmp_path: Path) -> None:
    with bench_of(tmp_path, {"holds_back": True}, **DIVIDED) as bench:
        saved = finish(bench, 2, 6)
        assert [sentence for sentence in saved.breaks if "set_requires_gradient_sync(False)" in sentence]
