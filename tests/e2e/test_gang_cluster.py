"""Gangs over the agents of a live cluster: a rank is killed, then a whole agent with its ranks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tenuto.schemas.envelope import Event
from tenuto.schemas.events.pool import AllocationGranted
from tenuto.schemas.events.run import GangRendezvousOpened, WorkersExited
from tenuto.schemas.events.trial import StragglerNoticed
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tests.support.live_cluster import LiveCluster, Node

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]
CONTEXT = Path(__file__).parents[1] / "support" / "trials" / "ranked"
BATCHES = 24


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveCluster, dict[str, Node]]]:
    directory = tmp_path_factory.mktemp("cluster")
    directory.chmod(0o711)
    found = LiveCluster(directory / "c", cpu_slots=1)
    found.environment |= {"TENUTO_LEASE_SECONDS_MAX": "8", "TENUTO_HEARTBEAT_SECONDS": "0.5", "OMP_NUM_THREADS": "1"}
    found.up()
    with contextlib.ExitStack() as nodes:
        try:
            yield found, {name: nodes.enter_context(found.another_agent(name)) for name in ("second", "third")}
            found.check_bus()
        finally:
            found.down()


def submit(cluster: LiveCluster, directory: Path, batches: int = BATCHES, **variables: str) -> str:
    given = {"variables": variables} if variables else {}
    config = {
        "name": "ranked",
        "entrypoint": "model_def:RankedTrial",
        "hyperparameters": {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0} | given,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": batches}},
        "resources": {"slots_per_trial": 2},
        "min_checkpoint_period": {"batches": 5},
        "reproducibility": {"experiment_seed": 5},
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return str(cluster.json("exp", "create", path, CONTEXT)["id"])


def of(cluster: LiveCluster, experiment: str, kind: type) -> list[Event]:
    return [event for event in cluster.events() if isinstance(event.data, kind) and event.correlation_id == experiment]


def slow_ranks(cluster: LiveCluster, experiment: str) -> list[StragglerNoticed]:
    found = of(cluster, experiment, StragglerNoticed)
    return [event.data for event in found if isinstance(event.data, StragglerNoticed)]


def marked(cluster: LiveCluster, allocation: str) -> list[psutil.Process]:
    """An allocation's processes, on whatever agent."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mark = process.environ().get(RUN_VARIABLE, "")
            if mark.startswith(str(cluster.directory.resolve())) and mark.endswith(f":{allocation}"):
                found.append(process)
    return found


def final_loss(cluster: LiveCluster, experiment: str) -> float:
    return float(cluster.json("exp", "describe", experiment)["best_metric"])


def test_a_user_is_told_which_rank_is_slow(cluster: tuple[LiveCluster, dict[str, Node]], tmp_path: Path) -> None:
    live, _ = cluster
    experiment = submit(live, tmp_path, 100_000, TEST_SLOW="step 1 0.3")
    live.wait_for(lambda: any(data.rank == 1 for data in slow_ranks(live, experiment)))
    live.cli("exp", "kill", experiment)
    live.cli("exp", "wait", experiment, check=False)
    data = [data for data in slow_ranks(live, experiment) if data.rank == 1][-1]  # a noisy machine may have it told again
    trial, who = f"{experiment}-1", f"rank 1 of 2 on agent {data.agent_id} is "
    found = live.json("trial", "describe", trial)["stragglers"]
    assert found == [item.model_dump(exclude={"trial_id"}) for item in slow_ranks(live, experiment)]
    live.environment["COLUMNS"] = "400"
    for command in (("exp", "why"), ("trial", "describe")):
        assert f"{who}{data.own_seconds / data.usual_seconds:.1f} times as slow" in live.cli(*command, trial).stdout
    assert (told := f"{who}a straggler: ") in live.log(trial, told, kind="trial")


def test_a_killed_rank_and_a_lost_agent_cost_no_bit(cluster: tuple[LiveCluster, dict[str, Node]], tmp_path: Path) -> None:
    live, nodes = cluster
    whole = submit(live, tmp_path)
    live.cli("exp", "wait", whole)
    assert of(live, whole, GangRendezvousOpened), "its two ranks were on two agents"

    live.log(f"{whole}-1", "this is rank 0", "this is rank 1", kind="trial")
    lines = [json.loads(line) for line in live.cli("trial", "logs", f"{whole}-1", "--json").stdout.splitlines()]
    said = {(line["rank"], line["text"]) for line in lines if "this is rank" in line["text"]}
    assert said == {(0, "this is rank 0"), (1, "this is rank 1")}

    held, go = tmp_path / "held", tmp_path / "go"
    killed = submit(live, tmp_path, TEST_ACT="kill 1 13")
    live.wait_for(lambda: bool(of(live, killed, WorkersExited)))
    ends = of(live, killed, WorkersExited)
    assert isinstance(ends[0].data, WorkersExited)
    assert ends[0].data.outcome == "lost"
    assert (ends[0].data.error or "").startswith("rank 1 of 2 on agent ")
    assert "SIGKILL" in (ends[0].data.error or "")
    live.cli("exp", "kill", killed)

    lost = submit(live, tmp_path, TEST_ACT="hold 0 13", TEST_HELD=str(held), TEST_GO=str(go))
    live.wait_for(held.exists)
    [grant] = of(live, lost, AllocationGranted)
    assert isinstance(grant.data, AllocationGranted)
    victim = next(part.agent_id for part in grant.data.slots if part.agent_id in nodes)
    nodes[victim].die()
    go.touch()
    live.cli("exp", "wait", lost)
    assert final_loss(live, lost) == final_loss(live, whole)
    second = of(live, lost, AllocationGranted)[-1].data
    assert isinstance(second, AllocationGranted)
    assert victim not in [part.agent_id for part in second.slots]
    # Slots do not wait for the last breath of the leader of a run's processes.
    live.wait_for(lambda: not marked(live, grant.data.allocation_id) and not marked(live, second.allocation_id))
