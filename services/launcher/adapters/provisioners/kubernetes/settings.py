"""Settings of a pool whose nodes are pods, read and checked. Names and values are documented in docs/kubernetes.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tenuto.schemas.provisioning import NodeType, Provisioning

GRACE_SECONDS = (20, 3_600)
"""Least and longest time of a pod between the notice of its end and the kill. The agent itself needs 15 s of it."""
ITEMS_MAX = 50
"""Most items of a setting that is a list."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PATH = re.compile(r"/[A-Za-z0-9._/@+-]{1,500}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class BadSetting(ValueError):
    """`str(error)` is one sentence for the user."""


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
class Connection:
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
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
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


def connection_of(provisioning: Provisioning) -> Connection:
    """Raises BadSetting."""
    found = _read(_CONNECTION, {key: value for key, value in provisioning.settings.items() if key in _CONNECTION})
    return Connection(**found)


def pod_of(provisioning: Provisioning, node_type: NodeType) -> PodSettings:
    """Settings of a pod of this type: the pool's, and the type's own before them. Raises BadSetting."""
    if misplaced := sorted(_CONNECTION.keys() & node_type.settings.keys()):
        raise BadSetting(f"Setting {misplaced[0]} belongs to the pool, not to its type of nodes {node_type.name}.")
    given = {**provisioning.settings, **node_type.settings}
    found = PodSettings(**_read(_POD, {key: value for key, value in given.items() if key not in _CONNECTION}))
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
            " name the image of the pod by the setting image."
        )
    return found


def _read(known: Mapping[str, Callable[[str, str], Any]], given: Mapping[str, str]) -> dict[str, Any]:
    for name in given:
        if name not in known:
            allowed = ", ".join(sorted({*_POD, *_CONNECTION}))
            raise BadSetting(f"Setting {name} is unknown to the provisioner kubernetes, whose settings are: {allowed}.")
    if "image" in known and not given.get("image"):
        raise BadSetting(
            "Setting image is required: name an image with Tenuto in it, such as image=registry.example.org/tenuto:1."
        )
    return {name: known[name](name, value.strip()) for name, value in given.items() if value.strip()}


def _matching(pattern: re.Pattern[str], allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if not pattern.fullmatch(text):
            raise BadSetting(f"Setting {name} must be {allowed} (found {text[:100]!r}).")
        return text

    return read


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    return _matching(re.compile("|".join(allowed)), " or ".join(allowed))


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text[:12]) <= most):
            raise BadSetting(f"Setting {name} must be a whole number from {least} to {most} (found {text[:100]!r}).")
        return int(text)

    return read


def _items(name: str, text: str) -> list[str]:
    found = [item.strip() for item in text.split(",") if item.strip()]
    if len(found) > ITEMS_MAX:
        raise BadSetting(f"Setting {name} may have at most {ITEMS_MAX} items (found {len(found)}).")
    return found


def _names(name: str, text: str) -> tuple[str, ...]:
    return tuple(_matching(_NAME, "a list of names with commas between")(name, item) for item in _items(name, text))


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


def _truth(name: str, text: str) -> bool:
    return _one_of("true", "false")(name, text) == "true"


_NAME_ALLOWED = "a name of small letters, digits, - and ."
_QUANTITY_ALLOWED = "a quantity such as 4, 500m or 16Gi"
_CONNECTION: dict[str, Callable[[str, str], Any]] = {
    "namespace": _matching(_NAMESPACE, "a name of small letters, digits and -, at most 63"),
    "kubeconfig": _matching(_FILE, "the name of a file in the launcher's directory of secrets, without a path"),
    "context": _matching(re.compile(r"[^\s\x00-\x1f]{1,200}"), "the name of a context of the kubeconfig"),
}
_POD: dict[str, Callable[[str, str], Any]] = {
    "image": _matching(_IMAGE, "the name of an image"),
    "image_pull_policy": _one_of("IfNotPresent", "Always", "Never"),
    "image_pull_secrets": _names,
    "service_account": _matching(_NAME, _NAME_ALLOWED),
    "node_selector": _selector,
    "tolerations": _tolerations,
    "priority_class": _matching(_NAME, _NAME_ALLOWED),
    "runtime_class": _matching(_NAME, _NAME_ALLOWED),
    "gpu_resource": _matching(_LABEL_KEY, "the name of a resource, such as nvidia.com/gpu"),
    "cpu": _matching(_QUANTITY, _QUANTITY_ALLOWED),
    "memory": _matching(_QUANTITY, _QUANTITY_ALLOWED),
    "disk": _matching(_QUANTITY, _QUANTITY_ALLOWED),
    "shm": _matching(_QUANTITY, _QUANTITY_ALLOWED),
    "volumes": _claims,
    "run_as_user": _number(0, 2**31 - 1),
    "allow_root": _truth,
    "worker_user": _matching(_ACCOUNT, "the name of an account"),
    "grace_seconds": _number(*GRACE_SECONDS),
}
NAMES = frozenset({*_POD, *_CONNECTION})
"""All settings that there are."""
assert _POD.keys() == {item.name for item in fields(PodSettings)}
assert _CONNECTION.keys() == {item.name for item in fields(Connection)}
