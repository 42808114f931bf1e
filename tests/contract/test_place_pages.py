"""The pages of AWS, Google Cloud and SSH, followed: what they have readers run is run, the pool that they make is checked and
starts a node, and the rights that they list are those that it needs. The clouds are the tests' stand-ins, sshd is real."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tenuto.services.launcher.adapters.provisioners import Finding
from tenuto.services.launcher.adapters.provisioners.aws import AwsProvisioner
from tenuto.services.launcher.adapters.provisioners.gcp import GcpProvisioner
from tests.support import guide_pages, sshd
from tests.support.compute_engine import ComputeEngine
from tests.support.compute_engine_rules import PROJECT
from tests.support.ec2 import CREDENTIALS, client, linux_image, running
from tests.support.provisioner_benches import order, until

pytestmark = pytest.mark.xdist_group("provisioners")
SECRETS = ".tenuto/provisioners"
"""The launcher's directory of secrets in the home of who follows a page."""


def problems(found: Sequence[Finding]) -> list[str]:
    return [f"{finding.what}: {finding.problem}" for finding in found if finding.problem]


async def test_the_page_of_aws(tmp_path: Path) -> None:
    (tmp_path / "aws-keys").write_text(CREDENTIALS)
    guide_pages.run(guide_pages.block("aws.md", "sh", "install -m 600 aws-keys"), tmp_path, os.environ["PATH"])
    zones = {item["AvailabilityZone"]: item["SubnetId"] for item in client().describe_subnets()["Subnets"]}
    subnets = [zones["us-east-1a"], zones["us-east-1b"]]
    [group, *_] = [item["GroupId"] for item in client().describe_security_groups()["SecurityGroups"]]
    key = f"key-{tmp_path.name}-{os.getpid()}"
    client().create_key_pair(KeyName=key)
    async with running() as ec2:
        own = {"subnets": ",".join(subnets), "security_groups": group, "endpoint_url": ec2.url, "key_name": key}
        pool = guide_pages.pool_of("aws.md", image=linux_image(), **own)
        made = AwsProvisioner(ec2.cluster, "gpus", pool, tmp_path / SECRETS)
        assert problems(await made.check()) == []
        assert ec2.requests == {}, "a check starts nothing"
        await made.start([order("gpus-1")])
        [asked] = ec2.requests.values()
        assert (asked["InstanceType"], asked["InstanceMarketOptions.MarketType"]) == ("g5.xlarge", "spot")
        [node] = await until(made, "running")
        await made.logs(node, 100)
        await made.stop(node)
        await made.close()
        used = {f"ec2:{action}" for action in ec2.asked if action and action != "GetCallerIdentity"}  # which each account may ask
    policy = json.loads(guide_pages.block("aws.md", "json", '"Statement"'))
    actions = [item["Action"] for item in policy["Statement"]]
    allowed = {name for item in actions for name in ([item] if isinstance(item, str) else item)}
    assert used | {"ec2:CreateTags"} == allowed, "the rights of the page are those that are used, and no more"


GCLOUD = """#!/bin/sh
printf '%s\\n' "$*" >>{log}
case "$*" in *"keys create"*) cp {key} "$5" ;; esac
"""
"""What the page has it do is Google's; it writes keys, and is asked for nothing else that is used here."""


async def test_the_page_of_google_cloud(tmp_path: Path) -> None:
    engine = ComputeEngine(operation_seconds=0.0)
    await engine.start()
    try:
        programs, key, log = tmp_path / "bin", tmp_path / "key.json", tmp_path / "asked"
        programs.mkdir()
        key.write_text(engine.key_file())
        (programs / "gcloud").write_text(GCLOUD.format(log=log, key=key))
        (programs / "gcloud").chmod(0o755)
        script = guide_pages.block("gcp.md", "sh", "cat > role.yaml")
        guide_pages.run(script, tmp_path, f"{programs}:{os.environ['PATH']}")
        role = yaml.safe_load((tmp_path / "role.yaml").read_text())
        engine.rights = set(role["includedPermissions"])
        assert "iam roles create tenutoLauncher" in log.read_text()
        assert (tmp_path / SECRETS / "gcp.json").stat().st_mode & 0o777 == 0o600

        pool = guide_pages.pool_of("gcp.md", project=PROJECT, endpoint=engine.url)
        made = GcpProvisioner("cluster-1", "cpus", pool, tmp_path / SECRETS)
        assert problems(await made.check()) == []
        assert engine.names() == [], "a check starts nothing"
        await made.start([order("cpus-1", pool.node_types[0])])
        [node] = await until(made, "running")
        await made.logs(node, 100)
        await made.stop(node)
        await made.close()
        used = {permission for asked in engine.asked for permission in _permissions(asked)}
        assert used - set(role["includedPermissions"]) == set()
        unused = set(role["includedPermissions"]) - used
        for part in ("insert", "settings"):
            unused -= BESIDE[part]
        assert unused == set(), "rights that nothing asks for"
    finally:
        await engine.stop()


