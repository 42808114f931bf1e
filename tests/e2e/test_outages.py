"""Outages on a live cluster that last longer than every deadline: of the network between two agents, and of the launcher."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import yaml

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.run import WorkersExited
from tests.support.live_cluster import LiveCluster
from tests.support.namespaces import forwarded, inside, ip, two_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "ranked"
BATCHES = 12
LEASE_SECONDS, LINK_SECONDS = 6.0, 2.0
STANDSTILL_SECONDS = 2 * LEASE_SECONDS
LOSSES_MIN = 2
"""While the link is away: one of the gang that was cut, and one of a gang that could not meet (30 s, the longest deadline)."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveCluster, str]]:
    """With two agents of one slot each, and a cable between them; and the first one's namespace."""
    directory = tmp_path_factory.mktemp("outages")
    directory.chmod(0o711)
    live = LiveCluster(directory / "c", cpu_slots=1)
    live.environment |= {
        "TENUTO_LEASE_SECONDS_MAX": str(LEASE_SECONDS), "TENUTO_HEARTBEAT_SECONDS": "0.5", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(two_namespaces())
        live.up()
        stack.callback(live.down)
        bus = psutil.Process(live.pid("agent")).environ()["TENUTO_NATS_URL"]
        stack.enter_context(forwarded(urlsplit(bus).port or 4222, names, directory))
        [own] = {event.data.agent_id for event in live.events() if isinstance(event.data, AgentJoined)}
        live.cli("agent", "disable", own)
        for name, namespace in zip(("first", "second"), names, strict=True):
            node = live.another_agent(name, inside=inside(namespace), TENUTO_NETWORK_INTERFACE="cable")
            stack.enter_context(node)
        yield live, names[0]


def submit(cluster: LiveCluster, directory: Path, **variables: str) -> str:
    given = {"variables": variables} if variables else {}
    config = {
        "name": "ranked",
        "entrypoint": "model_def:RankedTrial",
        "hyperparameters": {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0} | given,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": BATCHES}},
        "resources": {"slots_per_trial": 2},
        "distributed": {"link_seconds_max": LINK_SECONDS},
        "min_checkpoint_period": {"batches": 5},
        "reproducibility": {"experiment_seed": 5},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(cluster.json("exp", "create", path, CONTEXT)["id"])


def of(cluster: LiveCluster, experiment: str, kind: type) -> list[Event]:
    return [event for event in cluster.events() if isinstance(event.data, kind) and event.correlation_id == experiment]


def outcomes(cluster: LiveCluster, experiment: str) -> list[str]:
    return [event.data.outcome for event in of(cluster, experiment, WorkersExited) if isinstance(event.data, WorkersExited)]


def test_neither_costs_a_bit(cluster: tuple[LiveCluster, str], tmp_path: Path) -> None:
    live, namespace = cluster
    held, go = tmp_path / "held", tmp_path / "go"
    standing = submit(live, tmp_path, TEST_ACT="hold 0 8", TEST_HELD=str(held), TEST_GO=str(go))
    live.wait_for(held.exists)
    launcher = psutil.Process(live.pid("launcher"))
    launcher.suspend()
    try:
        go.touch()
        time.sleep(STANDSTILL_SECONDS)  # the outage itself
    finally:
        launcher.resume()
    live.cli("exp", "wait", standing)
    assert len(of(live, standing, AllocationGranted)) == 1, "it was started again"
    assert outcomes(live, standing) == ["finished"]
    assert not [event for event in live.events() if isinstance(event.data, AgentLost)]

    held, go = tmp_path / "held again", tmp_path / "go again"
    cut = submit(live, tmp_path, TEST_ACT="hold 0 8", TEST_HELD=str(held), TEST_GO=str(go))
    live.wait_for(held.exists)
    ip("-n", namespace, "link", "set", "cable", "down")
    go.touch()
    live.wait_for(lambda: len(outcomes(live, cut)) >= LOSSES_MIN)
    ip("-n", namespace, "link", "set", "cable", "up")
    live.cli("exp", "wait", cut)
    ends = outcomes(live, cut)
    assert ends == ["lost"] * (len(ends) - 1) + ["finished"]
    results = live.json("diff", standing, cut)["results"]
    assert results["metrics_equal"] is True
    assert results["weights_equal"] is True
    assert {item["batches"] for item in results["files"]} == {BATCHES}
