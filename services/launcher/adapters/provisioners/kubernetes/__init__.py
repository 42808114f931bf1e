"""Nodes as pods: the port of provisioners on Kubernetes. Needs the extra `kubernetes`.

A node is one pod, whose name follows from the cluster and the node's id: Kubernetes itself keeps a second one from starting. The
keeper asks `nodes()` every few seconds; `changes()`, a watch, only makes it ask at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Finding, Order, ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners.groups import take_back, worst
from tenuto.services.launcher.adapters.provisioners.kubernetes import checks, manifests, pods, watching
from tenuto.services.launcher.adapters.provisioners.kubernetes.door import (
    Document,
    KubernetesClient,
    KubernetesRefusal,
    KubernetesUnreachable,
    open_door,
)
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import (
    PodSettings,
    connection_of,
    pod_of,
)
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting

logger = logging.getLogger(__name__)

START_SECONDS_MAX = 120.0
"""Longest time for the pods of one group: at a slow API server's 200 ms each, several hundred."""
TOGETHER_MAX = 8
"""Most requests of one group at once: API servers limit each client, and others use it, too."""
PAGE_PODS = 500
"""Pods in one answer, as kubectl asks for them."""
PAGES_MAX = 20
"""Most pages: ten times what a pool may have."""
ENDED_SECONDS_MAX = 3_600.0
"""Time for which a pod that has ended is kept, so that its end and its log can be seen; Kubernetes would keep it for ever."""
ENDED_DELETED_MAX = 20
"""Most ended pods that are deleted after one answer, so that `nodes` stays quick."""
LOG_BYTES_MAX = 1 << 20
"""Most of a pod's log that is read."""
_NO_LOG = b"unable to retrieve container logs for "
"""Beginning of the message that a kubelet gives instead of a log, for a container that it has removed with its log."""


