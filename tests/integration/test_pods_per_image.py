"""A pool of pods with several images, as docs/kubernetes.md has it, by the launcher's own loop, core and keepers: what waits gets
pods of the image that it asks for, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tenuto.schemas.events.pool import CapacityDemand, CapacityWanted
from tenuto.schemas.events.provisioning import PoolProvisioned
from tenuto.schemas.provisioning import Provisioning
from tenuto.services.launcher.adapters.provisioners.kubernetes import KubernetesProvisioner
from tests.support import guide_pages
from tests.support.kept_nodes import KeptNodes, hurry, until
from tests.support.kubernetes_api import Document, KubernetesApi

POOL, NAMESPACE = "gpus", "training"


def label(pod: Document, api: KubernetesApi) -> str:
    """Of the agent, which reads it from the Secret that the pod names."""
    name = pod["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"]
    return api.environment(NAMESPACE, name).get("TENUTO_AGENT_LABELS", "")


async def test_each_gang_gets_a_pod_of_the_image_that_it_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    pool = yaml.safe_load(guide_pages.block("kubernetes.md", "yaml", "node_types:"))
    pool["settings"]["kubeconfig"] = "kubeconfig"
    api = KubernetesApi()
    await api.start()
    try:
        api.put("namespaces", "", {"metadata": {"name": NAMESPACE}})
        api.kubeconfig(tmp_path / "kubeconfig").chmod(0o600)

        def opened(name: str, provisioning: Provisioning) -> KubernetesProvisioner:
            return KubernetesProvisioner("cluster-1", name, provisioning, tmp_path)

        async def want(*demands: CapacityDemand) -> None:
            await world.say(CapacityWanted(pool=POOL, demands=demands))

        def images() -> list[tuple[str, str]]:
            found = [(pod["spec"]["containers"][0]["image"], label(pod, api)) for pod in api.pods(NAMESPACE)]
            return sorted(found)

        world = KeptNodes(POOL, opened)
        await world.say(PoolProvisioned.model_validate({"pool": POOL, "join_seconds": 3_600.0, **pool}))
        speech = CapacityDemand(slots=1, count=2, labels=("image=speech",), experiment_id=1)
        foreign = CapacityDemand(slots=1, count=1, labels=("runtime:docker",), image="elsewhere/any:1", experiment_id=2)
        async with world.launcher():
            await want(foreign, speech)
            two = [("registry.example.org/speech:7", "image=speech")] * 2
            await until(lambda: images() == two)
            vision = CapacityDemand(slots=1, count=1, labels=("image=vision",), experiment_id=3)
            await want(foreign, speech, vision)
            await until(lambda: images() == [*two, ("registry.example.org/vision:3", "image=vision")])
    finally:
        await api.stop()
