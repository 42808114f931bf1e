"""What the provisioner of Slurm's jobs promises beyond the contract of all provisioners, on real daemons of Slurm."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners import slurm as module
from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.settings import settings_of
from tests.support import slurm as support
from tests.support.provisioner_benches import POOL, is_live, order, until, until_printed
from tests.support.slurm import Slurm
from tests.support.slurm_nodes import SlurmBench

pytestmark = [pytest.mark.timeout(300), pytest.mark.real_part(support.lack())]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := support.why_not():
        pytest.skip(reason)
    with support.slurm() as found:
        yield found


@pytest.fixture
async def bench(tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmBench]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    found = SlurmBench(tmp_path, slurm)
    yield found
    await found.close()
    slurm.empty()


def tokens(bench: SlurmBench) -> list[Path]:
    return sorted(path for path in bench.directory.rglob("agent.env*") if path.is_file())


async def test_a_node_that_waits_says_why_and_takes_a_newer_token(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order(f"{POOL}-{number}") for number in (1, 2, 3)])
    running = await until(provisioner, "running", 2)
    [waiting] = await until(provisioner, "pending")
    assert waiting.detail.startswith("pending")
    for node in running:
        await until_printed(provisioner, node, "ready")
    [file] = tokens(bench)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    await provisioner.start([order(waiting.node_id, secret="a-newer-one")])
    assert f"TENUTO_JOIN_TOKEN=a-newer-one-{waiting.node_id}\n" in file.read_text()
    assert len(await provisioner.nodes()) == 3
    await provisioner.stop(waiting)
    await until(provisioner, "ended")
    assert tokens(bench) == []
    assert bench.began(waiting.node_id) == []


async def test_a_job_without_its_token_ends_at_once(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    [log] = bench.directory.rglob(f"{node.provider_id}.log")
    options = settings_of(bench.provisioning(), NodeType())
    script = bench.directory / "job.sh"
    script.write_text(jobs.script_of(node.node_id, str(log.with_name("agent.env")), options))
    bench.slurm.run("sbatch", *jobs.options_of(bench.cluster, POOL, node.node_id, str(log.parent), options), script)
    [ended] = await until(provisioner, "ended")
    assert "another job is this node, or the node was given back" in ended.detail
    assert len(bench.began("gpus-1")) == 1


async def _none() -> list[object]:
    return []


async def test_the_agents_own_directory_goes_with_its_job(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = bench.directory / "setup.sh"
    setup.write_text(
        f"export TMPDIR={bench.directory} TENUTO_SHARED_DIRECTORY=/data\n"
        f"mkdir {bench.directory}/tenuto-$(id -u)-$node-$SLURM_JOB_ID\n"
    )
    provisioner = bench.with_settings({"setup": str(setup)})
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "TENUTO_SHARED_DIRECTORY")
    assert list(bench.directory.glob("tenuto-*"))
    bench.end("gpus-1", 0)
    [ended] = await until(provisioner, "ended")
    assert ended.detail == "completed"
    assert not list(bench.directory.glob("tenuto-*"))
    old = time.time() - 8 * 86_400
    [place] = {path.parent for path in bench.directory.rglob("*.log")}
    for path in (*place.iterdir(), place):
        os.utime(path, (old, old))
    other = bench.opens(SlurmProvisioner(bench.cluster, POOL, bench.provisioning()))
    await other.start([order("gpus-2")])
    assert place.exists(), "Slurm still knows it"
    monkeypatch.setattr(module.SlurmProvisioner, "_jobs", lambda self: _none())
    await other.start([order("gpus-2")])
    assert not place.exists()


async def test_a_job_that_is_ended_while_it_runs_ends_its_agent(bench: SlurmBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    bench.slurm.run("scancel", node.provider_id)
    [ended] = await until(provisioner, "ended")
    assert ended.detail.startswith("cancelled")
    assert not any(is_live(pid) for pid in bench.began("gpus-1"))


async def test_a_node_that_is_still_ending_can_be_told_again(bench: SlurmBench) -> None:
    bench.deaf("gpus-1")
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    for _ in range(3):
        await provisioner.stop(node)
        [seen] = await provisioner.nodes()
        assert seen.phase == "running", "it may still cost something"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition": "none-such"}, "There is no partition none-such: set partition to one of main."),
        ({"time": "2:00:00"}, "The default partition allows 1:00:00 at most, so such jobs would wait for ever"),
        ({"time": "5"}, "Agents begin nothing in their last 300 s"),
        ({"gres": "gpu:4"}, "No machine of the partition has gpu: set gres to what there is (none)."),
        ({"constraint": "a100"}, "Slurm would not take such a job"),
        ({"directory": "/proc/nodes"}, "The launcher cannot write there"),
        ({"extra": "--uid=0"}, "Setting extra may not have --uid"),
    ],
)
async def test_check_finds_what_is_wrong_and_submits_nothing(bench: SlurmBench, settings: dict[str, str], words: str) -> None:
    problems = [finding.problem for finding in await bench.with_settings(settings).check() if finding.problem]
    assert any(problem.startswith(words) for problem in problems), problems
    assert bench.slurm.run("squeue", "--noheader") == ""


async def test_without_slurm_it_says_what_to_install(bench: SlurmBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.directory))
    provisioner = SlurmProvisioner("c", POOL, Provisioning(provisioner="slurm", settings={"directory": str(bench.directory)}))
    with pytest.raises(
        ProvisionerError, match="There is no squeue where the launcher runs: install Slurm's commands there"
    ) as caught:
        await provisioner.start([order(node_type=NodeType())])
    assert caught.value.kind == "refused"
    assert [finding.problem for finding in await provisioner.check() if "There is no sbatch" in finding.problem]
