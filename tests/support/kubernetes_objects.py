"""Objects of the tests' Kubernetes, with versions and owners; and what a scheduler and a kubelet would do with pods, when a test
says so."""

from __future__ import annotations

import asyncio
import base64
import copy
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

Document = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "secrets": "Secret",
    "namespaces": "Namespace",
    "resourcequotas": "ResourceQuota",
    "serviceaccounts": "ServiceAccount",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "priorityclasses": "PriorityClass",
}
OF_THE_CLUSTER = ("namespaces", "priorityclasses")
GROUPS = {"priorityclasses": "scheduling.k8s.io/v1"}


@dataclass
class KubernetesObjects:
    kinds: ClassVar[Mapping[str, str]] = KINDS
    groups: ClassVar[Mapping[str, str]] = GROUPS
    objects: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    """By resource, namespace (empty for those of the cluster) and name."""
    logs: dict[str, str] = field(default_factory=dict)
    counted: list[Document] = field(default_factory=list)
    """Pods that were refused for their name after they had been counted for quotas. The real one counts anew after minutes."""
    oldest: int = 100
    """Versions before it are forgotten."""
    cut_watches: int = 0
    """So many watches break (`cut`)."""
    _version: int = 100
    _history: list[tuple[int, str, str, Document]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def path_of(self, resource: str) -> str:
        return f"apis/{self.groups[resource]}" if resource in self.groups else "api/v1"

    def put(self, resource: str, namespace: str, body: Document) -> Document:
        body = {"apiVersion": self.groups.get(resource, "v1"), "kind": self.kinds[resource], **copy.deepcopy(body)}
        metadata = body["metadata"]
        if namespace:
            metadata["namespace"] = namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", now())
        known = (resource, namespace, metadata["name"]) in self.objects
        self._store(resource, namespace, body, "MODIFIED" if known else "ADDED")
        return body

    def environment(self, namespace: str, secret: str) -> dict[str, str]:
        """Empty as long as there is no such Secret."""
        data = self.objects.get(("secrets", namespace, secret), {}).get("data", {})
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def pods(self, namespace: str = "default") -> list[Document]:
        return [item for (resource, where, _), item in sorted(self.objects.items()) if (resource, where) == ("pods", namespace)]

    def pod(self, name: str, namespace: str = "default") -> Document:
        return self.objects["pods", namespace, name]

    def unschedulable(self, name: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._change(name, lambda pod: pod["status"].update(conditions=[condition]))

    def schedule(self, name: str, machine: str = "machine-1") -> None:
        """The pod has a machine, and its image is pulled."""

        def change(pod: Document) -> None:
            pod["spec"]["nodeName"] = machine
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
            self._state(pod, {"waiting": {"reason": "ContainerCreating"}})

        self._change(name, change)

    def waits(self, name: str, reason: str, message: str) -> None:
        self._change(name, lambda pod: self._state(pod, {"waiting": {"reason": reason, "message": message}}))

    def run(self, name: str, log: str = "") -> None:
        """A kubelet starts a container only if the Secret that it names is there."""
        pod = self.pod(name)
        for source in pod["spec"]["containers"][0].get("envFrom", ()):
            secret = source["secretRef"]["name"]
            if ("secrets", pod["metadata"]["namespace"], secret) not in self.objects:
                self.schedule(name)
                self.waits(name, "CreateContainerConfigError", f'secret "{secret}" not found')
                return
        if not pod["spec"].get("nodeName"):
            self.schedule(name)
        self.logs[name] = log

        def change(pod: Document) -> None:
            pod["status"]["phase"] = "Running"
            self._state(pod, {"running": {"startedAt": now()}})

        self._change(name, change)

    def finish(self, name: str, exit_code: int, reason: str = "", message: str = "", at: str = "") -> None:
        """The container has ended; a pod that was being deleted is gone with it."""
        ended = {"exitCode": exit_code, "reason": reason or ("Completed" if exit_code == 0 else "Error"), "message": message}

        def change(pod: Document) -> None:
            pod["status"]["phase"] = "Succeeded" if exit_code == 0 else "Failed"
            self._state(pod, {"terminated": {**ended, "finishedAt": at or now()}})

        self._change(name, change)
        if self.pod(name)["metadata"].get("deletionTimestamp"):
            self._remove("pods", self.pod(name)["metadata"]["namespace"], name)

    def evict(self, name: str, message: str = "The node was low on resource: memory.") -> None:
        self._change(name, lambda pod: pod["status"].update(phase="Failed", reason="Evicted", message=message))

    def _state(self, pod: Document, state: Document) -> None:
        pod["status"]["containerStatuses"] = [{"name": pod["spec"]["containers"][0]["name"], "state": state}]

    def _change(self, name: str, change: Callable[[Document], None], namespace: str = "default") -> None:
        pod = copy.deepcopy(self.pod(name, namespace))
        change(pod)
        self._store("pods", namespace, pod, "MODIFIED")

    async def cut(self) -> None:
        """Breaks the connection of one watch."""
        self.cut_watches += 1
        await self._wake()

    def forget(self) -> None:
        """Watches cannot go on from any version so far, as after a compaction."""
        self.oldest = self._version + 1
        self._version += 1

    # The store

    def _store(self, resource: str, namespace: str, body: Document, event: str) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[resource, namespace, body["metadata"]["name"]] = body
        self._note(resource, event, body)

    def _remove(self, resource: str, namespace: str, name: str) -> Document:
        body = self.objects.pop((resource, namespace, name))
        self._version += 1
        self._note(resource, "DELETED", body)
        uid = body["metadata"]["uid"]
        for key, item in list(self.objects.items()):  # the garbage collector
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ())):
                self._remove(*key)
        return body

    def _note(self, resource: str, event: str, body: Document) -> None:
        self._history.append((self._version, resource, event, copy.deepcopy(body)))
        with suppress(RuntimeError):
            asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
