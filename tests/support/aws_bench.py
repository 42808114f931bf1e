"""The world of instances in which the contract of provisioners is tried: moto's EC2, and machines that run stand-ins."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.aws import AwsProvisioner
from tests.support.ec2 import CREDENTIALS, REGION, Ec2, linux_image
from tests.support.ports import refusing_port
from tests.support.provisioner_benches import POOL, Bench, order


class AwsBench(Bench):
    """Made by `begun`."""

    def __init__(self, directory: Path, ec2: Ec2) -> None:
        super().__init__(directory)
        self.ec2 = ec2

    @classmethod
    async def begun(cls, directory: Path) -> AwsBench:
        (directory / "secrets").mkdir()
        (directory / "secrets/aws").write_text(CREDENTIALS)
        (directory / "secrets/aws").chmod(0o600)
        ec2 = Ec2(directory / "machines")
        ec2.room = 2
        await ec2.start()
        return cls(directory, ec2)

    def make(self, cluster: str, pool: str, **settings: str) -> Provisioner:
        given = {
            "region": REGION, "endpoint_url": self.ec2.url, "credentials_file": "aws", "instance_type": "m5.large",
            "image": linux_image(), "python": str(self.stand_in), "user": getpass.getuser(),
            "worker_user": getpass.getuser(), **settings,
        }  # fmt: skip
        return AwsProvisioner(cluster, pool, Provisioning(provisioner="aws", settings=given), self.directory / "secrets")

    def broken(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, endpoint_url=f"http://127.0.0.1:{refusing_port()}"))

    def refused(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, image="ami-00000000"))

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def start_twice(self, wanted: Order) -> None:
        """A ClientToken keeps a second one from starting, so somebody started one without it."""
        await self.provisioner().start([wanted])
        [instance_id] = self.ec2.requests
        await self.ec2.repeat(instance_id)

    async def close(self) -> None:
        await super().close()
        await self.ec2.stop()
