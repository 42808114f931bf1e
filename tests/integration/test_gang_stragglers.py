"""A rank that is slow is found whatever connects the ranks: real ranks, one of which sleeps a little in every step."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tenuto.schemas.reports import StragglerReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.workers.horovod import rendezvous
from tests.support.gang_bench import GangBench

CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "ranked"
HYPERPARAMETERS = {"random": True, "noise": 0.0, "batch": 9, "loader_workers": 0}
SLEEP_SECONDS = 0.3
"""Several times what a step takes on a busy machine."""
KINDS = [("ddp", f"data 1 {SLEEP_SECONDS / 4}"), ("fsdp", f"step 1 {SLEEP_SECONDS}"), ("horovod", f"step 1 {SLEEP_SECONDS}")]
"""Rank 1 has four or five of a batch's nine records."""


def stop_when_told(report: TrackerReport) -> pb.Directive | None:
    """On a busy machine rank 0 may be slow for a while, too."""
    slow = isinstance(report, StragglerReport) and report.rank == 1
    return pb.Directive(action=pb.Directive.STOP) if slow else None


@pytest.mark.timeout(900)
def test_a_slow_rank_is_named_whatever_connects_it_to_those_that_wait_for_it(tmp_path: Path) -> None:
    """One in its data, one in its steps."""
    with ExitStack() as stack:
        started = []
        for strategy, slow in KINDS:
            if strategy == "horovod" and not rendezvous.is_installed():
                continue
            config = {
                "name": "slow",
                "entrypoint": "model_def:RankedTrial",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100_000}},
                "distributed": {"strategy": strategy},
            }
            bench = stack.enter_context(GangBench(tmp_path / strategy, CONTEXT, config, HYPERPARAMETERS))
            agent, [run] = bench.gang(2, 100_000, TEST_SLOW=slow)
            agent.react = stop_when_told
            started.append((agent, run))
        for agent, run in started:
            assert run.wait() == 0, run.output()
            report = next(item for item in agent.reports if isinstance(item, StragglerReport) and item.rank == 1)
            assert (report.slots, report.agent_id) == (2, "first")
            assert report.own_seconds >= 0.9 * SLEEP_SECONDS
            assert report.own_seconds > 1.5 * report.usual_seconds, "rank 0 takes as long in all: its waits are not counted"
            assert "tenuto: rank 1 of 2 on agent first is a straggler: " in run.output()
