"""The tests' Slurm as a bench for provisioners: two machines, one job each."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.by_commands import options_of
from tenuto.services.launcher.adapters.provisioners.slurm.controller import JobSubmission
from tenuto.services.launcher.adapters.provisioners.slurm.node_directories import NodeDirectories
from tenuto.services.launcher.adapters.provisioners.slurm.settings import settings_of
from tests.support.ports import refusing_port
from tests.support.provisioner_benches import POOL, Bench, order
from tests.support.slurm import REST_ACCOUNT, Slurm, ordinary_user


class SlurmBench(Bench):
    def __init__(self, directory: Path, slurm: Slurm) -> None:
        super().__init__(directory)
        self.slurm = slurm

    def provisioning(self, settings: dict[str, str] | None = None) -> Provisioning:
        given = {
            "directory": str(self.directory / "nodes"), "python": str(self.stand_in), "time": "20", "extra": "--exclusive",
            **(settings or {}),
        }  # fmt: skip
        return Provisioning(provisioner="slurm", settings=given)

    def make(self, cluster: str, pool: str) -> Provisioner:
        return SlurmProvisioner(cluster, pool, self.provisioning())

    def with_settings(self, settings: dict[str, str]) -> Provisioner:
        return self.opens(SlurmProvisioner(self.cluster, POOL, self.provisioning(settings)))

    def broken(self) -> Provisioner:
        conf = self.directory / "slurm.conf"
        there = Path(self.slurm.environment["SLURM_CONF"]).read_text()
        conf.write_text(re.sub("SlurmctldPort=.*", f"SlurmctldPort={refusing_port()}\nMessageTimeout=1", there))
        os.environ["SLURM_CONF"] = str(conf)  # the fixture puts it back
        return self.provisioner()

    def refused(self) -> Provisioner:
        return self.with_settings({"partition": "none-such"})

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        wrong = NodeType(name="wrong", settings={"constraint": "none-such"})
        return self.provisioner(), [order("gpus-1"), order("gpus-2"), order("gpus-3", wrong)]

    async def start_twice(self, wanted: Order) -> None:
        await self.provisioner().start([wanted])
        self.submit(wanted.node_id, "#!/bin/bash\nsleep 600\n")

    def submit(self, node_id: str, script: str, output: str = "/dev/null") -> None:
        """A job of a node, past the provisioner."""
        row = jobs.Row((node_id,))
        comment = jobs.comment_of(self.cluster, POOL, row)
        wanted = JobSubmission(row.name, comment, output, script, settings_of(self.provisioning(), NodeType()))
        file = self.directory / "job.sh"
        file.write_text(script)
        self.slurm.run("sbatch", *options_of(wanted), file)


class RestBench(SlurmBench):
    """By its REST daemon. Its jobs are of another account than the tests', which is given what the provisioner makes for them."""

    def __init__(self, directory: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(directory, slurm)
        self.secrets = slurm.directory / f"secrets-{self.cluster}"
        self.secrets.mkdir(mode=0o700)
        (self.secrets / "slurm.jwt").write_text(slurm.token())
        if not ordinary_user():  # the tests' Python is root's alone
            self.stand_in.write_text(self.stand_in.read_text().replace(sys.executable, "/usr/bin/python3"))
        shutil.chown(directory, REST_ACCOUNT)
        self.setup = directory / "temporary.sh"
        self.setup.write_text(f"export TMPDIR={directory}\n")  # the daemon does not hand down that of the tests
        prepare = NodeDirectories.prepare

        def prepare_for_jobs(places: NodeDirectories, texts: Mapping[str, str]) -> None:
            prepare(places, texts)
            for path in (directory / "nodes", *(directory / "nodes").rglob("*")):
                shutil.chown(path, REST_ACCOUNT)

        monkeypatch.setattr(NodeDirectories, "prepare", prepare_for_jobs)

    def provisioning(self, settings: dict[str, str] | None = None) -> Provisioning:
        own = {"restd": f"http+unix://{self.slurm.rest()}", "restd_token": "slurm.jwt", "setup": str(self.setup)}
        return super().provisioning({**own, **(settings or {})})

    def make(self, cluster: str, pool: str) -> Provisioner:
        return SlurmProvisioner(cluster, pool, self.provisioning(), self.secrets)

    def with_settings(self, settings: dict[str, str]) -> Provisioner:
        return self.opens(SlurmProvisioner(self.cluster, POOL, self.provisioning(settings), self.secrets))

    def broken(self) -> Provisioner:
        return self.with_settings({"restd": "http+unix:///nowhere/socket"})

    def submit(self, node_id: str, script: str, output: str = "/dev/null") -> None:
        file = self.directory / "job.sh"
        file.write_text(script)
        row = jobs.Row((node_id,))
        wanted = JobSubmission(
            row.name, jobs.comment_of(self.cluster, POOL, row), output, script, settings_of(self.provisioning(), NodeType())
        )
        somebody = ("setpriv", f"--reuid={REST_ACCOUNT}", "--regid=nogroup", "--clear-groups")
        self.slurm.run(*somebody, "sbatch", *options_of(wanted), file)
