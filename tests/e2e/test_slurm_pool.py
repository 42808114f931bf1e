"""The first experiment of docs/slurm.md, command by command, on a real Slurm: a pool, its node as a job, and its end."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import slurm as support
from tests.support.live_cluster import COLD, LiveCluster
from tests.support.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.real_part(support.lack())]
ROOT = Path(__file__).parents[2]
MODEL = Path(__file__).parent / "models/leaving"
ADDRESS = "127.0.0.6"
SMALLER = {
    "--slots 4": "--slots 1", "--idle-seconds 600": "--idle-seconds 10", "partition=gpu": "partition=main",
    " --set gres=gpu:4": "", "cpus_per_task=32": "cpus_per_task=1", "mem=200G": "mem=200M", "time=8:00:00": "time=20",
    "config.yaml . ": f"{MODEL / 'config.yaml'} {MODEL} ",
}  # fmt: skip
"""Changes of the commands: the tests' Slurm has two small machines without GPUs, and nobody waits ten minutes."""


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


def commands(place: Path) -> list[str]:
    """Commands of the section, from the cluster on, with the directory of all in `place`."""
    page = (ROOT / "docs/slurm.md").read_text()
    section = page.split("## A first experiment, in ten minutes")[1].split("\n## ")[0]
    text = "".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[1:]).replace("\\\n", " ")
    for old, new in SMALLER.items():
        assert old in text, f"docs/slurm.md does not have {old!r} any more"
        text = text.replace(old, new)
    text = text.replace("/project/tenuto/venv/bin/python", sys.executable).replace("ADDRESS", ADDRESS)
    return text.replace("/project/tenuto", str(place)).splitlines()


@pytest.mark.parametrize("account", ["", "nobody"])
def test_the_first_experiment_of_the_guide(slurm: Slurm, account: str) -> None:
    if account and support.ordinary_user() != account:
        pytest.skip("The tests' Python is in a directory for its owner only.")
    place = slurm.directory / "project"  # whoever may submit jobs may enter it, unlike directories of pytest
    place.mkdir()
    somebody: tuple[str, ...] = ()
    if account:
        shutil.chown(place, account, "nogroup")
        somebody = (
            "setpriv",
            f"--reuid={account}",
            "--regid=nogroup",
            "--clear-groups",
            "env",
            f"HOME={place}",
            f"TMPDIR={place}",
        )
    cluster = LiveCluster(place / "cluster", cpu_slots=1, inside=somebody, warm=False, forked_up=not account)
    cluster.environment |= {name: slurm.environment[name] for name in ("SLURM_CONF", "PATH")}
    export, up, setup, create, check, train = commands(place)
    assert export == f"export TENUTO_DATA_DIRECTORY={cluster.directory}"
    assert up == f"tenuto up --detach --listen {ADDRESS}"

    def of(*kinds: str) -> list[Any]:
        return [event.data for event in cluster.events() if event.type in kinds]

    def jobs() -> list[str]:
        return slurm.run("squeue", "--noheader", "--format=%j %u").splitlines()

    with cluster.listening(ADDRESS):
        subprocess.run([*somebody, "bash", "-ec", setup], env=cluster.environment, check=True)
        with (place / "setup.sh").open("a") as file:
            file.writelines(f"export {name}={value}\n" for name, value in COLD.items())
        cluster.cli(*shlex.split(create)[1:])
        checked = cluster.json(*shlex.split(check)[1:])
        assert checked["ready"], checked
        assert jobs() == [], "the check submits nothing"
        cluster.cli(*shlex.split(train)[1:])
        assert {data.slots[0].agent_id for data in of("AllocationGranted")} == {"gpu-1"}, slurm.printed()
        assert [data.outcome for data in of("WorkersExited")] == ["finished"]
        assert jobs() == [f"gpu-1 {account or 'root'}"]
        assert "agent is ready" in cluster.cli("node", "logs", "gpu-1").stdout
        cluster.wait_for(lambda: bool(of("NodeEnded")))
        kinds = [type(data).__name__ for data in of("NodeRequested", "NodeStarted", "NodeReleased", "NodeFailed", "NodeEnded")]
        assert kinds == ["NodeRequested", "NodeStarted", "NodeReleased", "NodeEnded"]
        assert [data.announced for data in of("AgentLost")] == [True]
        assert cluster.json("node", "ls") == []
        cluster.wait_for(lambda: jobs() == [])
        left = [path for path in (place / "nodes").rglob("*") if path.name.startswith("agent.env")]
        assert left == [], "the job has taken its token away"
        cluster.check_bus()
