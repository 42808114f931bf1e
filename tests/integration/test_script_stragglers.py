"""In a script, too, a slow rank is told from those that wait for it, whatever connects them: real ranks, one of which sleeps in
every step."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tenuto.schemas.reports import StragglerReport, TrackerReport
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.workers.horovod import rendezvous
from tests.support.gang_bench import GangBench

CONTEXT = Path(__file__).parents[1] / "support" / "scripts" / "slow_rank"
SLEEP_SECONDS = 0.2
"""Several times what a step takes on a busy machine."""
STRATEGIES = {"plain": "ddp", "ddp": "ddp", "tensorflow": "multi_worker_mirrored"} | (
    {"horovod": "horovod"} if rendezvous.is_installed() else {}
)


def stop_when_told(report: TrackerReport) -> pb.Directive | None:
    """On a busy machine rank 0 may be slow for a while, too."""
    slow = isinstance(report, StragglerReport) and report.rank == 1
    return pb.Directive(action=pb.Directive.STOP) if slow else None


def test_a_slow_rank_of_a_script_is_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        started = []
        for kind, strategy in STRATEGIES.items():
            config = {
                "name": "slow",
                "entrypoint": f"train.py {kind}",
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100_000}},
                "distributed": {"strategy": strategy},
            }
            bench = stack.enter_context(GangBench(tmp_path / kind, CONTEXT, config, {}))
            agent, [run] = bench.gang(2, 100_000, TEST_SLOW=f"1 {SLEEP_SECONDS}")
            agent.react = stop_when_told
            started.append((agent, run))
        for agent, run in started:
            assert run.wait() == 0, run.output()
            [report] = [item for item in agent.reports if isinstance(item, StragglerReport) and item.rank == 1]
            assert (report.slots, report.agent_id) == (2, "first")
            assert report.own_seconds >= 0.9 * SLEEP_SECONDS
            assert report.own_seconds > 1.5 * report.usual_seconds, "rank 0 takes as long in all: its waits are not counted"
            assert "tenuto: rank 1 of 2 on agent first is a straggler: " in run.output()
