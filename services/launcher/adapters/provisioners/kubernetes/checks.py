"""`tenuto pool check` for pods: what is there for nodes of a pool, and what is missing. Nothing is started.

The pod of each type of nodes is shown to the API server as a dry run, which passes all that a real one passes: rights, admission,
quota, defaults. What a dry run cannot tell is said as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tenuto.schemas.image_patterns import shown
from tenuto.schemas.provisioning import NodeType
from tenuto.services.launcher.adapters.provisioners import Finding, Order
from tenuto.services.launcher.adapters.provisioners.kubernetes import manifests, pods
from tenuto.services.launcher.adapters.provisioners.kubernetes.door import (
    Document,
    KubernetesClient,
    KubernetesRefusal,
    KubernetesUnreachable,
)
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import PodSettings

RIGHTS = (
    ("pods", ("create", "get", "list", "watch", "delete")),
    ("pods/log", ("get",)),
    ("secrets", ("create",)),
)
"""All that the launcher needs, in the pool's namespace. A Secret goes with its pod, so it need not be deleted or read."""
Kinds = Sequence[tuple[NodeType, PodSettings]]


async def findings(door: KubernetesClient, cluster: str, pool: str, kinds: Kinds) -> list[Finding]:
    try:
        version = await door.version()
    except KubernetesRefusal as error:
        return [Finding(f"API server {door.address}", str(error.error("say its version")))]
    except KubernetesUnreachable as error:
        return [Finding(f"API server {door.address}", f"It cannot be asked: {error}.")]
    found = [Finding(f"API server {door.address}, Kubernetes {str(version.get('gitVersion', '?'))[:50]}")]
    try:
        found += await _rights(door)
        found += await _named_objects(door, kinds)
        found += await _quotas(door)
        for node_type, settings in kinds:
            found.append(await _dry_run(door, cluster, pool, node_type, settings))
            found.append(Finding(f"image {settings.image}: whether it can be pulled shows when the first pod starts"))
            if node_type.node_images:
                found.append(await _dry_run(door, cluster, pool, node_type, settings, in_image=True))
                named = shown(node_type.node_images)
                found.append(Finding(f"images {named}: whether one can be pulled shows when a trial names it"))
    except KubernetesUnreachable as error:
        found.append(Finding("the remaining checks", f"They could not be made: {error}."))
    return found


async def _rights(door: KubernetesClient) -> list[Finding]:
    found = []
    for resource, verbs in RIGHTS:
        try:
            lacking = [verb for verb in verbs if not await door.may(verb, "", resource)]
        except KubernetesRefusal as error:
            found.append(Finding(f"rights on {resource}", str(error.error("say what the launcher may"))))
            continue
        problem = (
            f"The launcher may not {', '.join(lacking)} {resource} in namespace {door.namespace}: bind a Role with these verbs"
            " to its account."
            if lacking
            else ""
        )
        found.append(Finding(f"rights on {resource} in namespace {door.namespace}", problem))
    return found


async def _named_objects(door: KubernetesClient, kinds: Kinds) -> list[Finding]:
    accounts = sorted({settings.service_account for _, settings in kinds if settings.service_account})
    classes = sorted({settings.priority_class for _, settings in kinds if settings.priority_class})
    claims = sorted({claim.name for _, settings in kinds for claim in settings.volumes})
    named = [(f"service account {name}", partial(door.read_service_account, name)) for name in accounts]
    named += [(f"priority class {name}", partial(door.read_priority_class, name)) for name in classes]
    named += [(f"claim {name}", partial(door.read_claim, name)) for name in claims]
    return [
        await _exists(f"namespace {door.namespace}", door.read_namespace),
        *[await _exists(what, read) for what, read in named],
    ]


async def _exists(what: str, read: Callable[[], Awaitable[Document]]) -> Finding:
    try:
        await read()
    except KubernetesRefusal as error:
        if error.status == 404:
            return Finding(what, f"There is no {what}: create it, or name another in the settings.")
        if error.status == 403:  # no right is needed for it: the dry run, or the first pod, tells
            return Finding(f"{what}: not seen, as the launcher may not read it")
        return Finding(what, str(error.error(f"show {what}")))
    return Finding(what)


async def _quotas(door: KubernetesClient) -> list[Finding]:
    try:
        quotas = (await door.list_quotas()).get("items") or []
    except KubernetesRefusal as error:
        if error.status == 403:
            return [Finding("quota: not seen, as the launcher may not list it")]
        return [Finding("quota", str(error.error("list quotas")))]
    found = []
    for quota in quotas:
        rows = pods.quota_left(quota)
        used_up = [name for name, used, most in rows if used == most]
        text = ", ".join(f"{name} {used} of {most}" for name, used, most in rows)
        problem = f"Nothing is left of {', '.join(used_up)}: no further pod that needs it can start." if used_up else ""
        found.append(Finding(f"quota {quota['metadata']['name']}: {text}"[:300], problem))
    return found or [Finding(f"quota: namespace {door.namespace} has none")]


async def _dry_run(
    door: KubernetesClient, cluster: str, pool: str, node_type: NodeType, settings: PodSettings, *, in_image: bool = False
) -> Finding:
    """`in_image`: of a pod in an image that a trial names."""
    what = f"dry run of a pod of type {node_type.name}" + (" in a trial's image" if in_image else "")
    order = Order(f"{pool}-check", node_type, {}, settings.image if in_image else "")
    try:
        await door.create_pod(manifests.pod(cluster, pool, order, settings), dry_run=True)
    except KubernetesRefusal as error:
        return Finding(what, str(error.error("take such a pod")))
    return Finding(what)
