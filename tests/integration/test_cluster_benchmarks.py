"""Every benchmark that takes a running cluster runs in its small form, all of them on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.benchmark_runs import ON_A_CLUSTER, Runs, SharedCluster
from tests.support.forked_programs import ForkedPrograms

CLUSTER = "BENCH_CLUSTER"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedPrograms]:
    with ForkedPrograms(inherited=[commands.door().fileno()], for_models=False) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[SharedCluster]:
    found = SharedCluster()
    yield found
    found.end()


@pytest.mark.parametrize("name", sorted(ON_A_CLUSTER))
def test_benchmark(name: str, forked: ForkedPrograms, cluster: SharedCluster, tmp_path: Path) -> None:
    variables = {CLUSTER: str(cluster.directory()), commands.DOOR_VARIABLE: str(commands.door().fileno())}
    try:
        Runs(forked, tmp_path, variables).small(name, {"tmp": tmp_path})
    except BaseException:
        cluster.end()
        raise
