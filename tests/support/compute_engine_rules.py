"""What Compute Engine knows and takes, as its reference documents it, for the stand-in of its API (`compute_engine.py`)."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from google.cloud import compute_v1

PROJECT = "tenuto-tests"
ZONES = ("europe-west4-a", "europe-west4-b", "us-east1-c")
MACHINE_TYPES = {"e2-standard-4": 4, "n1-standard-4": 4, "e2-small": 2, "g2-standard-12": 12}
BUILT_IN = {"g2-standard-12": ("nvidia-l4", 1)}
ACCELERATORS = {"nvidia-tesla-t4": 4, "nvidia-l4": 8}
DISK_TYPES = ("pd-balanced", "pd-ssd", "pd-standard")
IMAGES = {"tenuto-1": "tenuto"}
"""Image -> its family."""
IMAGE_GB = 20
QUOTAS = {"CPUS": 16.0, "INSTANCES": 24.0, "IN_USE_ADDRESSES": 8.0, "SSD_TOTAL_GB": 2_000.0, "NVIDIA_T4_GPUS": 1.0,
          "PREEMPTIBLE_NVIDIA_T4_GPUS": 4.0}  # fmt: skip
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY, LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
VALUE_BYTES_MAX, METADATA_BYTES_MAX = 262_144, 524_288
LABELS_MAX = 64
RUN_SECONDS = (30, 120 * 86_400)


class Wrong(Exception):
    """The API answers with this error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def invalid(field: str, value: Any, why: str = "") -> Wrong:
    return Wrong(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}".strip())


def missing(what: str) -> Wrong:
    return Wrong(404, "notFound", f"The resource '{what}' was not found")


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def check_request_id(text: str) -> None:
    try:
        if text and UUID(text).int == 0:
            raise ValueError
    except ValueError:
        raise invalid("requestId", text, "Must be a valid, non-zero UUID.") from None


def check_instance(zone: str, item: compute_v1.Instance) -> None:
    """Raises Wrong."""
    if not NAME.fullmatch(item.name):
        raise invalid("resource.name", item.name, f"Must be a match of regex '{NAME.pattern}'")
    _named(item.machine_type, f"zones/{zone}/machineTypes/", MACHINE_TYPES, "resource.machineType")
    if len(item.labels) > LABELS_MAX:
        raise invalid("resource.labels", "", "There are too many labels.")
    for key, value in item.labels.items():
        if not (LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            raise invalid("resource.labels", f"{key}={value}", "Label is not valid.")
    for entry in item.metadata.items:
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", entry.key):
            raise invalid("resource.metadata.items.key", entry.key)
        if len(entry.value.encode()) > VALUE_BYTES_MAX:
            raise invalid("resource.metadata.items.value", entry.value)  # it quotes what it refuses
    if sum(len(entry.value.encode()) for entry in item.metadata.items) > METADATA_BYTES_MAX:
        raise invalid("resource.metadata", "", "The metadata is too large.")
    if len({entry.key for entry in item.metadata.items}) != len(item.metadata.items):
        raise invalid("resource.metadata", "", "Metadata has duplicate keys.")
    _check_disks(zone, item)
    _check_network(zone, item)
    _check_scheduling(zone, item)


def _check_disks(zone: str, item: compute_v1.Instance) -> None:
    if [disk.boot for disk in item.disks] != [True]:
        raise invalid("resource.disks", "", "Boot disk must be specified.")
    given = item.disks[0].initialize_params
    project, _, name = given.source_image.removeprefix("projects/").partition("/global/images/")
    family = name.removeprefix("family/")
    known = IMAGES.values() if name.startswith("family/") else IMAGES
    if project != PROJECT or family not in known:
        raise missing(given.source_image)
    if given.disk_size_gb < IMAGE_GB:
        raise invalid("resource.disks[0].initializeParams.diskSizeGb", given.disk_size_gb, "It is smaller than the image.")
    _named(given.disk_type, f"zones/{zone}/diskTypes/", DISK_TYPES, "resource.disks[0].initializeParams.diskType")


def _check_network(zone: str, item: compute_v1.Instance) -> None:
    if len(item.network_interfaces) != 1:
        raise invalid("resource.networkInterfaces", "", "At least one network interface is required.")
    given = item.network_interfaces[0]
    if given.network and given.network != f"projects/{PROJECT}/global/networks/default":
        raise missing(given.network)
    if given.subnetwork and given.subnetwork != f"projects/{PROJECT}/regions/{region_of(zone)}/subnetworks/default":
        raise missing(given.subnetwork)
    if any(config.type_ != "ONE_TO_ONE_NAT" for config in given.access_configs):
        raise invalid("resource.networkInterfaces[0].accessConfigs[0].type", "")


def _check_scheduling(zone: str, item: compute_v1.Instance) -> None:
    given = item.scheduling
    seconds = given.max_run_duration.seconds
    spot = given.provisioning_model == "SPOT"
    if given.provisioning_model not in ("SPOT", "STANDARD") or given.on_host_maintenance not in ("MIGRATE", "TERMINATE"):
        raise invalid("resource.scheduling", given.provisioning_model)
    if seconds and not RUN_SECONDS[0] <= seconds <= RUN_SECONDS[1]:
        raise invalid("resource.scheduling.maxRunDuration", seconds)
    if given.instance_termination_action and not (spot or seconds):
        raise invalid("resource.scheduling.instanceTerminationAction", "", "It needs Spot or a limited run time.")
    if spot and (given.automatic_restart or given.on_host_maintenance != "TERMINATE"):
        raise invalid("resource.scheduling", "", "Spot instances cannot be restarted or moved.")
    for accelerator in item.guest_accelerators:
        prefix = f"projects/{PROJECT}/zones/{zone}/acceleratorTypes/"
        name = _named(accelerator.accelerator_type, prefix, ACCELERATORS, "resource.guestAccelerators")
        if accelerator.accelerator_count > ACCELERATORS[name]:
            raise invalid("resource.guestAccelerators[0].acceleratorCount", accelerator.accelerator_count)
    has_gpu = bool(item.guest_accelerators) or item.machine_type.rpartition("/")[2] in BUILT_IN
    if has_gpu and given.on_host_maintenance != "TERMINATE":
        raise invalid("resource.scheduling.onHostMaintenance", "MIGRATE", "Instances with accelerators are never moved.")


def _named(path: str, prefix: str, known: Any, field: str) -> str:
    name = path.removeprefix(prefix)
    if not path.startswith(prefix) or name not in known:
        raise invalid(field, path, "The referenced resource does not exist.")
    return name


def matches(filter_text: str, item: compute_v1.Instance) -> bool:
    """Filters as documented: `(labels.KEY = "VALUE")`, all of which hold."""
    parts = re.findall(r"\(([^()]*)\)", filter_text)
    if filter_text and re.sub(r"\(([^()]*)\)", "", filter_text).strip():
        raise invalid("filter", filter_text, "Invalid list filter expression.")
    for part in parts:
        match = re.fullmatch(r'labels\.([a-z][a-z0-9_-]*) = "([^"]*)"', part)
        if match is None:
            raise invalid("filter", filter_text, "Invalid list filter expression.")
        if item.labels.get(match[1]) != match[2]:
            return False
    return True
