"""What the provisioner of hosts promises beyond the contract of all provisioners, on a real sshd."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import ProvisionerError
from tenuto.services.launcher.adapters.provisioners import ssh as module
from tenuto.services.launcher.adapters.provisioners.ssh.inventory import settings_of
from tenuto.workers.agent.runtimes.private_directories import ShortDirectory
from tests.support import sshd as support
from tests.support.ports import refusing_port
from tests.support.provisioner_benches import is_live, order, until, until_printed
from tests.support.ssh_nodes import SshBench
from tests.support.sshd import Sshd

pytestmark = pytest.mark.real_part(support.lack())


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with support.sshd(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture
async def bench(tmp_path: Path, sshd: Sshd) -> AsyncIterator[SshBench]:
    found = SshBench(tmp_path, sshd)
    yield found
    await found.close()


async def test_a_host_that_does_not_answer_keeps_its_node(bench: SshBench, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    away = bench.host("h0") | {"port": refusing_port()}
    bench.write_hosts(away, bench.host("h1"))
    await provisioner.close()  # connections that are open would go on
    [kept] = await provisioner.nodes()
    assert (kept.node_id, kept.provider_id, kept.phase) == ("gpus-1", node.provider_id, "running")
    assert kept.detail.startswith("Host h0 cannot be reached")
    with pytest.raises(ProvisionerError, match="Host h0 cannot be reached") as caught:
        await provisioner.stop(kept)
    assert caught.value.kind == "unreachable"
    await provisioner.start([order("gpus-2")])
    assert {item.provider_id.partition("/")[0] for item in await until(provisioner, "running", 2)} == {"h0", "h1"}
    with pytest.raises(ProvisionerError, match="No host is free for node gpus-3: 2 of 2 hosts serve") as caught:
        await provisioner.start([order("gpus-3")])
    assert caught.value.kind == "capacity"
    # A launcher that has just begun does not know what is on that host, and waits for it; but not for ever.
    other = bench.provisioner()
    with pytest.raises(ProvisionerError, match="Host h0 cannot be reached"):
        await other.nodes()
    monkeypatch.setattr(module, "UNSEEN_SECONDS_MAX", 0.0)
    assert [item.node_id for item in await other.nodes()] == ["gpus-2"]
    bench.write_hosts(bench.host("h0"), bench.host("h1"))
    assert {item.node_id for item in await other.nodes()} == {"gpus-1", "gpus-2"}


def _short_directory(bench: SshBench) -> Path:
    """Directory in the temporary one, as a real agent takes it whose own directory is too deep for its socket."""
    [place] = [path for path in bench.directory.rglob("agent") if path.is_dir()]
    taken = ShortDirectory(place)
    taken.take(open_for_passing=False)
    (taken.path / "agent.sock").touch()
    return taken.path


async def test_an_agent_that_does_not_listen_is_killed_with_all_that_it_left(
    bench: SshBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "settings_of", lambda given: replace(settings_of(given), stop_seconds=1))
    bench.deaf("gpus-1")
    left = bench.directory / "left"
    bench.stand_in.write_text(bench.stand_in.read_text().replace("then exec", f"then setsid sleep 600 & echo $! > {left}; exec"))
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    short = _short_directory(bench)
    await provisioner.stop(node)
    [seen] = await provisioner.nodes()
    assert seen.phase == "ended" or seen.detail == "it was told to end", "on a slow machine its second may be over"
    [ended] = await until(provisioner, "ended")
    assert ended.detail.startswith("killed by signal 9")
    pids = [*bench.began("gpus-1"), int(left.read_text())]
    assert not any(is_live(pid) for pid in pids)
    assert not [path for path in (short, *bench.directory.rglob("agent")) if path.is_dir()]


async def test_without_its_keeper_a_node_is_still_seen_and_ended(bench: SshBench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    [node] = await until(provisioner, "running")
    await until_printed(provisioner, node, "ready")
    short = _short_directory(bench)
    [pid] = bench.began("gpus-1")
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    assert [item.phase for item in await provisioner.nodes()] == ["running"]
    await provisioner.stop(node)
    [ended] = await until(provisioner, "ended")
    assert ended.detail == "it was killed"
    assert not is_live(pid)
    assert not short.exists()


async def test_a_host_takes_one_agent_of_whatever_pool(bench: SshBench) -> None:
    bench.write_hosts(bench.host("h0"))
    here, there = bench.provisioner(), bench.provisioner(pool="others")
    done = await asyncio.gather(here.start([order()]), there.start([order("others-1")]), return_exceptions=True)
    [failure] = [item for item in done if item is not None]
    assert isinstance(failure, ProvisionerError)
    assert failure.kind == "capacity"
    assert len([*await here.nodes(), *await there.nodes()]) == 1


async def test_starts_beside_each_other_take_different_hosts(bench: SshBench) -> None:
    """Each asks the hosts before the other has begun anything there."""
    bench.write_hosts(bench.host("h0"), bench.host("h1"))
    provisioner = bench.provisioner()
    await asyncio.gather(provisioner.start([order("gpus-1")]), provisioner.start([order("gpus-2")]))
    found = await until(provisioner, "running", 2)
    assert {node.provider_id.partition("/")[0] for node in found} == {"h0", "h1"}


async def test_types_go_to_hosts_that_serve_them(bench: SshBench) -> None:
    bench.write_hosts(
        bench.host("big", slots=8, labels=["rack=7"], environment={"TENUTO_SHARED_DIRECTORY": "/data"}),
        bench.host("small", slots=2, types=["little", "default"]),
    )
    little, large = NodeType(name="little", slots=2), NodeType(name="large", slots=8)
    provisioner = bench.with_settings({}, (little, large))
    await provisioner.start([order("gpus-1", little), order("gpus-2", large)])
    found = {node.node_id: node for node in await until(provisioner, "running", 2)}
    assert {name: node.provider_id.partition("/")[0] for name, node in found.items()} == {"gpus-1": "small", "gpus-2": "big"}
    said = await until_printed(provisioner, found["gpus-2"], "ready\n")
    assert "TENUTO_SHARED_DIRECTORY" in await until_printed(provisioner, found["gpus-2"], "TENUTO_SHARED"), said
    with pytest.raises(ProvisionerError, match="0 of 2 hosts serve its type huge") as caught:
        await provisioner.start([order("gpus-3", NodeType(name="huge", slots=16))])
    assert caught.value.kind == "refused"


async def test_check_names_each_host_and_what_it_lacks(bench: SshBench) -> None:
    bench.write_hosts(
        bench.host("well"), bench.host("away") | {"port": refusing_port()}, bench.host("bare", python="/nowhere/python"),
        bench.host("stranger", user="nobody"), bench.host("full", directory="/proc/nothing"),
    )  # fmt: skip
    found = await bench.with_settings({}).check()
    problems = {finding.what.partition(":")[0]: finding.problem for finding in found}
    assert problems["host well"] == ""
    assert "cannot be reached" in problems["host away"]
    assert "cannot run Python as it should" in problems["host bare"]
    assert "/nowhere/python" in problems["host bare"]
    assert problems["host stranger"].startswith("Host stranger does not let nobody in by the key key")
    assert problems["host full"].startswith("Host full refuses")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hosts: [", "is no YAML in line"),
        ("hosts: [{address: a, address: b}]", "is no YAML in line 1"),
        ("hosts: [{address: off}, {address: off}]", "two hosts are named off"),
        (f"hosts: {'9' * 5000}", "is no YAML"),
        ("hosts: []", "is wrong at hosts"),
        ("hosts: [{address: 10.0.0.1, colour: red}]", "is wrong at hosts.0.colour"),
        ("hosts: [{address: '-oProxyCommand=id'}]", "is wrong at hosts.0.address"),
        ("hosts: [{address: a}, {address: a}]", "two hosts are named a"),
        ("-----BEGIN SECRET-----\nabcdef", "hosts.yaml is wrong at its top"),
    ],
)
async def test_lists_that_are_wrong_are_told_without_quoting_them(bench: SshBench, text: str, words: str) -> None:
    (bench.secrets / "hosts.yaml").write_text(text)
    with pytest.raises(ProvisionerError) as caught:
        await bench.provisioner().nodes()
    assert words in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert caught.value.kind == "refused"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"key": "none-such"}, "File none-such of the launcher's secrets cannot be read"),
        ({"key": "known_hosts"}, "File known_hosts cannot be used"),
        ({"known_hosts": "none-such"}, "File none-such"),
        ({"hosts": "../hosts.yaml"}, "without a path"),
        ({"hosts": "none-such"}, "The list of hosts none-such cannot be read"),
        ({"password": "x"}, "Setting password is unknown"),
        ({"python": "python3; id"}, "Setting python"),
        ({"stop_seconds": "1"}, "from 20 to 3600"),
    ],
)
async def test_settings_that_are_wrong(bench: SshBench, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ProvisionerError) as caught:
        await bench.with_settings(settings).start([order()])
    assert words in str(caught.value)
    assert caught.value.kind == "refused"


async def test_one_machine_by_two_addresses_is_one_host(bench: SshBench) -> None:
    """Each would show the other's node as its own, and the launcher would end both as the second of one name, again and again."""
    bench.write_hosts(bench.host("h0"), bench.host("h0") | {"name": "again"})
    provisioner = bench.provisioner()
    findings = {finding.what: finding.problem for finding in await provisioner.check()}
    assert "one directory for agents with host h0" in findings["host again"]
    assert findings["type default: 1 hosts"] == ""
    await provisioner.start([order()])
    await until(provisioner, "running")
    assert [node.provider_id.partition("/")[0] for node in await provisioner.nodes()] == ["h0"]
    with pytest.raises(ProvisionerError, match="1 of 2 hosts serve its type") as caught:
        await provisioner.start([order("gpus-2")])
    assert caught.value.kind == "capacity"
