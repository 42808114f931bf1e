"""Releases of deploy/helm/tenuto over their life, by Helm itself on the tests' Kubernetes: installed, upgraded, rolled back and
uninstalled."""

from __future__ import annotations

import asyncio
import copy
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenuto.services.launcher.adapters.provisioners.kubernetes.manifests import labels_of
from tests.support.helm import CHART, Document, Helm, lack
from tests.support.kubernetes_charts import ChartApi

pytestmark = pytest.mark.real_part(lack())
RELEASE, NAMESPACE = "tenuto", "ml"
RECORD = "sh.helm.release.v1.tenuto"
"""Secrets in which Helm keeps its own record."""
HOOK = [("ADDED", "jobs", "tenuto-migrate"), ("MODIFIED", "jobs", "tenuto-migrate"), ("DELETED", "jobs", "tenuto-migrate")]


@dataclass
class Place:
    helm: Helm
    api: ChartApi
    kubeconfig: Path
    seen: int = 0

    async def run(self, *words: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        where = ("--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig))
        given = [str(CHART), *self.helm.values(values)] if values is not None else []
        self.seen = self.api.version
        return await asyncio.to_thread(self.helm.run, *words, *given, *where)

    async def done(self, *words: str, values: Mapping[str, Any] | None = None) -> list[tuple[str, str, str]]:
        """Changes of the last command, without those of Helm's own record."""
        done = await self.run(*words, values=values)
        assert done.returncode == 0, done.stderr
        return self.changes()

    def changes(self) -> list[tuple[str, str, str]]:
        return [item for item in self.api.history(self.seen) if not item[2].startswith(RECORD)]

    def specs(self) -> dict[tuple[str, str], Document]:
        """Of what the chart has, by resource and name."""
        return {
            (resource, name): copy.deepcopy({key: item[key] for key in ("spec", "data", "rules", "subjects") if key in item})
            for (resource, namespace, name), item in self.api.objects.items()
            if namespace == NAMESPACE and resource not in ("secrets", "pods")
        }


@pytest.fixture
async def place(helm: Helm, tmp_path: Path) -> AsyncIterator[Place]:
    """With the Secrets that the operator makes, and a node that the launcher started."""
    api = ChartApi()
    await api.start()
    try:
        api.put("namespaces", "", {"metadata": {"name": NAMESPACE}})
        for name in ("tenuto-database", "tenuto-bus"):
            api.put("secrets", NAMESPACE, {"metadata": {"name": name}, "data": {"key": "c2VjcmV0"}})
        agent = {"name": "agent", "image": "registry.example.org/tenuto:1"}
        labels = labels_of("cluster-1", "gpus", "gpus-1")
        node = {"metadata": {"name": "gpus-1", "labels": labels}, "spec": {"containers": [agent]}, "status": {"phase": "Running"}}
        api.put("pods", NAMESPACE, node)
        yield Place(helm, api, api.kubeconfig(tmp_path / "kubeconfig", namespace=NAMESPACE))
    finally:
        await api.stop()


async def test_a_release_is_installed_upgraded_rolled_back_and_uninstalled(place: Place) -> None:
    changes = await place.done("install", RELEASE, values={})
    assert changes[:3] == HOOK, "migrations come first"
    assert {event for event, *_ in changes[3:]} == {"ADDED"}
    assert not [item for item in changes if item[1] == "secrets"], "the chart makes no secrets"
    installed = place.specs()
    assert len(installed) == len(changes) - 3 >= 20

    kept = {key: copy.deepcopy(item) for key, item in place.api.objects.items() if key[0] in ("pods", "persistentvolumeclaims")}
    kept |= {key: item for key, item in place.api.objects.items() if key[0] == "secrets" and not key[2].startswith(RECORD)}
    changes = await place.done("upgrade", RELEASE, values={"image": {"repository": "registry.example.org/tenuto", "tag": "3"}})
    assert changes[:3] == HOOK, "migrations come before anything else is changed"
    services = ("relay", "searcher", "scheduler", "launcher", "tracker", "gateway")
    changed = [*(("MODIFIED", "deployments", f"tenuto-{name}") for name in services), ("MODIFIED", "statefulsets", "tenuto-nats")]
    assert changes[3:] == changed, "and nothing but what has the image"
    assert {key: place.api.objects[key] for key in kept} == kept, "nodes, the claim and the operator's secrets are untouched"

    changes = await place.done("rollback", RELEASE, "1")
    assert sorted(changes) == sorted(changed), "a rollback leaves the database as it is"
    assert place.specs() == installed

    changes = await place.done("uninstall", RELEASE)
    assert {key for key in place.api.objects if key[:2] == ("persistentvolumeclaims", NAMESPACE)} == {
        ("persistentvolumeclaims", NAMESPACE, "tenuto-state")
    }
    assert len(changes) == len(installed) - 1
    assert {key: place.api.objects[key] for key in kept} == kept


async def test_a_migration_that_fails_leaves_the_release_as_it_was(place: Place) -> None:
    await place.done("install", RELEASE, values={})
    before, values = place.specs(), {"logLevel": "DEBUG"}
    place.api.job_fails = True
    failed = await place.run("upgrade", RELEASE, "--timeout", "20s", values=values)
    assert failed.returncode != 0
    assert "pre-upgrade hooks failed" in failed.stderr
    assert {resource for _, resource, _ in place.changes()} == {"jobs"}
    after = place.specs()
    assert after.pop(("jobs", "tenuto-migrate")), "it can be looked at"
    assert after == before
    place.api.job_fails = False
    changes = await place.done("upgrade", RELEASE, values=values)
    assert changes[:4] == [("DELETED", "jobs", "tenuto-migrate"), *HOOK]
    assert {resource for _, resource, _ in changes[4:]} == {"deployments"}


REFUSED: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"nats": {"persistence": {"size": "20Gi"}}}, "nats.persistence cannot be changed while the StatefulSet tenuto-nats exists"),
    ({"nats": {"persistence": {"enabled": False}}}, "Delete it and its claim data-tenuto-nats-0 first"),
    ({"nats": {"persistence": {"storageClass": "fast"}}}, "nats.persistence cannot be changed while the StatefulSet"),
    ({"persistence": {"accessMode": "ReadWriteOnce"}}, "the claim tenuto-state has ReadWriteMany of the default class"),
    ({"persistence": {"storageClass": "fast"}}, "persistence.storageClass cannot be changed"),
    (
        {"persistence": {"size": "49Gi"}},
        "persistence.size cannot be made smaller: the claim tenuto-state has 50Gi, and this is 49Gi",
    ),
    ({"persistence": {"size": "51199Mi"}}, "Say 50Gi or more, or copy its files to a claim of yours"),
    ({"persistence": {"size": "53G"}}, "persistence.size cannot be made smaller"),
    ({"nats": {"persistence": {"size": "10G"}}}, "nats.persistence cannot be changed while the StatefulSet tenuto-nats exists"),
)


