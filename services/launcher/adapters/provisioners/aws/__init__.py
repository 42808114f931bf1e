"""Nodes as instances of EC2: the port of provisioners on AWS. Needs the extra `aws`.

A node is one instance, started with its tags in the same request, so that it is found whatever is killed when. Before a start EC2
is asked for instances of that node; one that it does not show yet is kept from a second start by the request's ClientToken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.aws import checks, machines
from tenuto.services.launcher.adapters.provisioners.aws.door import (
    ELSEWHERE,
    Document,
    Ec2Client,
    Ec2Refusal,
    Ec2Unreachable,
    open_door,
)
from tenuto.services.launcher.adapters.provisioners.aws.settings import MachineSettings, connection_of, machine_of
from tenuto.services.launcher.adapters.provisioners.boot import boot_script
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting

logger = logging.getLogger(__name__)

START_SECONDS_MAX = 240.0
"""Longest time for the instances of one group, with all zones: below the keeper's own bound."""
PAGE_INSTANCES = 1_000
"""Most instances in one answer: EC2's own limit, so that a whole pool fits into one request."""
NODES_ASKED_MAX = 200
"""Nodes named in one filter: the most that EC2 takes."""
MARGIN_SECONDS = 60
"""Time that a machine gives its agent beyond the pool's own time to join, so that the launcher's judgement comes first."""
WORDS_SECONDS = 120.0
"""The last words of an instance are asked for so long after its end: then they are on record, and EC2 keeps it for an hour."""
LAST_WORDS_MAX = 3
"""Instances whose last words are asked for at one look."""
BEGUN = "IdempotentParameterMismatch"
"""EC2 has had this ClientToken, with another user data: the node was started before, and is not shown yet."""
GONE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


