"""Nodes as pods on the tests' API server: the provisioner, orders, and what is in the namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order, ProvisionerError
from tenuto.services.launcher.adapters.provisioners.kubernetes import KubernetesProvisioner
from tenuto.services.launcher.adapters.provisioners.kubernetes.manifests import name_of
from tests.support.kubernetes_api import TOKEN, KubernetesApi

CLUSTER, POOL = "cluster-1", "gpus"
SECRET = "tenuto-join-a-secret-of-the-tests"
IMAGE = "registry.example.org/tenuto:1"


@dataclass
class Bench:
    api: KubernetesApi
    directory: Path

    def provisioner(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        cluster: str = CLUSTER,
        pool: str = POOL,
        types: tuple[NodeType, ...] = (NodeType(),),
    ) -> KubernetesProvisioner:
        given = {"kubeconfig": "kubeconfig", "image": IMAGE, **(settings or {})}
        provisioning = Provisioning(provisioner="kubernetes", settings=given, node_types=types)
        return KubernetesProvisioner(cluster, pool, provisioning, self.directory)

    async def delete(self, name: str) -> None:
        """As somebody else does, with the grace that the pod itself names."""
        url = f"{self.api.url}/api/v1/namespaces/default/pods/{name}"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session, session.delete(url) as answer:
            assert answer.status == 200

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.pods()]

    def secrets(self) -> list[str]:
        return sorted(name for resource, _, name in self.api.objects if resource == "secrets")


@asynccontextmanager
async def bench_of(directory: Path) -> AsyncIterator[Bench]:
    api = KubernetesApi()
    await api.start()
    try:
        api.kubeconfig(directory / "kubeconfig")
        yield Bench(api, directory)
    finally:
        await api.stop()


def order(node_id: str = "gpus-1", node_type: NodeType | None = None) -> Order:
    environment = {"TENUTO_AGENT_ID": node_id, "TENUTO_JOIN_TOKEN": f"{SECRET}-{node_id}", "TENUTO_CPU_SLOTS": "2"}
    return Order(node_id, node_type or NodeType(slots=2), environment)


def pod_name(node_id: str, cluster: str = CLUSTER) -> str:
    return name_of(cluster, node_id)


__all__ = ["Bench", "ProvisionerError", "bench_of", "order", "pod_name"]