async def test_what_kubernetes_would_refuse_halfway_is_refused_before_anything_is_changed(place: Place) -> None:
    await place.done("install", RELEASE, "--no-hooks", values={})
    for values, said in REFUSED:
        refused = await place.run("upgrade", RELEASE, values=values)
        assert refused.returncode != 0
        assert said in refused.stderr
        assert place.changes() == []
    del place.api.objects["statefulsets", NAMESPACE, "tenuto-nats"]  # as the sentence says
    assert ("ADDED", "statefulsets", "tenuto-nats") in await place.done("upgrade", RELEASE, "--no-hooks", values=REFUSED[0][0])


@pytest.mark.parametrize("size", ["50Gi", "51200Mi", "54G", "1.5Ti"])
async def test_the_same_size_or_a_larger_one_is_taken_in_any_unit(place: Place, size: str) -> None:
    await place.done("install", RELEASE, "--no-hooks", values={})
    await place.done("upgrade", RELEASE, "--no-hooks", values={"persistence": {"size": size}})


async def test_what_may_be_changed_is_not_refused(place: Place) -> None:
    """By the server, too, which has fields that cannot be changed."""
    await place.done("install", RELEASE, "--no-hooks", values={})
    values = {
        "persistence": {"size": "80Gi"}, "nats": {"resources": {"limits": {"memory": "4Gi"}}},
        "agents": {"rbac": False}, "metrics": {"enabled": False}, "podAnnotations": {"team": "ml"},
        "networkPolicy": {"enabled": False}, "ingress": {"enabled": True, "host": "tenuto.example.org"},
    }  # fmt: skip
    changes = await place.done("upgrade", RELEASE, "--no-hooks", values=values)
    assert {(event, resource) for event, resource, _ in changes} >= {
        ("DELETED", "roles"),
        ("DELETED", "networkpolicies"),
        ("DELETED", "services"),
        ("ADDED", "ingresses"),
        ("MODIFIED", "persistentvolumeclaims"),
    }
