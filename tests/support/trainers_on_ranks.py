"""A script with another library's trainer on two ranks: the examples, as they are on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tenuto.schemas.reports import CheckpointReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tests.support.checkpoint_reports import stored_files
from tests.support.gang_bench import GangBench
from tests.support.reactions import stop_at

BATCHES = 24


def bench_of(directory: Path, example: Path, hyperparameters: dict[str, Any], modules: tuple[str, ...]) -> GangBench:
    config = yaml.safe_load((example / "config.yaml").read_text())
    config["searcher"]["max_length"] = {"batches": BATCHES}
    config |= {"min_checkpoint_period": {"batches": 8}, "log_period": {"batches": 6}}
    context = directory / "context"
    context.mkdir(parents=True)
    (context / "train.py").write_text((example / "train.py").read_text())
    return GangBench(directory, context, config, hyperparameters, modules=modules)


def leave_after_saving(steps: int) -> Any:
    def react(report: TrackerReport) -> pb.Directive | None:
        saved = isinstance(report, CheckpointReport) and report.batches == steps
        return pb.Directive(action=pb.Directive.PREEMPT, target_length=BATCHES) if saved else None

    return react


def check_two_ranks(
    directory: Path, example: Path, hyperparameters: dict[str, Any], modules: tuple[str, ...], files: set[str], **environment: str
) -> None:
    """Two ranks report once, leave in the same step, and a resumed trial ends as an uninterrupted one. `files`: paths in each
    checkpoint."""
    with bench_of(directory / "whole", example, hyperparameters, modules) as bench:
        whole, [run] = bench.gang(2, BATCHES, **environment)
        whole.react = stop_at(BATCHES)
        assert run.wait() == 0, run.output()
        points = [point.batches for report in whole.metrics for point in report.points]
        assert points == [6, 12, 18, 24], "rank 0 alone reports"
        assert files <= stored_files(whole.checkpoints()[-1]).keys()
        expected = whole.validations()[-1]
        assert expected.batches == BATCHES
    with bench_of(directory / "left", example, hyperparameters, modules) as bench:
        agent, [run] = bench.gang(2, BATCHES, **environment)
        agent.react = leave_after_saving(8)
        assert run.wait() == 80, run.output()
        last = agent.checkpoints()[-1]
        assert 8 <= last.batches < BATCHES
        again, [run] = bench.gang(2, BATCHES, last, **environment)
        again.react = stop_at(BATCHES)
        assert run.wait() == 0, run.output()
        assert again.validations()[-1].metrics == expected.metrics
        left = [path for path in bench.context_directory.rglob("checkpoint-*") if path.is_dir()]
        assert not left, "no copy of a checkpoint stays beside the script"
