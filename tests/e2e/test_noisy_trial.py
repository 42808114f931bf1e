"""A trial that validates without end, on a whole cluster: others go on, people see what waits, and it can be ended."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tenuto.schemas.events.trial import ValidationReported
from tenuto.workers.agent.lane_decisions import WINDOW_MAX
from tenuto.workers.agent.rpc import PACED_REPORTS
from tenuto.workers.agent.spool import FACT_LANES
from tenuto.workers.harness.reporter import BATCH_REPORTS_MAX
from tests.support.live_cluster import LiveCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SCRIPTS = Path(__file__).parents[1] / "support" / "scripts"
OTHERS = 6
TIMES_AS_LONG_MAX = 10
"""As without the noisy trial: far more than sharing two cores costs, and far less than waiting behind it."""
BACKLOG_MIN = 100
TAIL_REPORTS_MAX = PACED_REPORTS + BATCH_REPORTS_MAX + WINDOW_MAX
"""Of a worker that is gone: what waits, a call that was just taken in, and what is on the road."""
CONFIG = """\
name: {name}
entrypoint: train.py
searcher: {{name: single, metric: total, max_length: {{batches: {batches}}}}}
min_validation_period: {{batches: 10}}
"""


@pytest.fixture
def cluster() -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory(prefix="tenuto-noisy-") as directory, LiveCluster(Path(directory), cpu_slots=3) as cluster:
        yield cluster


def submit(cluster: LiveCluster, directory: Path, name: str, batches: int) -> int:
    path = directory / f"{name}.yaml"
    path.write_text(CONFIG.format(name=name, batches=batches))
    return int(cluster.json("exp", "create", path, SCRIPTS / name)["id"])


def run_others(cluster: LiveCluster, directory: Path) -> float:
    """Seconds that they took."""
    begun = time.monotonic()
    others = [submit(cluster, directory, "summing", 30) for _ in range(OTHERS)]
    cluster.wait_for(lambda: all(state(cluster, experiment) == "completed" for experiment in others))
    return time.monotonic() - begun


def state(cluster: LiveCluster, experiment: int) -> str:
    """Raises where people cannot see an experiment that was just submitted."""
    return str(cluster.client().get(f"/experiments/{experiment}")["state"])


def waiting(cluster: LiveCluster) -> int:
    backlog = cluster.client().get("/status")["backlog"]
    return max([max(item["waiting"], item["on_bus"]) for item in backlog if item["lane"] in FACT_LANES], default=0)


def test_others_go_on_beside_a_trial_that_reports_without_end_and_it_can_be_ended(cluster: LiveCluster, tmp_path: Path) -> None:
    alone = run_others(cluster, tmp_path)
    noisy = submit(cluster, tmp_path, "noisy", 10**9)
    cluster.wait_for(lambda: waiting(cluster) >= BACKLOG_MIN)
    beside = run_others(cluster, tmp_path)
    assert state(cluster, noisy) == "active"
    cluster.wait_for(lambda: "reports that wait for the record" in cluster.cli("status").stdout)
    assert beside < TIMES_AS_LONG_MAX * alone

    workers = cluster.workers()
    assert len(workers) == 1
    cluster.cli("exp", "kill", str(noisy))
    cluster.wait_for(lambda: not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers))
    gone = int(cluster.client().get("/status")["head"])
    cluster.wait_for(lambda: waiting(cluster) == 0 and cluster.client().get("/status")["slots_used"] == 0)
    assert len([event for event in cluster.events(gone) if isinstance(event.data, ValidationReported)]) <= TAIL_REPORTS_MAX
    cluster.cli("exp", "wait", str(noisy), check=False)
    assert state(cluster, noisy) == "canceled"
    print(f"others alone {alone:.1f} s, beside {beside:.1f} s; recorded when killed {gone}")
