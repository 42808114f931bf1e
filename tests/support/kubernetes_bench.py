"""The world of pods in which the contract of provisioners is tried: the tests' API server, and a kubelet that runs stand-ins."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from pathlib import Path

from tenuto.embedded.process import choose_port
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, Provisioner
from tenuto.services.launcher.adapters.provisioners.kubernetes import KubernetesProvisioner
from tests.support.kubernetes_api import KubernetesApi
from tests.support.kubernetes_kubelet import Kubelet
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
        text = (self.directory / "kubeconfig").read_text().replace(self.api.url, f"http://127.0.0.1:{choose_port()}")
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
