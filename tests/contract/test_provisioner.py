"""What every provisioner promises, with real providers (Slurm's daemons, sshd, Kubernetes), and with stand-ins for others: the
tests' API servers of Kubernetes and Compute Engine, and moto."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tests.support import kubernetes_real
from tests.support import slurm as slurm_support
from tests.support import sshd as sshd_support
from tests.support.aws_bench import AwsBench
from tests.support.example_plugins import example_plugins, importable  # noqa: F401 - a fixture
from tests.support.gcp_bench import GcpBench
from tests.support.kubernetes_bench import KubernetesBench, RealKubernetesBench
from tests.support.plugin_nodes import PluginBench
from tests.support.provisioner_benches import SECRET, Bench, is_live, order, until, until_over, until_printed
from tests.support.slurm import Slurm
from tests.support.slurm_nodes import RestBench, SlurmBench
from tests.support.ssh_nodes import SshBench
from tests.support.sshd import Sshd

SLURM = pytest.mark.real_part(slurm_support.lack())
REST = pytest.mark.real_part(slurm_support.rest_lack())
SSH = pytest.mark.real_part(sshd_support.lack())
STAND_INS = {"kubernetes": KubernetesBench, "aws": AwsBench, "gcp": GcpBench}
pytestmark = pytest.mark.xdist_group("provisioners")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    with slurm_support.slurm() as found:
        yield found


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd_support.sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=SLURM),
        pytest.param("slurmrestd", marks=REST),
        pytest.param("ssh", marks=SSH),
        *STAND_INS,
        "plug-in",
        pytest.param("kubernetes-real", marks=kubernetes_real.MARKS),
    ]
)
async def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made: Bench
    if request.param in STAND_INS:
        made = await STAND_INS[request.param].begun(tmp_path)
        yield made
        await made.close()
        return
    if request.param == "kubernetes-real":
        made = await asyncio.to_thread(RealKubernetesBench.begun, tmp_path, request.getfixturevalue("kubernetes"))
        yield made
        await made.close()
        return
    if request.param == "plug-in":
        with importable(request.getfixturevalue("example_plugins")):
            made = PluginBench(tmp_path)
            yield made
            await made.close()
        return
    if request.param == "ssh":
        made = SshBench(tmp_path, request.getfixturevalue("sshd"))
        yield made
        await made.close()
        return
    slurm: Slurm = request.getfixturevalue("slurm")
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.environment[name])
    if request.param == "slurmrestd":  # in a directory that another account can enter, without Slurm's commands
        directory = slurm.directory / tmp_path.name
        directory.mkdir()
        made = RestBench(directory, slurm, monkeypatch)
        monkeypatch.setenv("PATH", str(directory))
    else:
        made = SlurmBench(tmp_path, slurm)
    yield made
    await made.close()
    slurm.empty()


async def test_a_node_from_its_start_to_its_end(bench: Bench) -> None:
    provisioner = bench.provisioner()
    assert await provisioner.nodes() == []
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    assert node.node_id == "gpus-1"
    said = await until_printed(provisioner, node, "TENUTO_JOIN_TOKEN")
    assert "TENUTO_AGENT_DIRECTORY TENUTO_AGENT_ID TENUTO_AGENT_LABELS TENUTO_CPU_SLOTS" in said
    assert "SLURM_" not in said
    assert (await provisioner.logs(node, 1)).count("\n") == 1
    [pid] = bench.began("gpus-1")
    await provisioner.stop(node)
    ended = await until_over(provisioner, node)
    assert not is_live(pid)
    if ended is not None:
        said = await provisioner.logs(ended, 10)
        # One that is removed in between has no log any more.
        gone = not said and ended.node_id not in [item.node_id for item in await provisioner.nodes()]
        assert "leaves" in said or gone or (not said and not bench.keeps_logs)
    await provisioner.stop(ended or node)


async def test_a_second_start_is_no_second_node(bench: Bench) -> None:
    provisioner, other = bench.provisioner(), bench.provisioner()
    await provisioner.start([order()])
    await other.start([order()])
    [node] = await until(provisioner, "running")
    await other.start([order(), order("gpus-2")])
    assert {item.node_id for item in await until(provisioner, "running", 2)} == {"gpus-1", "gpus-2"}
    assert node.provider_id in {item.provider_id for item in await other.nodes()}
    await until_printed(provisioner, node, "ready")
    assert len(bench.began("gpus-1")) == 1


async def test_of_a_group_all_are_started_or_none_is(bench: Bench) -> None:
    provisioner, group = bench.too_many()
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start(group)
    assert caught.value.kind in ("capacity", "quota", "refused")
    assert SECRET not in str(caught.value)
    live = [node for node in await provisioner.nodes() if node.phase != "ended"]
    for node in live:  # a provider may need a moment for what it was told to end
        await until_over(provisioner, node)
        assert node.node_id in {item.node_id for item in group}
    assert not any(is_live(pid) for item in group for pid in bench.began(item.node_id))


async def test_two_of_one_id_are_both_seen_and_one_can_be_ended(bench: Bench) -> None:
    await bench.start_twice(order())
    provisioner = bench.provisioner()
    first, second = await until(provisioner, "running", 2)
    assert first.node_id == second.node_id == "gpus-1"
    assert first.provider_id != second.provider_id
    await provisioner.stop(second)
    await until_over(provisioner, second)
    [left] = await until(provisioner, "running")
    assert left.provider_id == first.provider_id


async def test_pools_and_clusters_do_not_meet(bench: Bench) -> None:
    here, there, beside = bench.provisioner(), bench.provisioner("cluster-2"), bench.provisioner(pool="others")
    await here.start([order()])
    await there.start([order()])
    assert await beside.nodes() == []
    [mine] = await until(here, "running")
    [yours] = await until(there, "running")
    assert mine.provider_id != yours.provider_id
    await here.stop(mine)
    await until_over(here, mine)
    assert [node.phase for node in await there.nodes()] == ["running"]


async def test_one_that_ended_is_listed_with_its_words_and_never_started_again(bench: Bench) -> None:
    provisioner = bench.provisioner()
    bench.end("gpus-1", 3)
    await provisioner.start([order()])
    [node] = await until(provisioner, "ended")
    assert "the agent's last words" in node.detail
    assert "the agent's last words" in await provisioner.logs(node, 1)
    await provisioner.start([order()])
    assert [item.phase for item in await provisioner.nodes()] == ["ended"]
    assert len(bench.began("gpus-1")) == 1


async def test_the_token_is_shown_to_nobody(bench: Bench) -> None:
    provisioner, seen, done = bench.provisioner(), set[str](), asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            seen.update(where for where, words in bench.words_of_others() if SECRET in words)
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    done.set()
    await looking
    assert seen == set()
    left = [path for path, words in bench.files() if SECRET in words]
    assert left == [], "nothing keeps it once the agent has it"
    assert SECRET not in repr(order()) + repr(node)


async def test_a_node_that_was_stopped_before_it_began_never_begins(bench: Bench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await provisioner.nodes()
    await provisioner.stop(node)
    await until_over(provisioner, node)
    assert not any(is_live(pid) for pid in bench.began("gpus-1"))


async def test_a_check_finds_nothing_wrong_where_all_is_well_and_starts_nothing(bench: Bench) -> None:
    provisioner = bench.provisioner()
    found = await provisioner.check()
    assert [finding for finding in found if finding.problem] == []
    assert len(found) >= 3
    assert await provisioner.nodes() == []


async def test_what_is_refused(bench: Bench) -> None:
    provisioner = bench.refused()
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order()])
    assert caught.value.kind == "refused"
    assert str(caught.value).endswith(".")
    assert SECRET not in str(caught.value)
    assert [finding.problem for finding in await provisioner.check() if finding.problem]


async def test_a_provider_that_cannot_be_reached(bench: Bench) -> None:
    provisioner = bench.broken()
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.nodes()
    assert caught.value.kind == "unreachable"
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order()])
    assert caught.value.kind == "unreachable"
    assert SECRET not in str(caught.value)
    assert [finding.problem for finding in await provisioner.check() if finding.problem]
    assert os.environ.get("TENUTO_JOIN_TOKEN") is None
