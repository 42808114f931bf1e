"""The tests' sshd as a bench for provisioners: two hosts, which are two directories of this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import yaml

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.ssh import SshProvisioner
from tests.support.ports import refusing_port
from tests.support.provisioner_benches import POOL, Bench, order
from tests.support.sshd import Sshd


class SshBench(Bench):
    def __init__(self, directory: Path, sshd: Sshd) -> None:
        super().__init__(directory)
        self.sshd, self.secrets = sshd, directory / "secrets"
        self.secrets.mkdir(mode=0o700)
        shutil.copy(sshd.directory / "key", self.secrets / "key")
        (self.secrets / "key").chmod(0o600)
        (self.secrets / "known_hosts").write_text(sshd.known_hosts)
        self.write_hosts(self.host("h0"), self.host("h1"))

    def host(self, name: str, **more: Any) -> dict[str, Any]:
        place = str(self.directory / name)
        environment = {
            "TMPDIR": tempfile.gettempdir(),
            **more.pop("environment", {}),
        }  # sshd's sessions know nothing of the tests'
        return {
            "address": "127.0.0.1", "name": name, "port": self.sshd.port, "directory": place, "environment": environment, **more
        }  # fmt: skip

    def write_hosts(self, *hosts: Mapping[str, Any], name: str = "hosts.yaml") -> None:
        (self.secrets / name).write_text(yaml.safe_dump({"hosts": list(hosts)}))

    def with_settings(
        self, settings: dict[str, str], types: tuple[NodeType, ...] = (NodeType(),), cluster: str = "", pool: str = POOL
    ) -> SshProvisioner:
        given = {"hosts": "hosts.yaml", "key": "key", "known_hosts": "known_hosts", "python": str(self.stand_in), **settings}
        provisioning = Provisioning(provisioner="ssh", settings=given, node_types=types)
        made = SshProvisioner(cluster or self.cluster, pool, provisioning, self.secrets)
        self.opens(made)
        return made

    def make(self, cluster: str, pool: str) -> Provisioner:
        return self.with_settings({}, cluster=cluster, pool=pool)

    def broken(self) -> Provisioner:
        self.write_hosts(self.host("h0") | {"port": refusing_port()})
        return self.provisioner()

    def refused(self) -> Provisioner:
        key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
        (self.secrets / "known_hosts").write_text(f"[127.0.0.1]:{self.sshd.port} {key}")
        return self.provisioner()

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def start_twice(self, wanted: Order) -> None:
        for name in ("h0", "h1"):
            self.write_hosts(self.host(name), name=f"{name}.yaml")
            await self.with_settings({"hosts": f"{name}.yaml"}).start([wanted])
