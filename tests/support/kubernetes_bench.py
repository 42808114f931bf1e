"""Worlds of pods in which the contract of provisioners is tried: the tests' API server with a kubelet that runs stand-ins as
processes, and a real Kubernetes that runs them in containers."""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import Sequence
from pathlib import Path

import psutil

from tenuto.kernel.tasks import stop_task
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.kubernetes import KubernetesProvisioner, manifests
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import pod_of
from tests.support import kubernetes_machine as machine
from tests.support.kubernetes_api import KubernetesApi
from tests.support.kubernetes_kubelet import Kubelet
from tests.support.kubernetes_real import RealKubernetes
from tests.support.ports import refusing_port
from tests.support.provisioner_benches import POOL, Bench, order


class KubernetesBench(Bench):
    """Made by `begun`."""

    def __init__(self, directory: Path, api: KubernetesApi) -> None:
        super().__init__(directory)
        self.api = api
        self._kubelet = asyncio.create_task(Kubelet(api, directory / "pods", str(self.stand_in)).run())

    @classmethod
    async def begun(cls, directory: Path) -> KubernetesBench:
        (directory / "pods").mkdir()
        api = KubernetesApi()
        await api.start()
        api.kubeconfig(directory / "kubeconfig").chmod(0o600)
        api.put("resourcequotas", "default", {"metadata": {"name": "room"}, "spec": {"hard": {"pods": "2"}}})
        return cls(directory, api)

    def make(self, cluster: str, pool: str, **settings: str) -> Provisioner:
        given = {"image": "registry.example.org/tenuto:1", "kubeconfig": "kubeconfig", **settings}
        return KubernetesProvisioner(cluster, pool, Provisioning(provisioner="kubernetes", settings=given), self.directory)

    def broken(self) -> Provisioner:
        text = (self.directory / "kubeconfig").read_text().replace(self.api.url, f"http://127.0.0.1:{refusing_port()}")
        (self.directory / "elsewhere").write_text(text)
        return self.opens(self.make(self.cluster, POOL, kubeconfig="elsewhere"))

    def refused(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, priority_class="none-such"))

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def start_twice(self, wanted: Order) -> None:
        """Kubernetes keeps a second pod of that name from starting, so somebody made one of another name."""
        await self.provisioner().start([wanted])
        [pod] = self.api.pods()
        name = f"{pod['metadata']['name']}-copy"
        for resource in ("secrets", "pods"):
            body = copy.deepcopy(self.api.objects[resource, "default", pod["metadata"]["name"]])
            body["metadata"] |= {"name": name, "uid": name, "ownerReferences": []}
            if resource == "pods":
                body["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": name}}]
                body["spec"].pop("nodeName", None)
                body["status"] = {"phase": "Pending"}
            self.api.put(resource, "default", body)

    async def close(self) -> None:
        await stop_task(self._kubelet)
        await super().close()
        await self.api.stop()


NO_PROCESS = 1 << 23
"""More than any number of a process."""


class RealKubernetesBench(Bench):
    """In a namespace of its own; made by `begun`."""

    keeps_logs = False

    def __init__(self, directory: Path, kubernetes: RealKubernetes) -> None:
        super().__init__(directory)
        directory.chmod(0o777)  # pods run as another account
        self.kubernetes, self.namespace = kubernetes, f"bench-{secrets.token_hex(4)}"
        self.image = f"tenuto.test/{self.namespace}:1"
        self.volumes = ""

    @classmethod
    def begun(cls, directory: Path, kubernetes: RealKubernetes) -> RealKubernetesBench:
        made = cls(directory, kubernetes)
        kubernetes.make_namespace(made.namespace)
        quota = {"metadata": {"name": "room", "namespace": made.namespace}, "spec": {"hard": {"pods": "2"}}}
        kubernetes.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        machine.make_image(kubernetes, made.image, [], str(made.stand_in))
        made.volumes = machine.claim(kubernetes, made.namespace, directory)
        kubernetes.kubeconfig(directory / "kubeconfig", "launcher", made.namespace)
        path = f"/api/v1/namespaces/{made.namespace}/resourcequotas/room"
        kubernetes.wait_for("a count of the quota", lambda: kubernetes.ask("GET", path)["status"]["used"])
        return made

    def make(self, cluster: str, pool: str, **settings: str) -> Provisioner:
        return KubernetesProvisioner(cluster, pool, self._provisioning(**settings), self.directory)

    def _provisioning(self, **settings: str) -> Provisioning:
        given = {
            "image": self.image,
            "image_pull_policy": "Never",
            "kubeconfig": "kubeconfig",
            "volumes": self.volumes,
            **settings,
        }
        return Provisioning(provisioner="kubernetes", settings=given)

    def broken(self) -> Provisioner:
        text = (self.directory / "kubeconfig").read_text().replace(self.kubernetes.url, f"https://127.0.0.1:{refusing_port()}")
        (self.directory / "elsewhere").write_text(text)
        return self.opens(self.make(self.cluster, POOL, kubeconfig="elsewhere"))

    def refused(self) -> Provisioner:
        return self.opens(self.make(self.cluster, POOL, priority_class="none-such"))

    def too_many(self) -> tuple[Provisioner, Sequence[Order]]:
        return self.provisioner(), [order(f"{POOL}-{number}") for number in (1, 2, 3)]

    async def start_twice(self, wanted: Order) -> None:
        await self.provisioner().start([wanted])
        settings = pod_of(self._provisioning(), wanted.node_type)
        pod = manifests.pod(self.cluster, POOL, wanted, settings)
        name = f"{pod['metadata']['name']}-copy"
        pod["metadata"] |= {"name": name, "namespace": self.namespace}
        pod["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": name}}]
        secret = manifests.secret(self.cluster, POOL, wanted, "")
        secret["metadata"] = {"name": name, "namespace": self.namespace}
        await asyncio.to_thread(self.kubernetes.apply, secret, pod)

    def began(self, node_id: str) -> list[int]:
        """The containers' processes have other numbers here than they know; those that have ended have none."""
        live = [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if str(self.directory / "stand_in.py") in (words := process.info["cmdline"] or ()) and words[-1] == node_id
        ]
        return live + [NO_PROCESS] * (len(super().began(node_id)) - len(live))

    async def close(self) -> None:
        for made in self.opened:
            await made.close()
        await asyncio.to_thread(self.kubernetes.empty, self.namespace)
        await asyncio.to_thread(self.kubernetes.ask, "DELETE", f"/api/v1/namespaces/{self.namespace}")
