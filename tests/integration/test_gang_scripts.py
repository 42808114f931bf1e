"""A script written for torchrun, as an experiment's entrypoint on several ranks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.gang_bench import GangBench, preempt_when_held
from tests.support.reactions import stop_at

CONTEXT = Path(__file__).parents[1] / "support" / "scripts" / "data_parallel"
SEARCHER = {"name": "single", "metric": "weight", "max_length": {"batches": 30}}
CONFIG = {"name": "script", "entrypoint": "train.py", "searcher": SEARCHER}

ENDS_AFTER_ITS_VALIDATION = """
import tenuto

with tenuto.init() as run:
    if run.rank == 0:
        run.report_validation(30, {"weight": 1.0})
"""


def test_a_script_for_torchrun_runs_and_its_ranks_leave_in_the_same_step(tmp_path: Path) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    with GangBench(tmp_path / "whole", CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 30)
        agent.react = stop_at(30)
        assert run.wait() == 0, run.output()
        expected = agent.validations()[-1].metrics
        assert [point.batches for report in agent.metrics for point in report.points] == [10, 20, 30], "rank 0 alone reports"
    with GangBench(tmp_path / "left", CONTEXT, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 30, TEST_HOLD="1 7", TEST_HELD=str(held), TEST_GO=str(go))
        preempt_when_held(agent, run, held, go)
        assert run.wait() == 80, run.output()
        left_at = agent.checkpoints()[-1].batches
        assert run.output().count(f"leaves at {left_at}") == 2
        again, [run] = bench.gang(2, 30, agent.checkpoints()[-1])
        again.react = stop_at(30)
        assert run.wait() == 0, run.output()
        assert again.validations()[-1].metrics == expected


def test_ranks_that_end_before_the_search_has_decided_are_not_waited_for(tmp_path: Path) -> None:
    """A script that does not ask for operations: rank 0 alone is left when the word comes."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "train.py").write_text(ENDS_AFTER_ITS_VALIDATION)
    with GangBench(tmp_path / "gang", context, CONFIG, {}) as bench:
        agent, [run] = bench.gang(3, 30)
        agent.wait_for(lambda: bool(agent.validations()))
        while len(run.supervisor().children()) > 1:
            time.sleep(0.02)  # the end of a process that is not ours sets no event
        agent.direct("stop")
        assert run.wait() == 0, run.output()


@pytest.mark.parametrize("code", [0, 80, 83])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_ends_its_process_has_failed_whatever_the_code(tmp_path: Path, rank: int, code: int) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "train.py").write_text(
        f"import os, threading, tenuto\nwith tenuto.init() as run:\n    if run.rank == {rank}:\n        os._exit({code})\n"
        "    threading.Event().wait()\n"
    )
    with GangBench(tmp_path / "gang", context, CONFIG, {}) as bench:
        agent, [run] = bench.gang(2, 30)
        assert run.wait() == code, run.output()
        assert agent.endings == ["failed"]
        assert run.error.startswith(f"rank {rank} of 2 on agent first exited with code {code}, and told nothing of its end.")


def test_the_parts_of_a_gang_tell_their_agents_what_each_knows(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "train.py").write_text(
        "import threading, tenuto\nwith tenuto.init() as run:\n    if run.rank == 1:\n"
        "        raise tenuto.InvalidHyperparameters('x')\n"
        "    threading.Event().wait()\n"
    )
    with GangBench(tmp_path / "gang", context, CONFIG, {}) as bench:
        agent, runs = bench.gang(1, 30, nodes=2)
        for run in runs:
            run.wait()
        assert sorted(agent.endings) == ["followed", "invalid_hyperparameters"], "\n".join(run.output() for run in runs)


def test_ranks_that_start_cold(tmp_path: Path) -> None:
    """New interpreters, and a trial without a framework."""
    context = CONTEXT.parents[1] / "trials" / "counting"
    config = {**CONFIG, "entrypoint": "model_def:CountingTrial", "searcher": {**SEARCHER, "metric": "total"}}
    with GangBench(tmp_path / "cold", context, config, {}) as bench:
        bench.cold = True
        agent, [run] = bench.gang(2, 30)
        agent.react = stop_at(30)
        assert run.wait() == 0, run.output()
        assert [report.batches for report in agent.validations()] == [30], "rank 0 alone reports"
