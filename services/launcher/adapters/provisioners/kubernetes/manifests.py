"""Manifests of a node for Kubernetes: a pod, and a Secret with the environment of its agent. Pure.

The pod comes first and owns the Secret (ownerReference), so deleting the pod deletes the Secret, also if the launcher was killed
between the two. The container does not start before the Secret exists.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import PodSettings

Document = dict[str, Any]
CLUSTER, POOL, NODE = "tenuto.dev/cluster", "tenuto.dev/pool", "tenuto.dev/node"
"""Labels of everything that belongs to a node. Their values are shortened where Kubernetes allows less than a name of Tenuto; the
annotation of the name NODE has the whole id."""
LABEL_MAX = 63
NAME_MAX = 63
"""A pod's name is its host's name, too."""
HASH_CHARACTERS = 10
CONTAINER = "agent"
PACKAGES_CONTAINER = "packages"
"""Container of the pool's own image that ends before the agent starts in another: it brings Tenuto's packages along."""
PACKAGES = "/tenuto"
"""Place of these packages, as in containers of the docker runtime; the agent cannot write there."""
DISK = "/var/lib/tenuto"
"""Disk that ends with the pod. It belongs to root, so the agent cannot close it to others and has a directory in it."""
DIRECTORY = f"{DISK}/agent"
MARGIN_SECONDS = 5
"""Part of the pod's grace that the agent does not count on: the notice takes a moment, and so does its own end."""
ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE")
"""Capabilities that an agent needs to run trials as another account (docs/security.md)."""


def name_of(cluster: str, node_id: str) -> str:
    """Name of the pod and its Secret. Always the same for a node, so that it cannot be started twice; clusters that share a
    namespace do not meet."""
    return _short(node_id.lower(), f"{cluster}\0{node_id}", r"[^a-z0-9]+", "-", NAME_MAX)


def label_of(text: str) -> str:
    """Value of a label: the text itself if it can be one."""
    if len(text) <= LABEL_MAX and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text):
        return text
    return _short(text, text, r"[^A-Za-z0-9_.-]+", "-", LABEL_MAX)


def _short(text: str, whole: str, others: str, replacement: str, characters_max: int) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:HASH_CHARACTERS]
    kept = re.sub(others, replacement, text)[: characters_max - HASH_CHARACTERS - 1].strip("-_.")
    return f"{kept}-{digest}" if kept else f"n-{digest}"


def selector_of(cluster: str, pool: str) -> str:
    return f"{CLUSTER}={label_of(cluster)},{POOL}={label_of(pool)}"


def labels_of(cluster: str, pool: str, node_id: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tenuto-agent",
        "app.kubernetes.io/managed-by": "tenuto",
        CLUSTER: label_of(cluster),
        POOL: label_of(pool),
        NODE: label_of(node_id),
    }


def secret(cluster: str, pool: str, order: Order, pod_uid: str) -> Document:
    """Secret with the whole environment of the agent: which parts are secret is known only where it was made."""
    name = name_of(cluster, order.node_id)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": labels_of(cluster, pool, order.node_id),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod_uid}],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": dict(order.environment),
    }


