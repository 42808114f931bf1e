"""Settings of a pool whose nodes are pods, read and checked. Names and values are documented in docs/kubernetes.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Literal

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners.setting_readers import (
    BadSetting,
    Reader,
    file_name,
    matching,
    number,
    read,
    truth,
)

KIND = "kubernetes"

GRACE_SECONDS = (20, 3_600)
"""Least and longest time of a pod between the notice of its end and the kill. The agent itself needs 15 s of it."""
ITEMS_MAX = 50
"""Most items of a setting that is a list."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = r"[0-9]{1,12}(\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"
_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}"
_ACCOUNT = r"[a-z_][a-z0-9_-]{0,31}"
_PATH = re.compile(r"/[A-Za-z0-9._/@+-]{1,500}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Toleration:
    key: str
    value: str
    """Empty: any value."""
    effect: str
    """Empty: any effect."""


@dataclass(frozen=True)
class Claim:
    """PersistentVolumeClaim that each pod mounts."""

    name: str
    path: str
    read_only: bool


@dataclass(frozen=True)
class KubernetesConnection:
    """Way to the API server. Alike for all types of nodes of a pool."""

    namespace: str = ""
    """Empty: that of the launcher's own pod, or of the context; else `default`."""
    kubeconfig: str = ""
    """Name of a file in the launcher's directory of secrets. Empty: the launcher is a pod of that Kubernetes itself."""
    context: str = ""


@dataclass(frozen=True)
class PodSettings:
    """Pod of one type of nodes."""

    image: str
    """Image of its agent, if it is in no image of a trial; then this one brings Tenuto's packages along."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    pull_secret_names: tuple[str, ...] = ()
    service_account: str = ""
    """Account of the pod, for admission and pulling images; its token is not mounted."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str = ""
    runtime_class: str = ""
    gpu_resource: str = ""
    """Resource that a slot is one of, such as nvidia.com/gpu. Empty: the pod asks for no device."""
    cpu: str = ""
    memory: str = ""
    disk: str = ""
    """Ephemeral storage."""
    shm: str = "2Gi"
    """Most shared memory (/dev/shm). It counts as memory of the pod."""
    volumes: tuple[Claim, ...] = ()
    run_as_user: int = 1000
    allow_root: bool = False
    worker_user: str = ""
    """Account of the image that trials run as. Empty: the agent's own."""
    grace_seconds: int = 150


def connection_of(provisioning: Provisioning) -> KubernetesConnection:
    """Raises BadSetting."""
    given = {key: value for key, value in provisioning.settings.items() if key in _CONNECTION}
    return KubernetesConnection(**read(KIND, _CONNECTION, given, {}))


def pod_of(provisioning: Provisioning, node_type: NodeType) -> PodSettings:
    """Settings of a pod of this type: the pool's, and the type's own before them. Raises BadSetting."""
    if misplaced := sorted(_CONNECTION.keys() & node_type.settings.keys()):
        raise BadSetting(f"Setting {misplaced[0]} belongs to the pool, not to its type of nodes {node_type.name}.")
    given = {**provisioning.settings, **node_type.settings}
    values = read(KIND, {**_POD, **_CONNECTION}, given, {"image": "image=registry.example.org/tenuto:1"})
    found = PodSettings(**{key: value for key, value in values.items() if key not in _CONNECTION})
    if found.run_as_user == 0 and not found.allow_root:
        raise BadSetting("Setting run_as_user is 0, which is root: choose another account, or set allow_root=true.")
    if found.worker_user and not found.allow_root:
        raise BadSetting(
            "Setting worker_user needs an agent that runs as root, to change to that account: set allow_root=true as well."
        )
    if node_type.device not in ("", "cpu") and not found.gpu_resource:
        raise BadSetting(
            f"Nodes of type {node_type.name} have the device {node_type.device}, but ask for none: set gpu_resource, such as"
            " gpu_resource=nvidia.com/gpu."
        )
    if node_type.images:
        raise BadSetting(
            f"Nodes of type {node_type.name} cannot run trials that name an image: a pod has no Docker; leave out images, and"
            " name the images in which a pod may run as a whole by node_images."
        )
    if node_type.node_images and (found.worker_user or found.run_as_user == 0):
        root = "worker_user is set" if found.worker_user else "run_as_user is 0"
        raise BadSetting(
            f"Nodes of type {node_type.name} have node_images, and {root}: an image that a trial names would run as root; leave"
            " out one of the two."
        )
    return found


def _items(name: str, text: str) -> list[str]:
    found = [item.strip() for item in text.split(",") if item.strip()]
    if len(found) > ITEMS_MAX:
        raise BadSetting(f"Setting {name} may have at most {ITEMS_MAX} items (found {len(found)}).")
    return found


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(matching(_NAME.pattern, "a list of names with commas between")(name, item) for item in _items(name, text))


def _selector(name: str, text: str) -> tuple[tuple[str, str], ...]:
    found = {}
    for item in _items(name, text):
        key, equals, value = item.partition("=")
        if not (equals and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise BadSetting(f"Setting {name} must be labels key=value with commas between (found {item[:100]!r}).")
        found[key] = value
    return tuple(found.items())


def _tolerations(name: str, text: str) -> tuple[Toleration, ...]:
    found = []
    for item in _items(name, text):
        taint, _, effect = item.partition(":")
        key, _, value = taint.partition("=")
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value) and effect in ("", *_EFFECTS)):
            raise BadSetting(
                f"Setting {name} must be taints key=value:Effect with commas between, in which value and effect may be left out"
                f" (found {item[:100]!r})."
            )
        found.append(Toleration(key, value, effect))
    return tuple(found)


