"""Settings of a pool whose nodes are instances of Compute Engine, read and checked. Documented in docs/gcp.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Literal

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import boot
from tenuto.services.launcher.adapters.provisioners.boot import BootSettings
from tenuto.services.launcher.adapters.provisioners.setting_readers import (
    BadSetting,
    Reader,
    file_name,
    matching,
    number,
    read,
    truth,
)

KIND = "gcp"
ZONES_MAX = 20
ITEMS_MAX = 40
"""Most labels or tags: Google allows 64 of each, some of which are ours."""
LIFETIME_HOURS_MAX = 2_800
"""Longest run of an instance: Google limits it to 120 days."""
OWN_LABELS = "tenuto-"
"""Prefix of the labels that are ours."""
_ID = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"
_PROJECT = r"([a-z0-9.-]{1,60}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"
_ZONE = re.compile(r"[a-z]{1,20}(-[a-z]{1,20}){0,3}[0-9]{1,3}-[a-z]{1,3}")
_LABEL = re.compile(r"([a-z][a-z0-9_-]{0,62})=([a-z0-9_-]{0,63})")
_TAG = re.compile(_ID)
_EMAIL = r"[a-z0-9][a-z0-9._-]{0,99}@[a-z0-9][a-z0-9.-]{2,99}"
GPU_FAMILIES = ("a2", "a3", "a4", "a4x", "g2", "g4")
"""Families of machine types that have GPUs of their own, and cannot be moved while they run."""


@dataclass(frozen=True)
class ComputeEngineConnection:
    """Alike for all types of nodes of a pool."""

    project: str
    credentials_file: str = ""
    """Name of a service account's file in the launcher's directory of secrets. Empty: Google's own chain (the environment, the
    account of the machine that the launcher runs on)."""
    endpoint: str = ""
    """Address of the API. Empty: Google's own."""


@dataclass(frozen=True)
class Accelerator:
    kind: str
    count: int


@dataclass(frozen=True)
class InstanceSettings:
    """Instance of one type of nodes."""

    zones: tuple[str, ...]
    """Zones, in order of preference."""
    machine_type: str
    image: str = ""
    image_family: str = ""
    image_project: str = ""
    """Empty: the pool's own project."""
    accelerator: Accelerator | None = None
    network: str = ""
    subnetwork: str = ""
    """Name, or projects/P/regions/R/subnetworks/S. Empty: that of the network in the zone's region."""
    external_ip: bool = True
    tags: tuple[str, ...] = ()
    service_account: str = ""
    """Empty: the instance has no account, so nothing on it may do anything in the project."""
    spot: bool = False
    disk_gb: int = 100
    disk_type: str = "pd-balanced"
    labels: tuple[tuple[str, str], ...] = ()
    on_host_maintenance: Literal["", "migrate", "terminate"] = ""
    """Empty: as the type of the machine needs it."""
    boot: BootSettings = field(default_factory=BootSettings)

    @property
    def terminates(self) -> bool:
        """True: maintenance of its host ends it; otherwise it is moved while it runs."""
        if self.on_host_maintenance:
            return self.on_host_maintenance == "terminate"
        return self.spot or self.accelerator is not None or self.machine_type.split("-")[0] in GPU_FAMILIES

    def image_path(self, project: str) -> str:
        where = f"projects/{self.image_project or project}/global/images"
        return f"{where}/{self.image}" if self.image else f"{where}/family/{self.image_family}"


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def connection_of(provisioning: Provisioning) -> ComputeEngineConnection:
    """Raises BadSetting."""
    given = {key: value for key, value in provisioning.settings.items() if key in _CONNECTION}
    return ComputeEngineConnection(**read(KIND, _CONNECTION, given, {"project": "project=my-project"}))


