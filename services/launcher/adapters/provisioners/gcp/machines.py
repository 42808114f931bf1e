"""A node as Compute Engine is told of it, and as it tells of it. Nothing is asked or done here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Order, Phase, RealNode
from tenuto.services.launcher.adapters.provisioners.boot import boot_script
from tenuto.services.launcher.adapters.provisioners.gcp.settings import InstanceSettings, region_of

CLUSTER, POOL, NODE, ENDS = "tenuto-cluster", "tenuto-pool", "tenuto-node", "tenuto-ends"
"""Labels of a node's instance. Their values are shortened where Google allows less than a name of Tenuto; the description has the
names whole."""
NAME_MAX = 63
HASH_CHARACTERS = 10
REQUESTS = UUID("6f2f5f0e-7a51-4a0b-9a54-6d9d3c1b8a55")
"""Namespace of the ids of requests."""
LIFETIME_MARGIN_SECONDS = 1_800
"""Time after the agent's own end after which Google ends the instance itself: what the machine was to do, it has not done."""
STOP_SECONDS, STOP_SPOT_SECONDS = 90, 30
"""Time between the notice of a shutdown and its end, as Google documents it."""
DETAIL_MAX = 300
PENDING = ("PENDING", "PROVISIONING", "STAGING")
ENDED = ("TERMINATED", "STOPPED")
ENDING = ("STOPPING", "PENDING_STOP", "DEPROVISIONING")
LEFT = "tenuto/"
"""Namespace of the guest attributes in which a machine leaves its last words: the serial port of one that has ended cannot be
read."""