def _claims(name: str, text: str) -> tuple[Claim, ...]:
    found: list[Claim] = []
    for item in _items(name, text):
        claim, _, rest = item.partition(":")
        path, _, mode = rest.partition(":")
        parts = path.split("/")
        if not (_NAME.fullmatch(claim) and _PATH.fullmatch(path) and ".." not in parts and mode in ("", "ro", "rw")):
            raise BadSetting(
                f"Setting {name} must be claims NAME:/PATH or NAME:/PATH:ro with commas between (found {item[:100]!r})."
            )
        if any(other.path == path for other in found):
            raise BadSetting(f"Setting {name} mounts two claims at {path}.")
        found.append(Claim(claim, path, mode == "ro"))
    return tuple(found)


_NAME_ALLOWED = "a name of small letters, digits, - and ."
_QUANTITY_ALLOWED = "a quantity such as 4, 500m or 16Gi"
_CONNECTION: dict[str, Reader] = {
    "namespace": matching(_NAMESPACE, "a name of small letters, digits and -, at most 63"),
    "kubeconfig": file_name,
    "context": matching(r"[^\s\x00-\x1f]{1,200}", "the name of a context of the kubeconfig"),
}
_POD: dict[str, Reader] = {
    "image": matching(_IMAGE, "the name of an image"),
    "image_pull_policy": matching("IfNotPresent|Always|Never", "IfNotPresent, Always or Never"),
    "pull_secret_names": _names,
    "service_account": matching(_NAME.pattern, _NAME_ALLOWED),
    "node_selector": _selector,
    "tolerations": _tolerations,
    "priority_class": matching(_NAME.pattern, _NAME_ALLOWED),
    "runtime_class": matching(_NAME.pattern, _NAME_ALLOWED),
    "gpu_resource": matching(_LABEL_KEY.pattern, "the name of a resource, such as nvidia.com/gpu"),
    "cpu": matching(_QUANTITY, _QUANTITY_ALLOWED),
    "memory": matching(_QUANTITY, _QUANTITY_ALLOWED),
    "disk": matching(_QUANTITY, _QUANTITY_ALLOWED),
    "shm": matching(_QUANTITY, _QUANTITY_ALLOWED),
    "volumes": _claims,
    "run_as_user": number(0, 2**31 - 1),
    "allow_root": truth,
    "worker_user": matching(_ACCOUNT, "the name of an account"),
    "grace_seconds": number(*GRACE_SECONDS),
}
NAMES = frozenset({*_POD, *_CONNECTION})
"""All settings that there are."""
assert _POD.keys() == {item.name for item in fields(PodSettings)}
assert _CONNECTION.keys() == {item.name for item in fields(KubernetesConnection)}
