"""The provisioner of examples/plug-ins as a bench, opened as the launcher opens it: nodes are processes of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner, ProvisionerError, open_provisioner
from tests.support.provisioner_benches import POOL, Bench, order
from tests.support.waiting import until_async


class PluginBench(Bench):
    """Under `importable`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._nodes = directory / "nodes"
        self._nodes.mkdir()

    def make(self, cluster: str, pool: str, **settings: str) -> Provisioner:
        given = {"directory": str(self._nodes), "python": str(self.stand_in), "processes_max": "2", **settings}
        return open_provisioner(cluster, pool, Provisioning(provisioner="local", settings=given))

    def broken(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, directory=str(self.directory / "none")))

    def refused(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, python=str(self.directory / "none")))

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def close(self) -> None:
        await super().close()
        for made in self.opened:
            with contextlib.suppress(ProvisionerError):  # the broken one
                for node in await made.nodes():
                    await made.stop(node)
                await until_async(made.nodes, lambda nodes: all(node.phase == "ended" for node in nodes))

    async def start_twice(self, wanted: Order) -> None:
        """A second directory of that name cannot be made, so somebody gave the first one another."""
        provisioner, here = self.provisioner(), self._nodes / self.cluster / POOL / wanted.node_id
        await provisioner.start([wanted])

        async def began() -> bool:
            return (here / "pid").exists()

        await until_async(began, bool)
        here.rename(here.with_name(f"{here.name}~before"))
        await provisioner.start([wanted])
