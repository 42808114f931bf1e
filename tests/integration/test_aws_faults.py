"""The launcher's own loop, core and keepers over EC2 that fails one request in five, answers late, does some twice, does not
show new instances at once, runs out of capacity and loses instances, while the launcher is killed again and again: what runs is
what is on record, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Provisioner
from tenuto.services.launcher.adapters.provisioners.aws import AwsProvisioner, door
from tenuto.services.launcher.adapters.provisioners.aws.door import Ec2Client
from tests.support.ec2 import CREDENTIALS, REGION, ZONE, Ec2, Faults, linux_image, running
from tests.support.kept_nodes import TOKEN, KeptNodes, asked_more, hurry, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("provisioners")]
POOL, NODES_MAX = "gpus", 8
KILLS = int(os.environ.get("TEST_KILLS", "50"))


class Lasting(AwsProvisioner):
    async def close(self) -> None:
        pass


class World(KeptNodes):
    def __init__(self, ec2: Ec2, directory: Path) -> None:
        super().__init__(POOL, self._opened)
        self.ec2, self.directory = ec2, directory
        self.door: Ec2Client | None = None

    async def provision(self, nodes_max: int) -> None:
        settings = {
            "region": REGION, "endpoint_url": self.ec2.url, "credentials_file": "aws", "instance_type": "m5.large",
            "image": linux_image(), "zones": f"us-east-1b,{ZONE}",
        }  # fmt: skip
        await self.say(
            PoolProvisioned(pool=POOL, provisioner="aws", settings=settings, nodes_max=nodes_max, join_seconds=3_600.0)
        )

    def _opened(self, pool: str, provisioning: Provisioning) -> Provisioner:
        """With the clients of boto3 that the launcher before had: each takes a second to make."""
        made = Lasting(self.ec2.cluster, pool, provisioning, self.directory)
        made._open = self.door = self.door or made._door()
        return made

    def real(self) -> list[str]:
        """Nodes whose instances are paid for, each as often as it has one."""
        return sorted(self.node(instance_id) for instance_id in self.ec2.live())

    def node(self, instance_id: str) -> str:
        """From the request that it was started by."""
        form = self.ec2.requests[instance_id]
        [key] = [key for key, value in form.items() if value == "tenuto:node" and key.startswith("TagSpecification.1.")]
        return form[key.removesuffix("Key") + "Value"]


async def test_what_runs_is_what_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(door, "TRIES", 1)
    (tmp_path / "aws").write_text(CREDENTIALS)
    drawn = random.Random(16)
    async with running() as ec2:
        world = World(ec2, tmp_path)
        ec2.faults = Faults(16, before=0.1, after=0.1, twice=0.1, late=0.2, late_seconds=0.15)
        ec2.hidden_seconds, ec2.keeps_answers = 0.3, True
        await world.provision(NODES_MAX)
        lost = 0
        for kill in range(KILLS):
            if kill % 4 == 0:
                await world.want(*(drawn.randint(1, 4) for _ in range(3)))
            ec2.full = {"us-east-1b"} if kill % 10 < 5 else {"us-east-1b", ZONE} if kill % 10 == 5 else set()
            async with world.launcher():
                await asked_more(ec2.asked, drawn)
            if kill % 5 == 4:
                # One is certain to come: something waits, and a zone has room.
                while not (live := await asyncio.to_thread(ec2.live)):
                    async with world.launcher():
                        await until(ec2.live, threaded=True)  # but may be ended while its launcher ends
                await ec2.lose(drawn.choice(live))
                lost += 1
        ec2.full = set()
        await world.want(4, 2)
        async with world.launcher() as loop:

            def agree() -> bool:
                pool = loop.state.pools.get(POOL)
                standing = [] if pool is None else [node for node in pool.in_order() if not node.ending]
                wanted = sorted(node.node_id for node in standing)
                return len(wanted) >= 6 and all(node.phase == "started" for node in standing) and world.real() == wanted

            await until(agree, threaded=True)
            assert len(await asyncio.to_thread(ec2.live)) <= NODES_MAX
            await world.provision(0)
            await until(lambda: loop.state.pools[POOL].in_order() == [] and not ec2.live(), threaded=True)
        events = list(await world.log.read(0, 10_000))
        assert TOKEN.encode() not in b"".join(event.payload for event in events)
        begun = [world.node(instance_id) for instance_id in ec2.requests]
        print(f"{KILLS} kills, {lost} lost, {len(begun)} instances, {len(begun) - len(set(begun))} second ones")
