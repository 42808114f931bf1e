"""What the stand-in of Compute Engine describes: zones, types of machines, images, networks, quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from google.cloud import compute_v1

from tests.support import compute_engine_rules as rules
from tests.support.compute_engine_rules import missing


def named(kind: str, name: str, quotas: Mapping[str, float], usage: Callable[[str], Counter[str]]) -> Any:
    """Description of one thing. Raises Wrong."""
    if kind == "projects":
        return compute_v1.Project(name=name)
    if kind == "zones":
        return compute_v1.Zone(name=_known(name, rules.ZONES), status="UP")
    if kind == "regions":
        used = usage(_known(name, [rules.region_of(zone) for zone in rules.ZONES]))
        limits = [compute_v1.Quota(metric=key, limit=most, usage=used[key]) for key, most in quotas.items()]
        return compute_v1.Region(name=name, status="UP", quotas=limits)
    if kind == "machineTypes":
        cpus = rules.MACHINE_TYPES[_known(name, rules.MACHINE_TYPES)]
        built_in = [
            compute_v1.Accelerators(guest_accelerator_type=of, guest_accelerator_count=number)
            for of, number in [rules.BUILT_IN[name]] if name in rules.BUILT_IN
        ] if name in rules.BUILT_IN else []  # fmt: skip
        return compute_v1.MachineType(name=name, guest_cpus=cpus, memory_mb=4096 * cpus, accelerators=built_in)
    if kind == "acceleratorTypes":
        most = rules.ACCELERATORS[_known(name, rules.ACCELERATORS)]
        return compute_v1.AcceleratorType(name=name, maximum_cards_per_instance=most)
    if kind == "diskTypes":
        return compute_v1.DiskType(name=_known(name, rules.DISK_TYPES))
    if kind == "images":
        known = rules.IMAGES.values() if name.startswith("family/") else rules.IMAGES
        _known(name.removeprefix("family/"), known)
        return compute_v1.Image(name="tenuto-1", status="READY", disk_size_gb=rules.IMAGE_GB)
    found = compute_v1.Network if kind == "networks" else compute_v1.Subnetwork
    return found(name=_known(name, ("default",)))


def _known(name: str, known: Any) -> str:
    if name not in known:
        raise missing(name)
    return name
