"""Ranks that Horovod connects: found by its own rendezvous, without horovodrun. Where Horovod is not built (`make horovod`), what
the user is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.workers.horovod import rendezvous
from tests.integration import test_gang_batches as batches
from tests.integration.test_gang_training import EPOCH_BATCHES, bench_of, finish, same, stop_at, weights
from tests.support.gang_bench import GangBench

EXAMPLE = Path(__file__).parents[2] / "examples" / "horovod"
SCRIPTS = Path(__file__).parents[1] / "support" / "trials" / "horovod_script"
HOROVOD = {"distributed": {"strategy": "horovod"}}
built = pytest.mark.skipif(not rendezvous.is_installed(), reason="Horovod is not built for this Python: make horovod")


def test_numbers_of_ranks_on_agents_of_different_sizes() -> None:
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    numbers = [tuple(int(rendezvous.variables(places, rank)[f"HOROVOD_{name}"]) for name in names) for rank in range(6)]
    assert numbers == [
        (0, 6, 0, 3, 0, 3),
        (1, 6, 1, 3, 0, 2),
        (2, 6, 2, 3, 0, 1),
        (3, 6, 0, 1, 1, 3),
        (4, 6, 0, 2, 2, 3),
        (5, 6, 1, 2, 1, 2),
    ]


@built
def test_numbers_are_those_of_horovodrun() -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts  # type: ignore[import-not-found]

    plan = get_host_assignments(parse_hosts("agent-0:3,agent-1:1,agent-2:2"), 6)
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]
    for rank, slot in enumerate(plan):
        own = rendezvous.variables(places, rank)
        assert own["HOROVOD_HOSTNAME"] == slot.hostname
        for name in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"):
            assert own[f"HOROVOD_{name.upper()}"] == str(getattr(slot, name))


@pytest.mark.skipif(rendezvous.is_installed(), reason="Horovod is built for this Python")
def test_without_horovod_the_user_is_told_what_to_do(tmp_path: Path) -> None:
    with bench_of(tmp_path / "t", **HOROVOD) as bench:
        _, [run] = bench.gang(2, 4)
        assert run.wait() == 1, run.output()
        assert "Horovod is not installed" in run.error
        assert "`make horovod`" in run.error


@built
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (1, 2)])
def test_horovod_trains_like_ddp(tmp_path: Path, ranks: int, nodes: int) -> None:
    found: list[dict[str, torch.Tensor]] = []
    for name, changes in (("ddp", {}), ("horovod", HOROVOD)):
        with bench_of(tmp_path / name, random=False, **changes) as bench:
            found.append(weights(finish(bench, ranks, 2 * EPOCH_BATCHES, nodes=nodes).checkpoints()[-1]))
    assert same(*found), "the sum of two numbers has the same bits in any order"


@built
def test_a_killed_rank_and_the_same_bits(tmp_path: Path) -> None:
    with bench_of(tmp_path / "whole", **HOROVOD) as bench:
        expected = weights(finish(bench, 3, 24).checkpoints()[-1])
    with bench_of(tmp_path / "killed", **HOROVOD) as bench:
        agent, [run] = bench.gang(3, 24, TEST_ACT="kill 1 13")
        assert run.wait() == -9, run.output()
        assert run.error.startswith("rank 1 of 3 on agent first died by signal 9")
        again = finish(bench, 3, 24, (agent.checkpoints() or [None])[-1])
        assert same(expected, weights(again.checkpoints()[-1]))


@built
@pytest.mark.parametrize(
    ("ranks", "distributed", "changes", "more"),
    [
        (4, {"sync_batch_norm": True}, {"norm": True, "batch": 10}, {}),
        (2, {}, {}, {"resources": {"slots_per_trial": {"min": 1, "max": 4}}}),
        (2, {}, {}, {"optimizations": {"aggregation_frequency": 3}}),
    ],
    ids=["synchronized batch norm", "a shrunk trial, in parts", "gathered gradients"],
)
def test_several_ranks_make_the_steps_of_one(tmp_path: Path, ranks: int, distributed: Any, changes: Any, more: Any) -> None:
    """On 4 ranks the last batch of an epoch, with 3 records, leaves one rank without any."""
    with batches.bench_of(tmp_path / "ranks", **changes, **more, distributed={**distributed, "strategy": "horovod"}) as bench:
        found = batches.weights(batches.finish(bench, ranks, 12), 12)
    more = {} if "resources" in more else more  # one process has one slot
    with batches.bench_of(tmp_path / "one", **changes, **more, distributed=distributed) as bench:
        expected = batches.weights(batches.finish(bench, 1, 12), 12)
    assert ("1.running_var" in expected) == ("norm" in changes)
    batches.assert_close(found, expected)


def has_tensorflow() -> bool:
    found = importlib.util.find_spec("horovod")
    places = found.submodule_search_locations if found is not None else None
    return any(list((Path(place) / "tensorflow").glob("mpi_lib*.so")) for place in places or ())


TENSORFLOW = pytest.mark.skipif(not has_tensorflow(), reason="Horovod is not built for TensorFlow here: make horovod")


@built
@pytest.mark.parametrize("script", ["train.py", pytest.param("train_tensorflow.py", marks=TENSORFLOW)])
def test_a_script_of_horovods_own_kind(tmp_path: Path, script: str) -> None:
    """hvd.init(), averaged gradients, broadcasts: as the script would run under horovodrun."""
    config: dict[str, Any] = {
        "name": "script",
        "entrypoint": script,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 6}},
        **HOROVOD,
    }
    with GangBench(tmp_path / "t", SCRIPTS, config, {"learning_rate": 0.1}) as bench:
        agent, [run] = bench.gang(2, 6)
        agent.react = stop_at(6)
        assert run.wait() == 0, run.output()
        [validation] = agent.validations()
        assert validation.metrics["ranks"] == 2
        assert validation.metrics["spread"] == 0, "all ranks end with the same weights"


@built
def test_the_example_goes_on_where_it_was(tmp_path: Path) -> None:
    config = {
        "name": "example",
        "entrypoint": "train.py",
        "searcher": {"name": "single", "metric": "accuracy", "max_length": {"batches": 8}},
        "log_period": {"batches": 1},
        **HOROVOD,
    }
    found = []
    for stops in ([8], [5, 8]):
        points: dict[int, dict[str, float]] = {}
        with GangBench(tmp_path / str(len(stops)), EXAMPLE, config, {"learning_rate": 0.01, "batch_size": 20}) as bench:
            checkpoint = None
            for stop in stops:
                agent, [run] = bench.gang(2, stop, checkpoint)
                agent.react = stop_at(stop)
                assert run.wait() == 0, run.output()
                checkpoint = agent.checkpoints()[-1]
                points |= {point.batches: point.metrics for report in agent.metrics for point in report.points}
        found.append((points, agent.validations()[-1].metrics))
    assert len(found[0][0]) == 8
    assert found[0] == found[1]