def instance_of(provisioning: Provisioning, node_type: NodeType) -> InstanceSettings:
    """Settings of an instance of this type: the pool's, and the type's own before them. Raises BadSetting."""
    if misplaced := sorted(_CONNECTION.keys() & node_type.settings.keys()):
        raise BadSetting(f"Setting {misplaced[0]} belongs to the pool, not to its type of nodes {node_type.name}.")
    given = {**provisioning.settings, **node_type.settings}
    examples = {"zones": "zones=europe-west4-a,europe-west4-b", "machine_type": "machine_type=n1-standard-8"}
    values = read(
        KIND, {**_INSTANCE, **boot.KNOWN, **_CONNECTION, "lifetime_hours": number(1, LIFETIME_HOURS_MAX)}, given, examples
    )
    own = {key: value for key, value in values.items() if key in _INSTANCE}
    found = InstanceSettings(**own, boot=boot.boot_settings(values))
    if bool(found.image) == bool(found.image_family):
        raise BadSetting("One of the settings image and image_family is required: give one, such as image_family=tenuto.")
    if found.spot and not found.terminates:
        raise BadSetting("Setting on_host_maintenance is migrate, but spot instances are never moved: leave it out.")
    if found.accelerator is not None and not found.terminates:
        raise BadSetting(
            "Setting on_host_maintenance is migrate, but instances with an accelerator are never moved: leave it out."
        )
    if node_type.device == "cpu" and found.accelerator is not None:
        raise BadSetting(f"Nodes of type {node_type.name} have the device cpu: leave out accelerator, or name its device.")
    if node_type.images:
        raise BadSetting(
            f"Nodes of type {node_type.name} cannot run trials that name an image: leave out images, and let the machine's image"
            " have what trials need."
        )
    return found


def _items(name: str, text: str, most: int) -> list[str]:
    found = [item.strip() for item in text.split(",") if item.strip()]
    if len(found) > most:
        raise BadSetting(f"Setting {name} may have at most {most} items (found {len(found)}).")
    return found


def _zones(name: str, text: str) -> tuple[str, ...]:
    allowed = "zones with commas between, such as europe-west4-a,europe-west4-b"
    return tuple(dict.fromkeys(matching(_ZONE.pattern, allowed)(name, item) for item in _items(name, text, ZONES_MAX)))


def _tags(name: str, text: str) -> tuple[str, ...]:
    return tuple(matching(_TAG.pattern, "network tags with commas between")(name, item) for item in _items(name, text, ITEMS_MAX))


def _labels(name: str, text: str) -> tuple[tuple[str, str], ...]:
    found = {}
    for item in _items(name, text, ITEMS_MAX):
        match = _LABEL.fullmatch(item)
        if match is None or match[1].startswith(OWN_LABELS):
            raise BadSetting(
                f"Setting {name} must be labels key=value of small letters, digits, _ and - with commas between, none of which"
                f" begins with {OWN_LABELS} (found {item[:100]!r})."
            )
        found[match[1]] = match[2]
    return tuple(found.items())


def _accelerator(name: str, text: str) -> Accelerator:
    allowed = "a type of accelerators and their number, such as nvidia-tesla-t4:1"
    kind, _, count = matching(rf"{_ID}:[1-9][0-9]?", allowed)(name, text).partition(":")
    return Accelerator(kind, int(count))


def _endpoint(name: str, text: str) -> str:
    """Credentials go there, so the network may not be able to read them."""
    allowed = "the address of an API, such as https://compute.googleapis.com"
    return matching(r"(https://[a-zA-Z0-9.-]{1,250}(:[0-9]{1,5})?|http://(127\.0\.0\.1|localhost)(:[0-9]{1,5})?)/?", allowed)(
        name, text
    ).rstrip("/")


_NAME = matching(_ID, "a name of small letters, digits and -, at most 63")
_CONNECTION: dict[str, Reader] = {
    "project": matching(_PROJECT, "the id of a project"),
    "credentials_file": file_name,
    "endpoint": _endpoint,
}
_INSTANCE: dict[str, Reader] = {
    "zones": _zones,
    "machine_type": matching(r"[a-z][a-z0-9-]{1,62}", "the name of a machine type, such as n1-standard-8"),
    "image": _NAME,
    "image_family": _NAME,
    "image_project": matching(_PROJECT, "the id of a project"),
    "accelerator": _accelerator,
    "network": matching(rf"(projects/{_PROJECT}/global/networks/)?{_ID}", "the name of a network"),
    "subnetwork": matching(rf"(projects/{_PROJECT}/regions/[a-z0-9-]{{1,40}}/subnetworks/)?{_ID}", "the name of a subnetwork"),
    "external_ip": truth,
    "tags": _tags,
    "service_account": matching(_EMAIL, "the address of a service account"),
    "spot": truth,
    "disk_gb": number(10, 65_536),
    "disk_type": matching(_ID, "the name of a type of disks, such as pd-ssd"),
    "labels": _labels,
    "on_host_maintenance": matching("migrate|terminate", "migrate or terminate"),
}
NAMES = frozenset({*_INSTANCE, *_CONNECTION, *boot.KNOWN})
"""All settings that there are."""
assert _INSTANCE.keys() == {item.name for item in fields(InstanceSettings)} - {"boot"}
assert _CONNECTION.keys() == {item.name for item in fields(ComputeEngineConnection)}
