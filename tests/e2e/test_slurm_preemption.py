"""Jobs that a real Slurm takes away for a partition of higher priority: trials save at its signal and go on in the next job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import slurm as support
from tests.support.leases import OUTLIVES_THE_TEST
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.slurm import PREEMPTION, Slurm
from tests.support.slurm_agents import write_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(support.lack())]
MODEL = Path(__file__).parent / "models/leaving"
CANCEL = PREEMPTION.format(mode="CANCEL", grace=5)
"""The job of a pool is not told that it was chosen; when its grace is over it gets SIGTERM, and KillWait (30 s) to leave."""
REQUEUE = PREEMPTION.format(mode="REQUEUE", grace=120) + "SlurmctldParameters=preempt_send_user_signal\n"
"""The signal that a job has asked for comes at once, and all of its grace is left for it."""


def start_pool(cluster: LiveCluster, slurm: Slurm, directory: Path) -> None:
    """A pool whose jobs are Tenuto's own."""
    setup = directory / "setup.sh"
    variables = {"TENUTO_SHARED_DIRECTORY": str(cluster.directory / "shared"), "TENUTO_CPU_SLOTS": "1", **COLD}
    setup.write_text("".join(f"export {name}={value}\n" for name, value in variables.items()))
    given = {"directory": directory / "nodes", "python": sys.executable, "setup": setup, "time": 20, "partition": "low"}
    settings = [word for name, value in {**given, "extra": "--exclusive"}.items() for word in ("--set", f"{name}={value}")]
    cluster.cli("pool", "create", "slurm", "--provisioner", "slurm", "--slots", "1", "--max", "2", *settings)


def submit_agents(cluster: LiveCluster, slurm: Slurm, directory: Path) -> None:
    """Jobs one after the other, as docs/slurm.md has them for a node of days."""
    write_settings(cluster, slurm, ("tenuto-0", "tenuto-1"))
    slurm.submit("--array=0-1%1", "--time=20", "--partition=low", "--exclusive")


@pytest.mark.parametrize(
    ("preemption", "begin", "agents", "ends"),
    [
        (CANCEL, start_pool, ("slurm-1", "slurm-2"), "PREEMPTED"),
        (REQUEUE, submit_agents, ("tenuto-0", "tenuto-1"), "COMPLETED"),
    ],
    ids=["pool", "submitted"],
)
def test_a_trial_saves_at_the_signal_and_goes_on_in_the_next_job(
    tmp_path: Path, preemption: str, begin: Any, agents: tuple[str, str], ends: str
) -> None:
    if reason := support.why_not():
        pytest.skip(reason)
    cluster, gate = LiveCluster(tmp_path / "cluster", cpu_slots=1, warm=False), tmp_path / "gate"
    cluster.environment |= OUTLIVES_THE_TEST  # agents say themselves that their time is over

    def of(kind: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type == kind]

    def granted() -> list[str]:
        return [data.slots[0].agent_id for data in of("AllocationGranted")]

    with support.slurm(preemption) as slurm:
        cluster.environment |= {name: slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
        with cluster.listening("127.0.0.9"):
            begin(cluster, slurm, tmp_path)
            cluster.cli("exp", "create", MODEL / "config.yaml", MODEL, "--set", f"hyperparameters.gate={gate}")
            cluster.wait_for(lambda: bool(of("CheckpointSaved")))
            [running] = slurm.run("squeue", "--noheader", "--partition=low", "--states=RUNNING", "--format=%i %N").splitlines()
            job, machine = running.split()
            other = slurm.run(
                "sbatch", "--parsable", "--partition=high", "--exclusive", f"--nodelist={machine}", "--wrap=sleep 900",
                f"--output={slurm.directory}/jobs/other.out",
            )  # fmt: skip
            cluster.wait_for(lambda: slurm.state(other) == "RUNNING")
            assert slurm.state(job) == ends, slurm.printed()
            cluster.wait_for(lambda: len(granted()) == 2)
            assert tuple(granted()) == agents
            assert [data.outcome for data in of("WorkersExited")] == ["preempted"], slurm.printed()
            [reason] = [data.reason for data in of("AllocationPreempted")]
            assert (reason.rule, reason.numbers["agent"]) == ("agent_leaves", agents[0])
            cluster.wait_for(lambda: [(data.agent_id, data.announced) for data in of("AgentLost")] == [(agents[0], True)])
            gate.touch()
            cluster.wait_for(lambda: bool(of("ExperimentCompleted")))
            assert cluster.log("1-1", "goes on at step 2", kind="trial").count("goes on at step 2") == 1
            saved = [(data.allocation_id, data.batches) for data in of("CheckpointSaved")]
            assert saved[:2] == [("1-1-1", 2)] * 2, "the second one is that of the signal"
            cluster.check_bus()
