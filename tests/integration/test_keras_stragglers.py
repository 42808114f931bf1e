"""A slow rank of a Keras trial is told from those that wait for it in the midst of their graphs: real ranks, one of which
sleeps in every step."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tenuto.schemas.reports import StragglerReport
from tests.integration.test_keras_ranks import KINDS, KINDS_TOO, Bench
from tests.integration.test_script_stragglers import SLEEP_SECONDS, stop_when_told
from tests.support import real_parts

real_parts.package("tensorflow")


def test_a_slow_rank_of_a_keras_trial_is_named(tmp_path: Path) -> None:
    kinds = [*KINDS, *(item.values for item in KINDS_TOO if not item.marks[0].args[0])]  # type: ignore[union-attr]
    with ExitStack() as stack:
        started = []
        for backend, strategy in kinds:
            longer = {"searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": 100_000}}}
            quiet = {"min_checkpoint_period": {"batches": 50_000}, "log_period": {"batches": 50_000}}
            bench = stack.enter_context(
                Bench(tmp_path / f"{backend}-{strategy}", str(backend), str(strategy), random=False, **longer, **quiet)
            )
            variables = {"KERAS_BACKEND": str(backend), "TF_CPP_MIN_LOG_LEVEL": "3"}
            agent, [run] = bench.gang(2, 100_000, TEST_SLOW=f"1 {SLEEP_SECONDS}", **variables)
            agent.react = stop_when_told
            started.append((backend, strategy, agent, run))
        for backend, strategy, agent, run in started:
            assert run.wait() == 0, run.output()
            [report] = [item for item in agent.reports if isinstance(item, StragglerReport) and item.rank == 1]
            assert (report.slots, report.agent_id) == (2, "first")
            assert report.own_seconds >= 0.9 * SLEEP_SECONDS, (backend, strategy)
            assert report.own_seconds > 1.5 * report.usual_seconds, "rank 0 takes as long in all: its waits are not counted"