class KubernetesProvisioner:
    """Provisioner of one pool of one cluster on Kubernetes."""

    def __init__(self, cluster: str, pool: str, provisioning: Provisioning, secrets_directory: Path | None = None) -> None:
        """`secrets_directory`: where a kubeconfig is read from."""
        self._cluster, self._pool, self._provisioning, self._secrets = cluster, pool, provisioning, secrets_directory
        self._open: KubernetesClient | None = None
        self._opening = asyncio.Lock()

    @property
    def waits_long(self) -> bool:
        return True

    @property
    def starts_images(self) -> Literal[True]:
        return True

    async def check(self) -> Sequence[Finding]:
        try:
            kinds = [(node_type, pod_of(self._provisioning, node_type)) for node_type in self._provisioning.node_types]
            door = await self._door()
        except (BadSetting, ProvisionerError) as error:
            return [Finding("settings", str(error))]
        return await checks.findings(door, self._cluster, self._pool, kinds)

    async def start(self, orders: Sequence[Order]) -> None:
        prepared = [(order, self._pod_settings(order)) for order in orders]
        door = await self._door()
        slots, begun = asyncio.Semaphore(TOGETHER_MAX), set[str]()

        async def one(order: Order, settings: PodSettings) -> None:
            async with slots:
                await self._start_one(door, order, settings, begun)

        tasks = [asyncio.create_task(one(order, settings)) for order, settings in prepared]
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                done = await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            done = [
                ProvisionerError(f"Kubernetes did not start {len(orders)} pods within {START_SECONDS_MAX:.0f} s.", "unreachable")
            ]
        failures = [item for item in done if isinstance(item, BaseException)]
        if failures:
            await take_back(
                "pod", sorted(begun), lambda name: _delete(door, door.namespace, name), (KubernetesRefusal, KubernetesUnreachable)
            )
            raise worst(failures)

    async def nodes(self) -> Sequence[RealNode]:
        door = await self._door()
        try:
            found = await self._list(door)
        except (KubernetesRefusal, KubernetesUnreachable) as error:
            raise error.error(f"list the pods of pool {self._pool} in namespace {door.namespace}") from error
        await self._tidy(door, found)
        return [pods.node_of(pod) for pod in found]

    async def changes(self) -> AsyncGenerator[None, None]:
        door = await self._door()
        try:
            async with aclosing(watching.changes(door, manifests.selector_of(self._cluster, self._pool))) as seen:
                async for _ in seen:
                    yield
        except (KubernetesRefusal, KubernetesUnreachable) as error:
            raise error.error(f"watch the pods of pool {self._pool} in namespace {door.namespace}") from error

    async def stop(self, node: RealNode) -> None:
        door = await self._door()
        namespace, name = pods.place_of(node.provider_id)
        try:
            await _delete(door, namespace, name)
        except (KubernetesRefusal, KubernetesUnreachable) as error:
            raise error.error(f"delete pod {name}") from error

    async def logs(self, node: RealNode, lines_max: int) -> str:
        door = await self._door()
        namespace, name = pods.place_of(node.provider_id)
        try:
            found = await door.pod_log(namespace, name, max(1, lines_max), LOG_BYTES_MAX)
        except KubernetesRefusal as error:
            if error.status in (400, 404):  # 400: its container has not started yet
                return ""
            raise error.error(f"show the log of pod {name}") from error
        except KubernetesUnreachable as error:
            raise error.error(f"show the log of pod {name}") from error
        return "" if found.startswith(_NO_LOG) else found.decode(errors="replace")

    async def close(self) -> None:
        door, self._open = self._open, None
        if door is not None:
            await door.close()

    def _pod_settings(self, order: Order) -> PodSettings:
        """Raises ProvisionerError."""
        try:
            return pod_of(self._provisioning, order.node_type)
        except BadSetting as error:
            raise ProvisionerError(str(error), "refused") from error

    async def _door(self) -> KubernetesClient:
        """Raises ProvisionerError."""
        async with self._opening:
            if self._open is None:
                try:
                    connection = connection_of(self._provisioning)
                except BadSetting as error:
                    raise ProvisionerError(str(error), "refused") from error
                self._open = await open_door(connection, self._secrets)
            return self._open

    async def _start_one(self, door: KubernetesClient, order: Order, settings: PodSettings, begun: set[str]) -> None:
        """Adds to `begun` the name of a pod that this call may have created. Raises ProvisionerError."""
        body = manifests.pod(self._cluster, self._pool, order, settings)
        name = body["metadata"]["name"]
        # Asked first: a pod that Kubernetes refuses for its name stays in the quota's count for minutes.
        made = await self._found(door, name, order)
        if made is None:
            made = await self._create(door, body, order, begun)
        if pods.is_ended(made) or made["metadata"].get("deletionTimestamp"):
            return
        # Also for a pod that was found: its creator may have been killed before its Secret was there.
        try:
            await door.create_secret(manifests.secret(self._cluster, self._pool, order, made["metadata"]["uid"]))
        except KubernetesRefusal as error:
            if error.status == 409 and error.reason == "AlreadyExists":
                return
            # Its message is left out: it may quote what it refuses.
            raise KubernetesRefusal(error.status, error.reason, error.message if error.status == 403 else "").error(
                f"take the Secret of pod {name}"
            ) from None
        except KubernetesUnreachable as error:
            raise error.error(f"take the Secret of pod {name}") from error

    async def _create(self, door: KubernetesClient, body: Document, order: Order, begun: set[str]) -> Document:
        """Raises ProvisionerError."""
        name = body["metadata"]["name"]
        begun.add(name)
        try:
            return await door.create_pod(body)
        except KubernetesUnreachable as error:
            raise error.error(f"start pod {name}") from error
        except KubernetesRefusal as error:
            begun.discard(name)
            found = await self._found(door, name, order) if _may_be_there(error) else None
            if found is None:
                raise error.error(f"start pod {name}") from error
            return found

    async def _found(self, door: KubernetesClient, name: str, order: Order) -> Document | None:
        """The pod that has the name already. Raises ProvisionerError."""
        try:
            made = await door.read_pod(name)
        except (KubernetesRefusal, KubernetesUnreachable) as error:
            if isinstance(error, KubernetesRefusal) and error.status in (403, 404):
                return None
            raise error.error(f"show pod {name}") from error
        if pods.node_id_of(made) != order.node_id:
            raise ProvisionerError(
                f"Pod {name} in namespace {door.namespace} is not a node of this cluster: delete it, or set another namespace.",
                "refused",
            )
        return made

    async def _list(self, door: KubernetesClient) -> list[Document]:
        """Raises KubernetesRefusal and KubernetesUnreachable."""
        selector, after, found = manifests.selector_of(self._cluster, self._pool), "", list[Document]()
        for _ in range(PAGES_MAX):
            page = await door.list_pods(selector, PAGE_PODS, after)
            found += page.get("items") or []
            after = str((page.get("metadata") or {}).get("continue") or "")
            if not after:
                return found
        raise KubernetesUnreachable(f"{door.address} has more than {PAGES_MAX * PAGE_PODS} pods of pool {self._pool}")

    async def _tidy(self, door: KubernetesClient, found: Sequence[Document]) -> None:
        """Deletes pods that ended long ago, as Kubernetes does for those of Jobs. What fails is done after a later answer."""
        before = time.time() - ENDED_SECONDS_MAX
        old = [pod for pod in found if pods.is_ended(pod) and (ended := pods.finished_at(pod)) is not None and ended < before]
        for pod in old[:ENDED_DELETED_MAX]:
            namespace, name = pods.place_of(pods.provider_id_of(pod))
            try:
                await _delete(door, namespace, name)
            except (KubernetesRefusal, KubernetesUnreachable) as error:
                logger.info("pod %s, which has ended, could not be deleted: %s", name, error)
                return


def _may_be_there(error: KubernetesRefusal) -> bool:
    """Quota is counted before the name is looked at, so a pod that is there already may be refused for it."""
    return (error.status == 409 and error.reason == "AlreadyExists") or error.kind() == "quota"


async def _delete(door: KubernetesClient, namespace: str, name: str) -> None:
    """Deletes the pod, with the grace period that the pod itself names; a missing one is no error. Raises KubernetesRefusal and
    KubernetesUnreachable."""
    try:
        await door.delete_pod(namespace, name)
    except KubernetesRefusal as error:
        if error.status != 404:
            raise