def pod(cluster: str, pool: str, order: Order, options: PodSettings) -> Document:
    name = name_of(cluster, order.node_id)
    spec: Document = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The agent is not the first process then: a signal ends it before it listens to it, and what its workers leave is reaped.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": options.grace_seconds,
        "securityContext": _account(options),
        "containers": [_container(order, options, name)],
        "volumes": _volumes(order, options),
    }
    if order.image:
        spec["initContainers"] = [_packages_container(order, options)]
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    if options.pull_secret_names:
        spec["imagePullSecrets"] = [{"name": item} for item in options.pull_secret_names]
    if options.node_selector:
        spec["nodeSelector"] = dict(options.node_selector)
    if options.tolerations:
        spec["tolerations"] = [_toleration(item.key, item.value, item.effect) for item in options.tolerations]
    if options.priority_class:
        spec["priorityClassName"] = options.priority_class
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    # An autoscaler of machines takes none away under a pod that works; Tenuto itself gives back those without work.
    annotations = {NODE: order.node_id, "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    metadata = {"name": name, "labels": labels_of(cluster, pool, order.node_id), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _account(options: PodSettings) -> Document:
    user = 0 if options.worker_user else options.run_as_user
    return {
        "runAsNonRoot": user != 0,
        "runAsUser": user,
        "runAsGroup": options.run_as_user,
        "fsGroup": options.run_as_user,
        "fsGroupChangePolicy": "OnRootMismatch",  # or each start would walk through all files of a claim
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _container(order: Order, options: PodSettings, secret_name: str) -> Document:
    capabilities: Document = {"drop": ["ALL"]}
    if options.worker_user:
        capabilities["add"] = list(ROOT_CAPABILITIES)
    own = {
        "HOME": DISK,  # the account may be one that the image does not know
        "USER": "tenuto",
        "TENUTO_AGENT_DIRECTORY": DIRECTORY,
        "TENUTO_LEAVE_SIGNAL_SECONDS": str(options.grace_seconds - MARGIN_SECONDS),
    }
    if options.worker_user:
        own["TENUTO_WORKER_USER"] = options.worker_user
    command = ["python", "-m", "tenuto.cli.main", "agent", "run", "--name", order.node_id]
    mounts: list[Document] = [{"name": "disk", "mountPath": DISK}, {"name": "shm", "mountPath": "/dev/shm"}]
    if order.image:
        command = ["python3", "-I", f"{PACKAGES}/boot.py", "agent", order.image, order.node_id]
        mounts.append({"name": "packages", "mountPath": PACKAGES, "readOnly": True})
        if _has_devices(order, options):
            own["TENUTO_GPUS_REQUIRED"] = "1"  # an image may hide the driver, and would then train on processors
    mounts += [
        {"name": f"claim-{index}", "mountPath": claim.path, **({"readOnly": True} if claim.read_only else {})}
        for index, claim in enumerate(options.volumes)
    ]
    return {
        "name": CONTAINER,
        "image": order.image or options.image,
        "imagePullPolicy": options.image_pull_policy,
        "command": command,
        "envFrom": [{"secretRef": {"name": secret_name}}],
        "env": [{"name": key, "value": value} for key, value in own.items()],
        "resources": _resources(order, options),
        "securityContext": _security(capabilities),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # so that the last lines of a failed agent are in its status
        "volumeMounts": mounts,
    }


def _packages_container(order: Order, options: PodSettings) -> Document:
    """A quota may demand amounts of each container; a pod needs the most of either, so these cost nothing more."""
    return {
        "name": PACKAGES_CONTAINER,
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "command": ["python", "-m", "tenuto.workers.agent.image_packages", PACKAGES],
        "env": [{"name": "HOME", "value": PACKAGES}],
        "resources": _resources(order, options, devices=False),
        "securityContext": _security({"drop": ["ALL"]}),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "packages", "mountPath": PACKAGES}],
    }


def _security(capabilities: Document) -> Document:
    return {"allowPrivilegeEscalation": False, "privileged": False, "capabilities": capabilities}


def _resources(order: Order, options: PodSettings, *, devices: bool = True) -> Document:
    """Requests equal limits: such a pod is the last to be evicted when its machine runs out of memory."""
    given = {"cpu": options.cpu, "memory": options.memory, "ephemeral-storage": options.disk}
    if devices and _has_devices(order, options):
        given[options.gpu_resource] = str(order.node_type.slots)
    amounts = {name: amount for name, amount in given.items() if amount}
    return {"requests": amounts, "limits": dict(amounts)} if amounts else {}


def _has_devices(order: Order, options: PodSettings) -> bool:
    return bool(options.gpu_resource) and order.node_type.device != "cpu"


def _volumes(order: Order, options: PodSettings) -> list[Document]:
    own: list[Document] = [
        {"name": "disk", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shm}},
    ]
    if order.image:
        own.append({"name": "packages", "emptyDir": {}})
    claims: list[Document] = [
        {
            "name": f"claim-{index}",
            "persistentVolumeClaim": {"claimName": claim.name, **({"readOnly": True} if claim.read_only else {})},
        }
        for index, claim in enumerate(options.volumes)
    ]
    return own + claims


def _toleration(key: str, value: str, effect: str) -> Document:
    found = {"key": key, "operator": "Equal", "value": value} if value else {"key": key, "operator": "Exists"}
    return found | ({"effect": effect} if effect else {})
