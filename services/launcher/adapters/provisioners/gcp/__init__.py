"""Nodes as instances of Google Compute Engine: the port of provisioners. Needs the extra `gcp`.

A node is one instance, whose name follows from the cluster and the node's id: Google itself keeps a second one from starting in
the same zone. The keeper asks `nodes()` every few seconds; that is one question, however many zones and nodes there are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.kernel.optional import NotInstalled, needed
from tenuto.kernel.reactions import wait_seconds
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.gcp import checks, machines
from tenuto.services.launcher.adapters.provisioners.gcp.machines import ComputeInstance, Words
from tenuto.services.launcher.adapters.provisioners.gcp.refusals import (
    ComputeEngineRefusal,
    ComputeEngineUnreachable,
    NoCredentials,
)
from tenuto.services.launcher.adapters.provisioners.gcp.settings import InstanceSettings, connection_of, instance_of
from tenuto.services.launcher.adapters.provisioners.groups import take_back, worst
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting

if TYPE_CHECKING:
    from tenuto.services.launcher.adapters.provisioners.gcp.door import ComputeEngineClient

logger = logging.getLogger(__name__)

FAILURES = (ComputeEngineRefusal, ComputeEngineUnreachable, NoCredentials)
START_SECONDS_MAX = 240.0
"""Longest time for a group, in all its zones. An operation that is not over then is left to `nodes`: its instance is listed from
the start, and gone if it fails."""
LOOK_SECONDS_FIRST, LOOK_SECONDS_MAX = 0.25, 4.0
"""Time between two looks at running operations, doubling: some fail at once, most take ten seconds and more."""
LOOKS_PER_SECOND_MAX = 10.0
"""Most looks per second at the operations of one group: Google limits their rate."""
ENDED_SECONDS_MAX = 600.0
"""Time for which an instance that turned itself off is kept, so that its last words can be read; then it is deleted, as its disk
is paid for."""
ENDED_DELETED_MAX = 20
"""Most of these that are deleted after one answer, so that `nodes` stays quick."""
WORDS_ASKED_MAX = 8
"""Most last words that are asked for after one answer. Those of others come with the next one."""


class GcpProvisioner:
    """Provisioner of one pool of one cluster on Google Compute Engine."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: where a service account's file is read from."""
        self._cluster, self._pool, self._provisioning, self._secrets = cluster, pool, provisioning, secrets_directory
        self._open: ComputeEngineClient | None = None
        self._opening = asyncio.Lock()
        self._words: dict[str, Words] = {}
        """Last words of instances that have ended, by provider id."""

    @property
    def waits_long(self) -> bool:
        return False

    async def check(self) -> Sequence[Finding]:
        try:
            kinds = [(node_type, instance_of(self._provisioning, node_type)) for node_type in self._provisioning.node_types]
            door = await self._door()
        except (BadSetting, ProvisionerError) as error:
            return [Finding("settings", str(error))]
        return await checks.findings(door, kinds)

    async def start(self, orders: Sequence[Order]) -> None:
        prepared = {machines.name_of(self._cluster, order.node_id): (order, self._settings(order)) for order in orders}
        door = await self._door()
        ends_at = time.monotonic() + START_SECONDS_MAX
        there = await self._there(door)
        known = [zone for name, (order, _) in prepared.items() for zone in [self._zone_of(there, name, order)] if zone]
        missing = {name: value for name, value in prepared.items() if name not in there}
        if not missing:
            return
        settings = next(iter(missing.values()))[1]
        # A group stays together; what a launcher that was killed had begun of it says where.
        zones = list(dict.fromkeys([*known, *settings.zones]))
        for number, zone in enumerate(zones):
            failure = await self._start_in(door, zone, missing, ends_at)
            if failure is None:
                return
            elsewhere = failure.kind in ("capacity", "quota") and number + 1 < len(zones) and not known
            if not elsewhere or time.monotonic() >= ends_at:
                raise failure
            logger.info("pool %s: zone %s has no room (%s): the next one is asked", self._pool, zone, failure)

    async def nodes(self) -> Sequence[RealNode]:
        door = await self._door()
        found = [(machine, whose.node) for machine, whose in await self._list(door)]
        await self._tidy(door, [machine for machine, _ in found])
        words = await self._last_words(door, [machine for machine, _ in found if machine.ended])
        project = door.project
        return [
            machines.node_of(project, machine, node_id, words.get(machines.provider_id_of(project, machine)))
            for machine, node_id in found
        ]

    async def stop(self, node: RealNode) -> None:
        door = await self._door()
        project, zone, name = machines.place_of(node.provider_id)
        try:
            await _delete(door, project, zone, name)
        except FAILURES as error:
            raise error.error(f"delete instance {name}") from error

    async def logs(self, node: RealNode, lines_max: int) -> str:
        door = await self._door()
        project, zone, name = machines.place_of(node.provider_id)
        try:
            found = "" if node.phase == "ended" else await door.serial_output(project, zone, name)
        except ComputeEngineRefusal as error:
            if error.status not in (400, 404):  # 400: it is off
                raise error.error(f"show the serial port of instance {name}") from error
            found = ""
        except (ComputeEngineUnreachable, NoCredentials) as error:
            raise error.error(f"show the serial port of instance {name}") from error
        if not found:
            try:
                found = (await door.words(project, zone, name)).log
            except FAILURES as error:
                logger.debug("the last words of instance %s cannot be read: %s", name, error)
        return machines.last_lines(found, lines_max) if found else ""

    async def close(self) -> None:
        door, self._open = self._open, None
        if door is not None:
            door.close()

    def _settings(self, order: Order) -> InstanceSettings:
        """Raises ProvisionerError."""
        try:
            return instance_of(self._provisioning, order.node_type)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    async def _door(self) -> ComputeEngineClient:
        """Raises ProvisionerError."""
        async with self._opening:
            if self._open is None:
                try:
                    connection = connection_of(self._provisioning)
                    await asyncio.to_thread(needed, "google.cloud.compute_v1")
                except (BadSetting, NotInstalled) as error:
                    raise ProvisionerError(str(error), "refused") from error
                module: Any = import_module("tenuto.services.launcher.adapters.provisioners.gcp.door")
                self._open = module.open_door(connection, self._secrets)
            return self._open

    # Starting.

    async def _start_in(
        self, door: ComputeEngineClient, zone: str, missing: Mapping[str, tuple[Order, InstanceSettings]], ends_at: float
    ) -> ProvisionerError | None:
        """Starts all in this zone. What failed, if any did; then none is left there, as far as that can be had now."""
        begun, running = set[str](), dict[str, str]()

        async def one(name: str, order: Order, settings: InstanceSettings) -> None:
            operation = await self._insert(door, zone, order, settings, begun, name)
            if operation:
                running[name] = operation

        tasks = [asyncio.create_task(one(name, order, settings)) for name, (order, settings) in missing.items()]
        try:
            failures = [item for item in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(item, BaseException)]
        finally:
            for task in tasks:
                task.cancel()
        if not failures:
            failures = list(await self._failed(door, zone, running, len(missing), ends_at))
        if not failures:
            return None
        said = worst(failures)
        if not isinstance(said, ProvisionerError):
            raise said
        await take_back("instance", sorted(begun), lambda name: _delete(door, door.project, zone, name), FAILURES)
        return said

    async def _insert(
        self, door: ComputeEngineClient, zone: str, order: Order, settings: InstanceSettings, begun: set[str], name: str
    ) -> str:
        """Name of the operation; empty if the node is there already. Adds to `begun` the name of an instance that this call may
        have made. Raises ProvisionerError."""
        body = machines.body(
            door.project, self._cluster, self._pool, order, settings, zone,
            boot_seconds=round(self._provisioning.join_seconds), now=time.time(),
        )  # fmt: skip
        doing, secret = f"start instance {name} in {zone}", order.environment.get("TENUTO_JOIN_TOKEN", "")
        begun.add(name)
        try:
            operation = await door.insert(zone, body, machines.request_id(door.project, self._cluster, zone, order))
        except ComputeEngineRefusal as error:
            begun.discard(name)
            if error.status == 409 and await self._is_there(door, zone, name, order):
                return ""
            raise error.error(doing, secret) from None
        except NoCredentials as error:
            begun.discard(name)
            raise error.error(doing) from None
        except ComputeEngineUnreachable as error:
            raise error.error(doing) from None
        return operation

    async def _is_there(self, door: ComputeEngineClient, zone: str, name: str, order: Order) -> bool:
        """True if that instance is the node's own. Raises ProvisionerError."""
        try:
            machine = await door.machine(zone, name)
        except ComputeEngineRefusal as error:
            if error.status in (403, 404):
                return False
            raise error.error(f"show instance {name}") from None
        except (ComputeEngineUnreachable, NoCredentials) as error:
            raise error.error(f"show instance {name}") from None
        return bool(self._zone_of({name: machine}, name, order))

    def _zone_of(self, there: Mapping[str, ComputeInstance], name: str, order: Order) -> str:
        """Zone of the node's instance; empty if there is none. Raises ProvisionerError if another has its name."""
        machine = there.get(name)
        if machine is None:
            return ""
        found = machines.whose(machine)
        if found is None or (found.cluster, found.node) != (self._cluster, order.node_id):
            raise ProvisionerError(
                f"Instance {name} in zone {machine.zone} is not a node of this cluster: delete it, or set another project.",
                "refused",
            )
        return machine.zone

    async def _failed(
        self, door: ComputeEngineClient, zone: str, running: dict[str, str], nodes: int, ends_at: float
    ) -> Sequence[ProvisionerError]:
        """Failures of operations, as soon as there is one. An answer that does not come says nothing of the operation."""
        looks_made = 0
        while running and time.monotonic() < ends_at:
            looks_made += 1
            pause = wait_seconds(looks_made, LOOK_SECONDS_FIRST, LOOK_SECONDS_MAX)
            await asyncio.sleep(max(pause, len(running) / LOOKS_PER_SECOND_MAX))
            looks = [door.is_over(zone, operation) for operation in running.values()]
            failures = []
            for name, over in zip(list(running), await asyncio.gather(*looks, return_exceptions=True), strict=True):
                if isinstance(over, ComputeEngineRefusal):
                    failures.append(over.error(f"start instance {name} in {zone}"))
                elif isinstance(over, (ComputeEngineUnreachable, NoCredentials)):
                    logger.debug("the operation of instance %s cannot be seen: %s", name, over)
                elif isinstance(over, BaseException):
                    raise over
                elif over:
                    del running[name]
            if failures:
                return failures
        return ()

    # Looking.

    async def _there(self, door: ComputeEngineClient) -> dict[str, ComputeInstance]:
        """Machines by name. Of two of one name, one that runs goes before one that ended elsewhere. Raises ProvisionerError."""
        found = [machine for machine, _ in await self._list(door)]
        return {machine.name: machine for machine in sorted(found, key=lambda machine: not machine.ended)}

    async def _list(self, door: ComputeEngineClient) -> list[tuple[ComputeInstance, machines.Whose]]:
        """Raises ProvisionerError."""
        try:
            found = await door.machines(machines.filter_of(self._cluster, self._pool))
        except FAILURES as error:
            raise error.error(f"list the instances of pool {self._pool} in project {door.project}") from error
        # Labels are shortened; the names are compared whole.
        pairs = [(machine, machines.whose(machine)) for machine in found]
        return [
            (machine, whose) for machine, whose in pairs if whose and (whose.cluster, whose.pool) == (self._cluster, self._pool)
        ]

    async def _last_words(self, door: ComputeEngineClient, ended: Sequence[ComputeInstance]) -> dict[str, Words]:
        """Last words of ended machines, by provider id. They no longer change, so each machine is asked only once."""
        by_id = {machines.provider_id_of(door.project, machine): machine for machine in ended}
        self._words = {key: value for key, value in self._words.items() if key in by_id}

        async def ask(key: str, machine: ComputeInstance) -> None:
            try:
                self._words[key] = await door.words(door.project, machine.zone, machine.name)
            except FAILURES as error:
                logger.debug("the last words of instance %s cannot be read: %s", machine.name, error)
                if isinstance(error, ComputeEngineRefusal) and error.kind() == "refused":
                    self._words[key] = Words()

        unknown = [(key, machine) for key, machine in by_id.items() if key not in self._words]
        await asyncio.gather(*(ask(key, machine) for key, machine in unknown[:WORDS_ASKED_MAX]))
        return self._words

    async def _tidy(self, door: ComputeEngineClient, found: Sequence[ComputeInstance]) -> None:
        """Deletes instances that ended some time ago. What fails is done after a later answer."""
        before = time.time() - ENDED_SECONDS_MAX
        old = [machine for machine in found if machine.ended and machine.stopped_at is not None and machine.stopped_at < before]
        for machine in old[:ENDED_DELETED_MAX]:
            try:
                await _delete(door, door.project, machine.zone, machine.name)
            except FAILURES as error:
                logger.info("instance %s, which has ended, could not be deleted: %s", machine.name, error)
                return


async def _delete(door: ComputeEngineClient, project: str, zone: str, name: str) -> None:
    """Raises ComputeEngineRefusal, ComputeEngineUnreachable and NoCredentials."""
    try:
        await door.delete(project, zone, name)
    except ComputeEngineRefusal as error:
        if error.status != 404 and not error.not_ready:  # not ready: it is being deleted
            raise