@dataclass(frozen=True)
class ComputeInstance:
    """An instance, with those of its fields that are used here."""

    name: str
    zone: str
    status: str
    status_message: str = ""
    description: str = ""
    stopped_at: float | None = None
    """Time of the stop, in seconds since 1970. None: not known."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True)
class Words:
    """Text that a machine left at its end."""

    log: str = ""
    """Last lines of what it printed."""
    why: str = ""
    """Reason of the end, as a sentence of the boot script."""


@dataclass(frozen=True)
class Whose:
    """Full names of a node."""

    cluster: str
    pool: str
    node: str


def name_of(cluster: str, node_id: str) -> str:
    """Name of the instance (RFC 1035). Always the same for a node, so that it cannot be started twice in a zone; clusters that
    share a project do not meet."""
    return _short(f"tenuto-{node_id.lower()}", f"{cluster}\0{node_id}", r"[^a-z0-9]+", NAME_MAX)


def label_of(text: str) -> str:
    """Value of a label: the text itself if it can be one."""
    if re.fullmatch(r"[a-z0-9_-]{1,63}", text):
        return text
    return _short(text.lower(), text, r"[^a-z0-9_-]+", NAME_MAX)


def _short(text: str, whole: str, others: str, characters_max: int) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:HASH_CHARACTERS]
    kept = re.sub(others, "-", text)[: characters_max - HASH_CHARACTERS - 1].strip("-_")
    return f"{kept}-{digest}" if kept else f"n-{digest}"


def filter_of(cluster: str, pool: str) -> str:
    return f'(labels.{CLUSTER} = "{label_of(cluster)}") (labels.{POOL} = "{label_of(pool)}")'


def request_id(project: str, cluster: str, zone: str, order: Order) -> str:
    """Id of the one request that starts the node with this token: where it comes twice, Google carries it out once. Another
    attempt has another token: its request must not be taken for the one that failed."""
    token = hashlib.sha256(order.environment.get("TENUTO_JOIN_TOKEN", "").encode()).hexdigest()
    return str(uuid5(REQUESTS, "\0".join((project, zone, name_of(cluster, order.node_id), token))))


def provider_id_of(project: str, machine: ComputeInstance) -> str:
    return f"{project}/{machine.zone}/{machine.name}"


def place_of(provider_id: str) -> tuple[str, str, str]:
    """Project, zone and name."""
    project, zone, name = (*provider_id.split("/"), "", "")[:3]
    return project, zone, name


def whose(machine: ComputeInstance) -> Whose | None:
    """None: the instance is none of a node."""
    try:
        names = json.loads(machine.description)["tenuto"]
        return Whose(str(names["cluster"]), str(names["pool"]), str(names["node"]))
    except (ValueError, KeyError, TypeError):
        return None


def body(
    project: str, cluster: str, pool: str, order: Order, settings: InstanceSettings, zone: str, *, boot_seconds: int, now: float
) -> dict[str, Any]:
    """The instance, with the names of fields that the official client has. It has the join token, in the startup script."""
    ends_at = now + settings.boot.lifetime_hours * 3_600 + LIFETIME_MARGIN_SECONDS
    stop_seconds = STOP_SPOT_SECONDS if settings.spot else STOP_SECONDS
    script = boot_script(order, settings.boot, end_notice="gcp", boot_seconds=boot_seconds, stop_seconds=stop_seconds)
    metadata = {
        "startup-script": script,
        "enable-guest-attributes": "TRUE",
        "serial-port-logging-enable": "FALSE",  # what the machine prints stays with it
        "block-project-ssh-keys": "TRUE",
    }
    found: dict[str, Any] = {
        "name": name_of(cluster, order.node_id),
        "description": json.dumps({"tenuto": {"cluster": cluster, "pool": pool, "node": order.node_id}}),
        "machine_type": f"zones/{zone}/machineTypes/{settings.machine_type}",
        "labels": {
            **dict(settings.labels),
            CLUSTER: label_of(cluster),
            POOL: label_of(pool),
            NODE: label_of(order.node_id),
            ENDS: datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%d-%H%M"),
        },
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {
                    "source_image": settings.image_path(project),
                    "disk_size_gb": settings.disk_gb,
                    "disk_type": f"zones/{zone}/diskTypes/{settings.disk_type}",
                },
            }
        ],
        "network_interfaces": [_interface(project, settings, zone)],
        "scheduling": {
            "automatic_restart": False,  # a machine that starts again is no node
            "on_host_maintenance": "TERMINATE" if settings.terminates else "MIGRATE",
            "provisioning_model": "SPOT" if settings.spot else "STANDARD",
            "instance_termination_action": "DELETE",
            "max_run_duration": {"seconds": round(ends_at - now)},
        },
    }
    if settings.tags:
        found["tags"] = {"items": list(settings.tags)}
    if settings.accelerator is not None:
        kind = f"projects/{project}/zones/{zone}/acceleratorTypes/{settings.accelerator.kind}"
        found["guest_accelerators"] = [{"accelerator_type": kind, "accelerator_count": settings.accelerator.count}]
    if settings.service_account:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        found["service_accounts"] = [{"email": settings.service_account, "scopes": scopes}]
    return found


def _interface(project: str, settings: InstanceSettings, zone: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if settings.network or not settings.subnetwork:
        name = settings.network or "default"
        found["network"] = name if "/" in name else f"projects/{project}/global/networks/{name}"
    if settings.subnetwork:
        name = settings.subnetwork
        found["subnetwork"] = name if "/" in name else f"projects/{project}/regions/{region_of(zone)}/subnetworks/{name}"
    if settings.external_ip:
        found["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    return found


def node_of(project: str, machine: ComputeInstance, node_id: str, words: Words | None = None) -> RealNode:
    """`words`: those of a machine that has ended."""
    return RealNode(node_id, provider_id_of(project, machine), _phase(machine), _detail(machine, words or Words()))


def _phase(machine: ComputeInstance) -> Phase:
    if machine.ended:
        return "ended"
    return "pending" if machine.status in PENDING else "running"


def _detail(machine: ComputeInstance, words: Words) -> str:
    parts = [machine.status] if machine.status != "RUNNING" else []
    if machine.status in ENDING:
        parts = [f"{machine.status}: it is being ended"]
    parts += [part for part in (machine.status_message, words.why, last_line(words.log)) if part]
    return shown("; ".join(parts))


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def last_lines(text: str, lines_max: int) -> str:
    """Last lines, each with its end."""
    lines = text.replace("\r", "").splitlines()[-max(1, lines_max) :]
    return "".join(f"{line}\n" for line in lines)


def shown(text: str) -> str:
    text = visible(" ".join(text.split()))
    return text if len(text) <= DETAIL_MAX else text[: DETAIL_MAX - 3] + "..."


def time_of(text: str) -> float | None:
    """Seconds since 1970. None: `text` is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def quota_lack(quotas: Mapping[str, tuple[float, float]], needed: Mapping[str, float]) -> list[str]:
    """Sentences on quotas (metric -> used, most) that leave less than is needed."""
    return [
        f"{metric} has {max(0.0, most - used):g} of {most:g} left, and one node needs {amount:g}"
        for metric, amount in needed.items()
        if metric in quotas
        for used, most in [quotas[metric]]
        if most - used < amount
    ]
