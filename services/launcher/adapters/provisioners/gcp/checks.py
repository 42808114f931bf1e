"""`tenuto pool check` for instances of Compute Engine: what is there for nodes of a pool, and what is missing. Nothing is
started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Finding
from tenuto.services.launcher.adapters.provisioners.gcp.machines import quota_lack
from tenuto.services.launcher.adapters.provisioners.gcp.refusals import (
    ComputeEngineRefusal,
    ComputeEngineUnreachable,
    NoCredentials,
)
from tenuto.services.launcher.adapters.provisioners.gcp.settings import GPU_FAMILIES, InstanceSettings, region_of

if TYPE_CHECKING:
    from tenuto.services.launcher.adapters.provisioners.gcp.door import ComputeEngineClient

RIGHTS = (
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.getSerialPortOutput",
    "compute.instances.getGuestAttributes",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.disks.create",
    "compute.subnetworks.use",
    "compute.zoneOperations.get",
)
"""All that the launcher always needs in the project (docs/gcp.md has the role)."""
OLD_FAMILIES = ("e2", "n1", "f1", "g1")
"""Families whose processors count as CPUS; others have a quota of their own."""
Kinds = Sequence[tuple[NodeType, InstanceSettings]]


async def findings(door: ComputeEngineClient, kinds: Kinds) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.append(await _there(f"project {door.project} at {door.address}", door.named("Projects")))
        if found[-1].problem:
            return found
        found.append(await _rights(door, kinds))
        zones = list(dict.fromkeys(zone for _, settings in kinds for zone in settings.zones))
        found += [await _there(f"zone {zone}", door.named("Zones", zone=zone), _zone_lack) for zone in zones]
        for node_type, settings in kinds:
            found += await _of_kind(door, node_type, settings)
    except NoCredentials as error:
        found.append(Finding("credentials", str(error)))
    except ComputeEngineUnreachable as error:
        found.append(Finding("the remaining checks", f"They could not be made: {error}."))
    return found


async def _of_kind(door: ComputeEngineClient, node_type: NodeType, settings: InstanceSettings) -> list[Finding]:
    found = [await _image(door, settings)]
    if settings.network or not settings.subnetwork:
        project, name = _project_and_name(settings.network or "default", door.project)
        found.append(await _there(f"network {name}", door.named("Networks", project=project, network=name)))
    for zone in settings.zones:
        machine: list[Any] = []
        found.append(
            await _there(
                f"machine type {settings.machine_type} in {zone}",
                door.named("MachineTypes", zone=zone, machine_type=settings.machine_type),
                _keep(machine, lambda item: _slots_lack(node_type, settings, item)),
            )
        )
        if settings.accelerator is not None:
            most = settings.accelerator
            found.append(
                await _there(
                    f"accelerator {most.kind} in {zone}",
                    door.named("AcceleratorTypes", zone=zone, accelerator_type=most.kind),
                    lambda item, most=most: (  # type: ignore[misc]
                        f"An instance may have at most {item.maximum_cards_per_instance} of {most.kind}: set accelerator."
                        if item.maximum_cards_per_instance < most.count
                        else ""
                    ),
                )
            )
        if settings.subnetwork:
            project, name = _project_and_name(settings.subnetwork, door.project)
            region = settings.subnetwork.split("/")[3] if "/" in settings.subnetwork else region_of(zone)
            asked = door.named("Subnetworks", project=project, region=region, subnetwork=name)
            found.append(await _there(f"subnetwork {name} in {region}", asked))
        disk = door.named("DiskTypes", zone=zone, disk_type=settings.disk_type)
        found.append(await _there(f"disk type {settings.disk_type} in {zone}", disk))
        if machine:
            found.append(await _quota(door, region_of(zone), needs(settings, machine[0].guest_cpus)))
    if settings.service_account:
        found.append(
            Finding(f"service account {settings.service_account}: whether it may be used shows when the first node starts")
        )
    return found


async def _there(what: str, asked: Awaitable[Any], lack: Callable[[Any], str] = lambda _: "") -> Finding:
    """`lack`: what is wrong with it, though it is there."""
    try:
        return Finding(what, lack(await asked))
    except ComputeEngineRefusal as error:
        if error.status == 404:
            return Finding(what, f"There is no {what}: create it, or name another in the settings.")
        return Finding(what, str(error.error(f"show {what}")))


def _keep(into: list[Any], lack: Callable[[Any], str]) -> Callable[[Any], str]:
    def keep(item: Any) -> str:
        into.append(item)
        return lack(item)

    return keep


def _zone_lack(zone: Any) -> str:
    return "" if zone.status == "UP" else f"The zone is {zone.status}: name another in the setting zones."


async def _image(door: ComputeEngineClient, settings: InstanceSettings) -> Finding:
    project = settings.image_project or door.project

    def lack(image: Any) -> str:
        if image.status not in ("", "READY"):
            return f"The image is {image.status}: wait, or name another."
        if image.deprecated.state in ("OBSOLETE", "DELETED"):
            return f"The image is {image.deprecated.state}: name another."
        if image.disk_size_gb > settings.disk_gb:
            return f"The image needs a disk of {image.disk_size_gb} GB: set disk_gb={image.disk_size_gb}."
        return ""

    if settings.image:
        return await _there(f"image {settings.image}", door.named("Images", project=project, image=settings.image), lack)
    asked = door.named("ImageFamilies", project=project, family=settings.image_family)
    return await _there(f"image family {settings.image_family} of {project}", asked, lack)


async def _rights(door: ComputeEngineClient, kinds: Kinds) -> Finding:
    wanted = [*RIGHTS]
    if any(settings.external_ip for _, settings in kinds):
        wanted.append("compute.subnetworks.useExternalIp")
    if any(settings.tags for _, settings in kinds):
        wanted.append("compute.instances.setTags")
    if any(settings.service_account for _, settings in kinds):
        wanted.append("compute.instances.setServiceAccount")
    if any(settings.image_project in ("", door.project) for _, settings in kinds):
        wanted.append("compute.images.useReadOnly")
    what = f"rights in project {door.project}"
    try:
        lacking = sorted(set(wanted) - await door.rights(wanted))
    except ComputeEngineRefusal as error:
        # Its API (Resource Manager) is off in many projects, and starting nodes does not need it.
        return Finding(f"{what}: they cannot be asked for (status {error.status}), so they show when the first node starts")
    problem = (
        f"The launcher's account may not {', '.join(lacking)}: grant it a role with these permissions (docs/gcp.md has one)."
        if lacking
        else ""
    )
    return Finding(what, problem)


def _slots_lack(node_type: NodeType, settings: InstanceSettings, machine: Any) -> str:
    built_in = sum(item.guest_accelerator_count for item in machine.accelerators)
    gpus = settings.accelerator.count if settings.accelerator else built_in
    if gpus and node_type.device == "cpu":
        return f"The machine has {gpus} accelerators, but nodes of type {node_type.name} have the device cpu: name their device."
    if gpus and gpus != node_type.slots:
        return (
            f"The machine has {gpus} accelerators, but nodes of type {node_type.name} have slots {node_type.slots}: set {gpus}."
        )
    if not gpus and node_type.device not in ("", "cpu"):
        return (
            f"The machine has no accelerators, but nodes of type {node_type.name} have the device {node_type.device}: set"
            " accelerator, or another machine_type."
        )
    return ""


def needs(settings: InstanceSettings, guest_cpus: int) -> dict[str, float]:
    """Amounts of the region's quotas that one node uses, by metric."""
    family = settings.machine_type.split("-")[0]
    found: dict[str, float] = {"INSTANCES": 1}
    if family in OLD_FAMILIES:
        found["CPUS"] = guest_cpus
    elif family not in GPU_FAMILIES:
        found[f"{family.upper()}_CPUS"] = guest_cpus
    if settings.external_ip:
        found["IN_USE_ADDRESSES"] = 1
    if settings.disk_type == "pd-standard":
        found["DISKS_TOTAL_GB"] = settings.disk_gb
    elif settings.disk_type in ("pd-balanced", "pd-ssd"):
        found["SSD_TOTAL_GB"] = settings.disk_gb
    if settings.accelerator is not None:
        name = settings.accelerator.kind.upper().replace("TESLA-", "").replace("-", "_")
        found[f"{'PREEMPTIBLE_' if settings.spot else ''}{name}_GPUS"] = settings.accelerator.count
    return found


async def _quota(door: ComputeEngineClient, region: str, needed: dict[str, float]) -> Finding:
    try:
        found = await door.named("Regions", region=region)
    except ComputeEngineRefusal as error:
        return Finding(f"quota of region {region}", str(error.error(f"show region {region}")))
    quotas = {item.metric: (float(item.usage), float(item.limit)) for item in found.quotas}
    shown = ", ".join(f"{metric} {quotas[metric][0]:g} of {quotas[metric][1]:g}" for metric in sorted(needed) if metric in quotas)
    lacking = quota_lack(quotas, needed)
    problem = f"{'; '.join(lacking)}: ask Google for more, or set zones of another region." if lacking else ""
    return Finding(f"quota of region {region}" + (f": {shown} used" if shown else ""), problem)


def _project_and_name(path: str, project: str) -> tuple[str, str]:
    return (path.split("/")[1], path.rpartition("/")[2]) if "/" in path else (project, path)
