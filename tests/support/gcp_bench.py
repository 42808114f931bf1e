"""The world of Compute Engine in which provisioners are tried: its stand-in, with machines that run startup scripts as processes
of this one, each with a metadata server of its own."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.cloud import compute_v1

from tenuto.kernel.tasks import stop_task
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.gcp import GcpProvisioner
from tests.support.cloud_machine import Machine
from tests.support.compute_engine import ComputeEngine
from tests.support.compute_engine_rules import PROJECT, ZONES
from tests.support.metadata_server import MetadataServer
from tests.support.ports import closed_port
from tests.support.provisioner_benches import POOL, Bench, order

SHUTDOWN_SECONDS_MAX = 20.0
KEY = "launcher.json"


class Machines:
    """Instances of the stand-in as processes."""

    def __init__(self, engine: ComputeEngine, directory: Path, **environment: str) -> None:
        self._engine, self._directory, self._environment = engine, directory, environment
        self._machines: dict[tuple[str, str], Machine] = {}
        self._services: dict[tuple[str, str], MetadataServer] = {}
        self._watches: list[asyncio.Task[None]] = []
        engine.boots, engine.shuts, engine.console = self.boot, self.shut, self.console

    async def boot(self, item: compute_v1.Instance) -> None:
        place = _place(item)
        directory = self._directory.joinpath(*place)
        machine, service = Machine(directory), MetadataServer()
        self._machines[place], self._services[place] = machine, service
        await service.start()
        self._engine.guest[item.name] = service.guest
        [script] = [entry.value for entry in item.metadata.items if entry.key == "startup-script"]
        assert "directory=/var/lib/tenuto\n" in script
        script = script.replace("directory=/var/lib/tenuto\n", f"directory={directory}/disk\n")
        await machine.boot(script, TENUTO_END_NOTICE_URL=service.url, **self._environment)
        self._watches.append(asyncio.create_task(self._watch(place, machine)))

    async def _watch(self, place: tuple[str, str], machine: Machine) -> None:
        assert machine.process is not None
        await machine.process.wait()
        self._engine.turned_off(*place)

    async def shut(self, item: compute_v1.Instance) -> None:
        """As a shutdown does: SIGTERM, and what is left after some time is ended."""
        await self._end(_place(item), signal.SIGTERM)

    async def _end(self, place: tuple[str, str], number: int) -> None:
        machine = self._machines.get(place)
        if machine is None or machine.process is None or machine.process.returncode is not None:
            return
        machine.process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(machine.process.wait(), SHUTDOWN_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(machine.process.pid, signal.SIGKILL)

    async def preempt(self, name: str) -> None:
        """Notice, then, when the machine has turned itself off, what Google does with a preempted instance."""
        [place] = [place for place in self._machines if place[1] == name]
        await self._services[place].put("instance/preempted", "TRUE")
        process = self._machines[place].process
        assert process is not None
        await process.wait()
        self._engine.instances.pop(place, None)

    def console(self, item: compute_v1.Instance) -> str:
        machine = self._machines.get(_place(item))
        return machine.console() if machine else ""

    def said(self) -> str:
        return "\n".join(machine.console() for machine in self._machines.values())

    async def close(self) -> None:
        for place in self._machines:
            await self._end(place, signal.SIGKILL)
        for task in self._watches:
            await stop_task(task)
        for service in self._services.values():
            await service.stop()


def _place(item: compute_v1.Instance) -> tuple[str, str]:
    return item.zone.rpartition("/")[2], item.name


def settings_of(engine: ComputeEngine, **settings: str) -> dict[str, str]:
    given = {
        "project": PROJECT, "credentials_file": KEY, "endpoint": engine.url, "zones": ZONES[0], "machine_type": "n1-standard-4",
        "image_family": "tenuto", "user": getpass.getuser(),
    }  # fmt: skip
    return {key: value for key, value in {**given, **settings}.items() if value}


class GcpBench(Bench):
    """Made by `begun`."""

    def __init__(self, directory: Path, engine: ComputeEngine) -> None:
        super().__init__(directory)
        self.engine = engine
        (directory / KEY).write_text(engine.key_file())
        (directory / KEY).chmod(0o600)
        self.machines = Machines(engine, directory / "machines")

    @classmethod
    async def begun(cls, directory: Path, **engine: object) -> GcpBench:
        made = ComputeEngine(**engine)  # type: ignore[arg-type]
        await made.start()
        return cls(directory, made)

    def make(
        self, cluster: str, pool: str, types: Sequence[NodeType] = (NodeType(),), settings: Mapping[str, str] | None = None
    ) -> Provisioner:
        given = settings_of(self.engine, python=str(self.stand_in), **(settings or {}))
        provisioning = Provisioning(provisioner="gcp", settings=given, node_types=tuple(types))
        return GcpProvisioner(cluster, pool, provisioning, self.directory)

    def having(self, *types: NodeType, **settings: str) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, types or (NodeType(),), settings))

    def broken(self) -> Provisioner:
        with closed_port() as port:
            return self.having(endpoint=f"http://127.0.0.1:{port}")

    def refused(self) -> Provisioner:
        return self.having(machine_type="none-such")

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        self.engine.room[ZONES[0]] = 2
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def start_twice(self, wanted: Order) -> None:
        """Google keeps a second one of that name from starting in a zone, so there is one in another."""
        await self.provisioner().start([wanted])
        [item] = self.engine.instances.values()
        copy = compute_v1.Instance(item)
        copy.zone = item.zone.replace(ZONES[0], ZONES[1])
        self.engine.put(ZONES[1], copy)
        await self.machines.boot(copy)

    async def close(self) -> None:
        await super().close()
        await self.machines.close()
        await self.engine.stop()
