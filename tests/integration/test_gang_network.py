"""Ranks on two nodes with a network between them that is cut: network namespaces, real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gang_bench import GangBench, Network, wait_held
from tests.support.namespaces import ip, two_namespaces
from tests.support.reactions import stop_at
from tests.support.warm_starts import WarmStarts

CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "ranked"
CONFIG = {
    "name": "ranked",
    "entrypoint": "model_def:RankedTrial",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 24}},
    "min_checkpoint_period": {"batches": 5},
}
HYPERPARAMETERS = {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0}


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    with two_namespaces() as names:
        yield names


def test_a_cut_link_ends_the_gang_on_both_sides_and_the_trial_goes_on_when_it_is_mended(
    tmp_path: Path, namespaces: tuple[str, str]
) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    starts = [WarmStarts(inside=("ip", "netns", "exec", name)) for name in namespaces]
    try:
        with GangBench(
            tmp_path / "bench", CONTEXT, CONFIG, {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0}
        ) as bench:
            bench.networks = tuple(Network(f"10.123.0.{index}", "cable", start) for index, start in enumerate(starts, start=1))
            agent, runs = bench.gang(1, 24, nodes=2, TEST_ACT="hold 0 8", TEST_HELD=str(held), TEST_GO=str(go))
            wait_held(held, runs)
            ip("-n", namespaces[0], "link", "set", "cable", "down")
            go.touch()
            assert [run.wait() for run in runs] == [84, 84], "\n".join(run.output() for run in runs)
            assert runs[0].error.startswith(
                "agent second could not be reached by agent first over the network for 10 s: nothing came "
            )
            assert runs[1].error.startswith(
                "agent first could not be reached by agent second over the network for 10 s: nothing came "
            )
            assert not [process for run in runs for process in run.processes()]
            ip("-n", namespaces[0], "link", "set", "cable", "up")
            again, runs = bench.gang(1, 24, agent.checkpoints()[-1], nodes=2)
            again.react = stop_at(24)
            assert [run.wait() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)
    finally:
        for start in starts:
            start.close()


def test_ranks_find_each_other_by_addresses_of_version_6(tmp_path: Path) -> None:
    with GangBench(tmp_path / "bench", CONTEXT, CONFIG, HYPERPARAMETERS) as bench:
        bench.networks = (Network("::1", ""),) * 2  # as in containers, whose interfaces their agents do not know
        agent, runs = bench.gang(1, 6, nodes=2)
        agent.react = stop_at(6)
        assert [run.wait() for run in runs] == [0, 0], "\n".join(run.output() for run in runs)
        assert (runs[0].directory / "rendezvous").read_text().startswith("[::1]:")
