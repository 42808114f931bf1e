"""The tests' Slurm as a bench for provisioners: two machines, one job each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tenuto.embedded.process import choose_port
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.slurm import SlurmProvisioner, jobs
from tenuto.services.launcher.adapters.provisioners.slurm.settings import settings_of
from tests.support.provisioner_benches import POOL, Bench, order
from tests.support.slurm import Slurm


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
        conf.write_text(re.sub("SlurmctldPort=.*", f"SlurmctldPort={choose_port()}\nMessageTimeout=1", there))
        os.environ["SLURM_CONF"] = str(conf)  # the fixture puts it back
        return self.provisioner()

    def refused(self) -> Provisioner:
        return self.with_settings({"partition": "none-such"})

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        wrong = NodeType(name="wrong", settings={"constraint": "none-such"})
        return self.provisioner(), [order("gpus-1"), order("gpus-2"), order("gpus-3", wrong)]

    async def start_twice(self, wanted: Order) -> None:
        await self.provisioner().start([wanted])
        settings = settings_of(self.provisioning(), NodeType())
        options = jobs.options_of(self.cluster, POOL, wanted.node_id, str(self.directory), settings)
        script = self.directory / "twice.sh"
        script.write_text("#!/bin/bash\nsleep 600\n")
        self.slurm.run("sbatch", *options, script)
