"""Agents as jobs of a real Slurm: a search over two nodes, a canceled job, a node that dies, and a job whose wall time ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.schemas.envelope import Event
from tests.support import slurm as support
from tests.support.live_cluster import LiveCluster
from tests.support.slurm import Slurm
from tests.support.slurm_agents import write_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(support.lack())]
MODEL = Path(__file__).parent / "models/leaving"


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


def _ends(events: list[Event]) -> list[int | None]:
    """Times at which agents of Slurm leave. The cluster's own agent, which may join last, has none."""
    return [event.data.leaves_at_us for event in events if event.type == "AgentJoined" and event.data.pool == "slurm"]


def _agents_of(events: list[Event], experiment: int) -> list[str]:
    granted = [event.data for event in events if event.type == "AllocationGranted"]
    return [data.slots[0].agent_id for data in granted if data.experiment_id == experiment]


def _exits(events: list[Event], trial: str) -> list[str]:
    return [event.data.outcome for event in events if event.type == "WorkersExited" and event.data.trial_id == trial]


def _check_step(slurm: Slurm, name: str) -> None:
    """The agent is a step of somebody's own job, and says what of that its workers do not get."""
    assert name == "last-0"
    [agent] = slurm.agents().values()
    assert agent.environ()["SLURM_STEP_ID"] == "0"
    told = [line for line in slurm.printed().splitlines() if "TENUTO_WORKER_INHERITS adds those" in line]
    assert any("SLURM_PROCID" in line and "SLURM_STEP_ID" in line for line in told), slurm.printed()


def _wait_resumed(cluster: LiveCluster, times: int) -> str:
    """What trial 2-1 printed, once it has gone on so many times: lines may come after the end of their run."""
    cluster.wait_for(lambda: cluster.cli("trial", "logs", "2-1").stdout.count("goes on at step 2") == times)
    return cluster.cli("trial", "logs", "2-1").stdout


def _check_printed(cluster: LiveCluster) -> None:
    said = _wait_resumed(cluster, 3)
    assert said.count("of a batch job:") == said.count("of a batch job: []") == 4, "a trial is no task of a job"


def test_trials_go_on_whatever_becomes_of_the_jobs_that_agents_are(tmp_path: Path, slurm: Slurm) -> None:
    cluster = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False)
    gate = tmp_path / "gate"

    def ended(experiment: int) -> bool:
        return any(event.type == "ExperimentCompleted" and event.data.experiment_id == experiment for event in cluster.events())

    def granted(experiment: int, count: int) -> str:
        """The agent of the experiment's grant of that number, from 1."""
        cluster.wait_for(lambda: len(_agents_of(cluster.events(), experiment)) >= count)
        return _agents_of(cluster.events(), experiment)[count - 1]

    def saved(trial: str) -> bool:
        return any(event.type == "CheckpointSaved" and event.data.trial_id == trial for event in cluster.events())

    def lost(agent: str) -> str:
        found = [event.data.reason for event in cluster.events() if event.type == "AgentLost" and event.data.agent_id == agent]
        return found[-1] if found else ""

    with cluster:
        write_settings(cluster, slurm, ("tenuto-0", "tenuto-1", "late-0", "last-0"))
        jobs = slurm.submit("--array=0-1", "--time=20", "--exclusive")

        # A search over two nodes. On a slow machine the first to come would else have done all of it.
        cluster.wait_for(
            lambda: {"tenuto-0", "tenuto-1"} <= {e.data.agent_id for e in cluster.events() if e.type == "AgentJoined"}
        )
        search = ("--set", "searcher.name=random", "--set", "searcher.max_trials=4")
        cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, *search)
        cluster.wait_for(lambda: ended(1))
        assert {*_agents_of(cluster.events(), 1)} == {"tenuto-0", "tenuto-1"}, slurm.printed()
        assert all(_ends(cluster.events())), f"an agent does not know when its job ends:\n{slurm.printed()}"
        assert {slurm.node_of(agent) for agent in slurm.agents().values()} == {"n0", "n1"}

        # The job that a trial runs on is canceled: the trial saves, and goes on on the other node.
        cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, "--set", f"hyperparameters.gate={gate}")
        cluster.wait_for(lambda: saved("2-1"))
        first = granted(2, 1)
        slurm.run("scancel", f"{jobs}_{first[-1]}")
        second = granted(2, 2)
        assert {first, second} == {"tenuto-0", "tenuto-1"}
        assert _exits(cluster.events(), "2-1") == ["preempted"], slurm.printed()
        [reason] = [event.data.reason for event in cluster.events() if event.type == "AllocationPreempted"]
        assert (reason.rule, reason.numbers["agent"]) == ("agent_leaves", first)
        cluster.wait_for(lambda: bool(lost(first)))
        assert lost(first) == "its time was over"

        # The other node dies, and a job of one minute comes: the agent has its trial save before that is over, and leaves.
        agent = next(agent for agent in slurm.agents().values() if agent.environ()["TENUTO_AGENT_ID"] == second)
        _wait_resumed(cluster, 1)  # what it prints is lost with the node, else
        slurm.node_dies(agent)
        cluster.wait_for(lambda: bool(lost(second)))
        assert "no heartbeat" in lost(second)
        slurm.run("scancel", jobs)  # else Slurm starts it again where there is room, and it takes the trial up
        for minutes in (1, 2, 4):  # where all takes long, the agent may come too late for what a minute leaves
            times = {"TENUTO_LEAVE_SAVE_SECONDS": f"{32 * minutes}", "TENUTO_LEAVE_CLOSED_SECONDS": f"{32 * minutes + 2}"}
            short = slurm.submit("--job-name=late", f"--time={minutes}", "--signal=B:USR1@1", **times)
            cluster.wait_for(lambda job=short: len(_agents_of(cluster.events(), 2)) == 3 or slurm.over(job))
            if len(_agents_of(cluster.events(), 2)) == 3:
                break
        assert granted(2, 3) == "late-0"
        slurm.wait_completed(short)
        cluster.wait_for(lambda: len(_exits(cluster.events(), "2-1")) == 3)
        assert _exits(cluster.events(), "2-1") == ["preempted", "lost", "preempted"], slurm.printed()

        # The next job takes the trial up, and ends by itself.
        last = slurm.submit_step("last", "--time=20", TENUTO_LEAVE_IDLE_SECONDS="5")
        _check_step(slurm, granted(2, 4))
        gate.touch()
        cluster.wait_for(lambda: ended(2))
        _check_printed(cluster)
        slurm.wait_completed(last)
        cluster.check_bus()