BESIDE: Mapping[str, set[str]] = {
    "insert": {
        f"compute.{name}"
        for name in (
            "instances.create", "instances.setLabels", "instances.setMetadata", "disks.create", "images.useReadOnly",
            "subnetworks.use", "subnetworks.useExternalIp",
        )
    },
    "settings": {
        f"compute.{name}"
        for name in (
            "instances.setServiceAccount", "instances.setTags", "acceleratorTypes.get", "diskTypes.get", "images.get",
            "subnetworks.get", "instances.getGuestAttributes", "instances.get",
        )
    },
}  # fmt: skip
"""Rights by Google's documentation of what is asked for: those of starting an instance, and those that other settings and other
answers need."""


def _permissions(asked: str) -> set[str]:
    method, _, path = asked.partition(" ")
    if path.endswith("testIamPermissions"):
        return set()
    if method == "POST":
        return set(BESIDE["insert"])
    if path.startswith("/compute/v1/projects/") and path.count("/") == 4:
        return {"compute.projects.get"}
    if "/aggregated/instances" in path:
        return {"compute.instances.list"}
    if method == "DELETE":
        return {"compute.instances.delete"}
    if path.endswith("/serialPort"):
        return {"compute.instances.getSerialPortOutput"}
    if path.endswith("/getGuestAttributes"):
        return {"compute.instances.getGuestAttributes"}
    if "/images/family/" in path:
        return {"compute.images.getFromFamily"}
    resource = path.split("/")[-2]
    return {f"compute.{'zoneOperations' if resource == 'operations' else resource}.get"}


SSHD = """
HostKey {place}/host_key
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
PidFile none
"""
MACHINES = """
ip link set lo up
for address in 10.0.0.1 10.0.0.11 10.0.0.12; do ip address add $address/32 dev lo; done
mkdir -p -m 755 /run/sshd
for address in 10.0.0.11 10.0.0.12; do
    command="{sshd} -D -e -f {place}/sshd_config -o ListenAddress=$address"
    unshare --mount sh -c "mount --bind {place}/passwd-$address /etc/passwd; exec $command" 2>{place}/sshd-$address.log &
done
for address in 10.0.0.11 10.0.0.12; do
    until grep -q 'Server listening' {place}/sshd-$address.log; do kill -0 $(jobs -p); sleep 0.05; done
done
eval "$(ssh-agent)" >/dev/null
trap 'kill $(jobs -p) $SSH_AGENT_PID' EXIT
ssh-add -q {place}/first_key
"""
"""Machines of the page, in a namespace of its addresses: on each an account `tenuto` with a home of its own, which its owner
enters already, by another key."""


@pytest.mark.real_part(sshd.lack())
def test_the_page_of_ssh(tmp_path: Path) -> None:
    """Its commands make the launcher's files; the pool that its last command makes is checked, and starts a node, in a process
    among those machines. Tenuto is not installed there by pip, which would ask the internet: the Python of the tests has it."""
    if why := guide_pages.no_namespaces():
        pytest.skip(why)
    place, home = tmp_path / "place", tmp_path / "home"
    place.mkdir()
    home.mkdir(mode=0o700)
    for name in ("host_key", "first_key"):
        guide_pages.run(f"ssh-keygen -q -t ed25519 -N '' -f {place / name}", tmp_path, os.environ["PATH"])
    accounts = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("tenuto:")]
    for address in ("10.0.0.11", "10.0.0.12"):
        machine = tmp_path / address
        (machine / ".ssh").mkdir(parents=True, mode=0o700)
        shutil.copy(place / "first_key.pub", machine / ".ssh/authorized_keys")
        (place / f"passwd-{address}").write_text("\n".join([f"tenuto:x:0:0::{machine}:/bin/sh", *accounts, ""]))
    (place / "sshd_config").write_text(SSHD.format(place=place))
    pool = guide_pages.pool_of("ssh.md", install="", install_extras="", python=sys.executable)
    (place / "pool.json").write_text(pool.model_dump_json())
    hosts = guide_pages.block("ssh.md", "yaml", "hosts:")
    script = "\n".join((
        MACHINES.format(place=place, sshd=sshd.PROGRAM),
        guide_pages.block("ssh.md", "sh", "ssh-copy-id"),  # it ends in the directory of secrets
        f"cat >hosts.yaml <<'END'\n{hosts}END",
        f"{sys.executable} {Path(__file__).parents[1] / 'support/ssh_page_node.py'} {place}/pool.json .",
    ))  # fmt: skip
    said = guide_pages.run(script, home, os.environ["PATH"], *guide_pages.NAMESPACES, PYTHONPATH=str(Path(__file__).parents[2]))
    assert json.loads(said.splitlines()[-1]) == {"problems": [], "phases": ["running", "ended"], "hosts": ["gpu1", "gpu2"]}
    assert (home / SECRETS / "known_hosts").read_text().count("ssh-ed25519") == 2
    assert len((tmp_path / "10.0.0.12/.ssh/authorized_keys").read_text().splitlines()) == 2
