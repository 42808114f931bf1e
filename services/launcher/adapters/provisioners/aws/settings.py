"""Settings of a pool whose nodes are instances of EC2, read and checked. Names and values are documented in docs/aws.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import boot
from tenuto.services.launcher.adapters.provisioners.setting_readers import (
    SHOWN_MAX,
    BadSetting,
    Reader,
    file_name,
    matching,
    number,
    read,
    truth,
)

KIND = "aws"
ITEMS_MAX = 20
"""Most items of a setting that is a list."""
TAGS_MAX = 40
"""EC2 allows 50, and some are Tenuto's own."""
_TAG = re.compile(r"[A-Za-z0-9 _.:/+@-]{1,100}=[A-Za-z0-9 _.:/+@-]{0,200}")
_DEFAULTS = {"instance_type": "instance_type=g5.xlarge", "image": "image=ami-0123456789abcdef0", "region": "region=us-east-1"}


@dataclass(frozen=True)
class Ec2Connection:
    """Way to EC2. Alike for all types of nodes of a pool."""

    region: str
    endpoint_url: str = ""
    """Address of the service. Empty: Amazon's own."""
    credentials_file: str = ""
    """Name of a file in the launcher's directory of secrets, of the form of ~/.aws/credentials. Empty: as boto3 finds them."""
    profile: str = ""
    """Profile of that file."""


@dataclass(frozen=True)
class MachineSettings:
    """Instance of one type of nodes."""

    instance_type: str
    image: str
    """AMI, or `ssm:` with the name of a parameter that has one."""
    subnets: tuple[str, ...] = ()
    """Subnets, in order of preference. Empty: the default one of each zone."""
    zones: tuple[str, ...] = ()
    """Zones, in order of preference, if there are no subnets. Empty: EC2's choice."""
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    iam_instance_profile: str = ""
    placement_group: str = ""
    spot: bool = False
    spot_price_max: str = ""
    """Highest price in dollars per hour. Empty: the price on demand."""
    volume_gib: int = 0
    """Size of the volume. 0: as the image has it."""
    tags: tuple[tuple[str, str], ...] = ()
    boot: boot.BootSettings = field(default_factory=boot.BootSettings)

    def places(self) -> tuple[dict[str, Any], ...]:
        """Places where an instance may start, in order of preference, as parts of the request for it."""
        if self.subnets:
            return tuple({"SubnetId": subnet} for subnet in self.subnets)
        group = {"GroupName": self.placement_group} if self.placement_group else {}
        return tuple({"Placement": {**group, **({"AvailabilityZone": zone} if zone else {})}} for zone in self.zones or ("",))


def connection_of(provisioning: Provisioning) -> Ec2Connection:
    """Raises BadSetting."""
    given = {key: value for key, value in provisioning.settings.items() if key in _CONNECTION}
    found = Ec2Connection(**read(KIND, _CONNECTION, given, {"region": _DEFAULTS["region"]}))
    if found.profile and not found.credentials_file:
        raise BadSetting("Setting profile names a profile of the file that setting credentials_file names: set both.")
    return found


def machine_of(provisioning: Provisioning, node_type: NodeType) -> MachineSettings:
    """Settings of an instance of this type: the pool's, and the type's own before them. Raises BadSetting."""
    if misplaced := sorted(_CONNECTION.keys() & node_type.settings.keys()):
        raise BadSetting(f"Setting {misplaced[0]} belongs to the pool, not to its type of nodes {node_type.name}.")
    given = {**provisioning.settings, **node_type.settings}
    values = read(KIND, {**_MACHINE, **boot.KNOWN, **_CONNECTION}, given, _DEFAULTS)
    found = MachineSettings(**{key: values[key] for key in _MACHINE if key in values}, boot=boot.boot_settings(values))
    if found.subnets and found.zones:
        raise BadSetting("Settings subnets and zones exclude each other, as each subnet is in one zone: leave one out.")
    if found.spot_price_max and not found.spot:
        raise BadSetting("Setting spot_price_max is for spot instances: set spot=true as well, or leave it out.")
    return found


def _several(pattern: str, allowed: str) -> Reader:
    item = matching(pattern, allowed)

    def read_all(name: str, text: str) -> tuple[str, ...]:
        found = tuple(item(name, part.strip()) for part in text.split(","))
        if len(found) > ITEMS_MAX:
            raise BadSetting(f"Setting {name} may have at most {ITEMS_MAX} items (found {len(found)}).")
        return found

    return read_all


def _tags(name: str, text: str) -> tuple[tuple[str, str], ...]:
    found = [part.strip() for part in text.split(",")]
    if len(found) > TAGS_MAX:
        raise BadSetting(f"Setting {name} may have at most {TAGS_MAX} tags (found {len(found)}).")
    for part in found:
        if not _TAG.fullmatch(part) or part.lower().startswith(("aws:", "tenuto:", "name=")):
            raise BadSetting(
                f"Setting {name} must be key=value with commas between, of letters, digits, spaces and _.:/+@-, and no key may"
                f" begin with aws: or tenuto:, or be Name (found {part[:SHOWN_MAX]!r})."
            )
    return tuple((key, value) for key, _, value in (part.partition("=") for part in found))


_CONNECTION: dict[str, Reader] = {
    "region": matching(r"[a-z0-9-]{2,40}", "a region such as us-east-1"),
    "endpoint_url": matching(
        r"https?://[A-Za-z0-9.:\[\]-]{1,200}(/[A-Za-z0-9._/-]{0,200})?", "an address with http:// or https://"
    ),
    "credentials_file": file_name,
    "profile": matching(r"[A-Za-z0-9_.@-]{1,100}", "the name of a profile"),
}
_MACHINE: dict[str, Reader] = {
    "instance_type": matching(r"[a-z0-9-]{1,30}\.[a-z0-9-]{1,30}", "a type of instances such as g5.xlarge"),
    "image": matching(
        r"ami-[0-9a-f]{8,17}|ssm:[A-Za-z0-9_./-]{1,500}", "an AMI such as ami-0123456789abcdef0, or ssm: and a parameter's name"
    ),
    "subnets": _several(r"subnet-[0-9a-f]{8,17}", "subnets such as subnet-0123456789abcdef0, with commas between"),
    "zones": _several(r"[a-z0-9-]{3,40}", "zones such as us-east-1a, with commas between"),
    "security_groups": _several(r"sg-[0-9a-f]{8,17}", "security groups such as sg-0123456789abcdef0, with commas between"),
    "key_name": matching(r"[A-Za-z0-9][A-Za-z0-9 _.@+-]{0,254}", "the name of a key pair"),
    "iam_instance_profile": matching(r"[A-Za-z0-9_+=,.@-]{1,128}", "the name of an instance profile"),
    "placement_group": matching(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,254}", "the name of a placement group"),
    "spot": truth,
    "spot_price_max": matching(r"[0-9]{1,5}(\.[0-9]{1,5})?", "dollars per hour such as 1.25"),
    "volume_gib": number(1, 65_536),
    "tags": _tags,
}
assert _CONNECTION.keys() == {item.name for item in fields(Ec2Connection)}
assert _MACHINE.keys() == {item.name for item in fields(MachineSettings)} - {"boot"}