class AwsProvisioner:
    """Provisioner of one pool of one cluster on EC2."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: where a file with credentials is read from."""
        self._cluster, self._pool, self._provisioning, self._secrets = cluster, pool, provisioning, secrets_directory
        self._open: Ec2Client | None = None

    @property
    def waits_long(self) -> bool:
        return False

    async def check(self) -> Sequence[Finding]:
        try:
            kinds = [(node_type, machine_of(self._provisioning, node_type)) for node_type in self._provisioning.node_types]
            door = self._door()
        except (BadSetting, ProvisionerError) as error:
            return [Finding("settings", str(error))]
        try:
            await self._list(door)
        except (Ec2Refusal, Ec2Unreachable) as error:
            return [Finding("EC2", f"{error.error('list instances')}{checks.remedy(error, door.region)}")]
        return await checks.findings(door, self._cluster, self._pool, kinds)

    async def start(self, orders: Sequence[Order]) -> None:
        now = datetime.now(UTC)
        prepared = [(order, self._machine_settings(order), self._script(order)) for order in orders]
        door = self._door()
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await self._start_all(door, prepared, now)
        except TimeoutError:
            raise ProvisionerError(
                f"EC2 did not start {len(orders)} instances within {START_SECONDS_MAX:.0f} s.", "unreachable"
            ) from None

    async def nodes(self) -> Sequence[RealNode]:
        door = self._door()
        try:
            found = await self._list(door)
        except (Ec2Refusal, Ec2Unreachable) as error:
            raise error.error(f"list the instances of pool {self._pool}") from error
        since = datetime.now(UTC) - timedelta(seconds=WORDS_SECONDS)
        fresh = [item for item in found if machines.is_ended(item) and (at := machines.ended_at(item)) is not None and at > since]
        words = await asyncio.gather(*(self._last_words(door, item) for item in fresh[:LAST_WORDS_MAX]))
        said = {item["InstanceId"]: text for item, text in zip(fresh, words, strict=False)}
        return [machines.node_of(item, said.get(item["InstanceId"], "")) for item in found]

    async def stop(self, node: RealNode) -> None:
        try:
            await self._door().ask("terminate_instances", InstanceIds=[node.provider_id])
        except Ec2Refusal as error:
            if error.code not in GONE:
                raise error.error(f"end instance {node.provider_id}") from error
        except Ec2Unreachable as error:
            raise error.error(f"end instance {node.provider_id}") from error

    async def logs(self, node: RealNode, lines_max: int) -> str:
        try:
            said = await _console(self._door(), node.provider_id)
        except (Ec2Refusal, Ec2Unreachable) as error:
            raise error.error(f"show the console of instance {node.provider_id}") from error
        return "".join(said.splitlines(keepends=True)[-max(1, lines_max) :])

    async def close(self) -> None:
        door, self._open = self._open, None
        if door is not None:
            door.close()

    def _machine_settings(self, order: Order) -> MachineSettings:
        """Raises ProvisionerError."""
        try:
            return machine_of(self._provisioning, order.node_type)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    def _script(self, order: Order) -> str:
        """Raises ProvisionerError."""
        seconds = int(self._provisioning.join_seconds) + MARGIN_SECONDS
        given = self._machine_settings(order).boot
        script = boot_script(order, given, end_notice="aws", boot_seconds=seconds, stop_seconds=machines.STOP_SECONDS)
        if (size := len(script.encode())) > machines.SCRIPT_BYTES_MAX:
            raise ProvisionerError(
                f"The boot script of node {order.node_id} has {size} bytes, and EC2 takes {machines.SCRIPT_BYTES_MAX}: give its"
                " type fewer labels, or a shorter setting install.",
                "refused",
            )
        return script

    def _door(self) -> Ec2Client:
        """Raises ProvisionerError."""
        if self._open is None:
            try:
                connection = connection_of(self._provisioning)
            except BadSetting as error:
                raise ProvisionerError(str(error), "refused") from error
            self._open = open_door(connection, self._secrets)
        return self._open

    async def _start_all(self, door: Ec2Client, prepared: Sequence[tuple[Order, MachineSettings, str]], now: datetime) -> None:
        """Raises ProvisionerError."""
        try:
            there = {machines.node_id_of(item) for item in await self._list(door, [order.node_id for order, _, _ in prepared])}
            missing = [item for item in prepared if item[0].node_id not in there]
            images = {settings.image: await self._image(door, settings) for _, settings, _ in missing}
        except (Ec2Refusal, Ec2Unreachable) as error:
            raise error.error(f"list the instances and images of pool {self._pool}") from error
        requests = [
            (
                order.node_id,
                machines.request(self._cluster, self._pool, order, settings, *images[settings.image], script, now),
                settings.places(),
            )
            for order, settings, script in missing
        ]
        # The first finds a zone with capacity, where the others of its group are tried first: near each other, and no crowd of
        # requests that EC2 refuses.
        first = [await _caught(self._start_one(door, *item, 0, now)) for item in requests[:1]]
        if first and isinstance(first[0], int):
            done = first + list(
                await asyncio.gather(*(_caught(self._start_one(door, *item, first[0], now)) for item in requests[1:]))
            )
        else:
            done = first
        failures = [item for item in done if isinstance(item, ProvisionerError)]
        if failures:
            begun = [item[0] for item, result in zip(requests, done, strict=False) if not _never_begun(result)]
            await self._take_back(door, begun)
            raise min(failures, key=lambda error: ("refused", "quota", "capacity", "unreachable").index(error.kind))

    async def _start_one(
        self, door: Ec2Client, node_id: str, request: Document, places: Sequence[dict[str, Any]], preferred: int, now: datetime
    ) -> int:
        """The place that has it, as a position in `places`. Raises ProvisionerError."""
        order: list[int] = [*range(preferred, len(places)), *range(min(preferred, len(places)))]
        failures: list[Ec2Refusal] = []
        for at in order:
            token = machines.client_token(self._cluster, node_id, places[at], now)
            try:
                await door.ask("run_instances", **{**request, **places[at], "ClientToken": token})
            except Ec2Refusal as error:
                if error.code == BEGUN:
                    logger.info("node %s was begun before, and EC2 does not show it yet", node_id)
                    return at
                if error.kind != "capacity" and error.code not in ELSEWHERE:
                    raise error.error(f"start node {node_id}") from error
                failures.append(error)
                continue
            except Ec2Unreachable as error:
                raise error.error(f"start node {node_id}") from error
            return at
        told = next((error for error in failures if error.kind == "capacity"), failures[-1])
        raise told.error(f"start node {node_id}")

    async def _image(self, door: Ec2Client, settings: MachineSettings) -> tuple[str, str]:
        """AMI, and the name of its root device, where that is needed. Raises Ec2Refusal and Ec2Unreachable."""
        image = await checks.image_id(door, settings.image)
        if not settings.volume_gib:
            return image, ""
        found = (await door.ask("describe_images", ImageIds=[image])).get("Images") or [{}]
        return image, str(found[0].get("RootDeviceName") or "/dev/sda1")

    async def _take_back(self, door: Ec2Client, node_ids: Sequence[str]) -> None:
        """Ends what was begun of a group. What EC2 does not show yet, or cannot end now, is found by `nodes`."""
        if not node_ids:
            return
        try:
            found = [item["InstanceId"] for item in await self._list(door, node_ids) if not machines.is_ended(item)]
            if found:
                await door.ask("terminate_instances", InstanceIds=found)
        except (Ec2Refusal, Ec2Unreachable) as error:
            logger.warning("instances of a group that did not start whole could not be ended: %s", error.error("end them"))

    async def _list(self, door: Ec2Client, node_ids: Sequence[str] = ()) -> list[Document]:
        """Instances of this pool; `node_ids`: only of these nodes. Raises Ec2Refusal and Ec2Unreachable."""
        found: list[Document] = []
        for at in range(0, max(1, len(node_ids)), NODES_ASKED_MAX):
            filters = machines.filters_of(self._cluster, self._pool, node_ids[at : at + NODES_ASKED_MAX])
            for reservation in await door.pages("describe_instances", "Reservations", Filters=filters, MaxResults=PAGE_INSTANCES):
                found += reservation.get("Instances") or []
        return [item for item in found if machines.belongs(item, self._cluster, self._pool)]

    async def _last_words(self, door: Ec2Client, instance: Document) -> str:
        try:
            return machines.last_words_of(await _console(door, str(instance["InstanceId"])))
        except (Ec2Refusal, Ec2Unreachable):  # they are worth less than the look
            return ""


async def _console(door: Ec2Client, instance_id: str) -> str:
    """Raises Ec2Refusal and Ec2Unreachable."""
    try:
        # As it is now, which older types cannot give.
        found = await door.ask("get_console_output", InstanceId=instance_id, Latest=True)
    except Ec2Refusal as error:
        if error.code in GONE:
            return ""
        if error.code not in ("UnsupportedOperation", "Unsupported", "InvalidParameterCombination"):
            raise
        found = await door.ask("get_console_output", InstanceId=instance_id)
    return str(found.get("Output") or "")


async def _caught(started: Any) -> int | ProvisionerError:
    try:
        return int(await started)
    except ProvisionerError as error:
        return error


def _never_begun(result: int | ProvisionerError) -> bool:
    return isinstance(result, ProvisionerError) and result.kind != "unreachable"
