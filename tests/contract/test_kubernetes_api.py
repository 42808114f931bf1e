"""Promises of Kubernetes that the provisioner relies on, checked on the tests' API server, on the real one of `make
kubernetes-real`, and on another where TEST_KUBECONFIG names a kubeconfig (its account must be able to make a namespace). No pod
needs a machine."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client import ApiException

from tests.support.kubernetes_api import KubernetesApi
from tests.support.kubernetes_real import MARKS, RealKubernetes
from tests.support.waiting import SECONDS_MAX

ELSEWHERE = "TEST_KUBECONFIG"
pytestmark = pytest.mark.xdist_group("kubernetes")
Document = dict[str, Any]


@dataclass
class Server:
    api: client.ApiClient
    namespace: str
    forget: Callable[[], None] | None = None
    """Makes it forget what was changed so far. None: it is not ours, and has forgotten the beginning."""

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    async def make_pod(self, name: str, **changes: Any) -> Any:
        return await self.core.create_namespaced_pod(self.namespace, pod(name, **changes))

    async def wait_ready(self) -> None:
        """A controller makes the namespace's account, without which no pod is admitted."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                with suppress(ApiException):
                    await self.core.create_namespaced_pod(self.namespace, pod("a"), dry_run="All")
                    return
                await asyncio.sleep(0.05)

    async def names(self, selector: str, **options: Any) -> list[str]:
        found = await self.core.list_namespaced_pod(self.namespace, label_selector=selector, **options)
        return [item.metadata.name for item in found.items]


@pytest.fixture(params=["fake", pytest.param("real", marks=MARKS), *(["elsewhere"] if ELSEWHERE in os.environ else [])])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    fake, forget = KubernetesApi(), None
    if request.param == "fake":
        await fake.start()
        file = fake.kubeconfig(tmp_path / "kubeconfig")
        forget = fake.forget
    elif request.param == "real":
        kubernetes: RealKubernetes = request.getfixturevalue("kubernetes")
        forget = kubernetes.restart_api
        file = kubernetes.kubeconfig(tmp_path / "kubeconfig")
    else:
        file = Path(os.environ[ELSEWHERE])
    configuration = client.Configuration()
    await config.load_kube_config(config_file=str(file), client_configuration=configuration, persist_config=False)
    async with client.ApiClient(configuration) as api:
        server = Server(api, f"tenuto-tests-{uuid.uuid4().hex[:8]}", forget)
        await server.core.create_namespace({"metadata": {"name": server.namespace}})
        if request.param == "fake":
            fake.put("serviceaccounts", server.namespace, {"metadata": {"name": "default"}})
        try:
            await server.wait_ready()
            yield server
        finally:
            with suppress(ApiException):
                await server.core.delete_namespace(server.namespace)
            await fake.stop()


def pod(name: str, **changes: Any) -> Document:
    container = {"name": "agent", "image": "registry.invalid/none:1", **changes.pop("container", {})}
    metadata = {"name": name, "labels": changes.pop("labels", {})}
    # No scheduler gives such a pod a machine.
    spec = {"containers": [container], "restartPolicy": "Never", "nodeSelector": {"tenuto.dev/none": "none"}, **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def refused(doing: Any) -> ApiException:
    with pytest.raises(ApiException) as caught:
        await doing
    return caught.value


async def test_a_pod_has_an_identity_a_version_and_a_phase(server: Server) -> None:
    made = await server.make_pod("a")
    assert made.metadata.uid
    assert int(made.metadata.resource_version) > 0
    assert made.metadata.creation_timestamp is not None
    assert made.status.phase == "Pending"
    assert made.spec.termination_grace_period_seconds == 30
    found = await server.core.read_namespaced_pod("a", server.namespace)
    assert found.metadata.uid == made.metadata.uid


async def test_a_name_is_had_once(server: Server) -> None:
    await server.make_pod("a")
    error = await refused(server.make_pod("a"))
    assert error.status == 409
    assert '"reason":"AlreadyExists"' in str(error.body).replace(" ", "")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "Not_A_Name"),
        ({"containers": []}, "a"),
        ({"container": {"image": ""}}, "a"),
        ({"container": {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}}, "a"),
        ({"container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}}, "a"),
        ({"labels": {"key": "not a value!"}}, "a"),
    ],
)
async def test_what_cannot_be_is_refused_with_422(server: Server, changes: Document, name: str) -> None:
    assert (await refused(server.make_pod(name, **changes))).status == 422
    assert await server.names("") == []


async def test_a_value_of_another_type_is_refused_with_400(server: Server) -> None:
    assert (await refused(server.make_pod("a", terminationGracePeriodSeconds="soon"))).status == 400


async def test_what_is_missing_is_404(server: Server) -> None:
    assert (await refused(server.core.read_namespaced_pod("a", server.namespace))).status == 404
    assert (await refused(server.core.delete_namespaced_pod("a", server.namespace))).status == 404
    assert (await refused(server.core.create_namespaced_pod(f"{server.namespace}-none", pod("a")))).status == 404
    assert (await refused(server.core.read_namespace(f"{server.namespace}-none"))).status == 404


async def test_labels_select(server: Server) -> None:
    await server.make_pod("a", labels={"tenuto.dev/pool": "gpus", "tenuto.dev/cluster": "one"})
    await server.make_pod("b", labels={"tenuto.dev/pool": "gpus", "tenuto.dev/cluster": "two"})
    await server.make_pod("c", labels={"tenuto.dev/pool": "cpus", "tenuto.dev/cluster": "one"})
    assert await server.names("tenuto.dev/pool=gpus,tenuto.dev/cluster=one") == ["a"]
    assert await server.names("tenuto.dev/pool!=gpus") == ["c"]
    assert await server.names("tenuto.dev/pool in (gpus, cpus),tenuto.dev/cluster notin (two)") == ["a", "c"]
    assert await server.names("tenuto.dev/pool,!tenuto.dev/none") == ["a", "b", "c"]
    assert await server.names("", field_selector="metadata.name=b") == ["b"]
    assert await server.names("", field_selector="status.phase=Running") == []


async def test_lists_come_in_pages(server: Server) -> None:
    for index in range(5):
        await server.make_pod(f"p{index}", labels={"x": "y"})
    names, after, pages = [], "", 0
    while pages == 0 or after:
        options = {"_continue": after} if after else {}
        page = await server.core.list_namespaced_pod(server.namespace, label_selector="x=y", limit=2, **options)
        names += [item.metadata.name for item in page.items]
        after, pages = page.metadata._continue or "", pages + 1
    assert names == [f"p{index}" for index in range(5)]
    assert pages == 3


async def test_a_pod_without_a_machine_is_gone_at_once(server: Server) -> None:
    made = await server.make_pod("a")
    wrong = {"preconditions": {"uid": str(uuid.uuid4())}}
    assert (await refused(server.core.delete_namespaced_pod("a", server.namespace, body=wrong))).status == 409
    await server.core.delete_namespaced_pod("a", server.namespace, body={"preconditions": {"uid": made.metadata.uid}})
    assert await server.names("") == []


async def test_a_dry_run_judges_and_keeps_nothing(server: Server) -> None:
    assert (await server.core.create_namespaced_pod(server.namespace, pod("a"), dry_run="All")).metadata.uid
    assert await server.names("") == []
    bad = server.core.create_namespaced_pod(server.namespace, pod("a", containers=[]), dry_run="All")
    assert (await refused(bad)).status == 422


async def test_admission_refuses_what_the_pod_names_and_nobody_has(server: Server) -> None:
    error = await refused(server.make_pod("a", priorityClassName="none-such"))
    assert error.status == 403
    assert "no PriorityClass with name none-such was found" in str(error.body)


async def test_a_pod_that_is_refused_for_its_name_is_counted_for_the_quota(server: Server) -> None:
    await server.core.create_namespaced_resource_quota(
        server.namespace, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    )
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            if (await server.core.read_namespaced_resource_quota("few", server.namespace)).status.used:
                break
            await asyncio.sleep(0.05)
    await server.make_pod("a")
    assert (await refused(server.make_pod("a"))).status == 409
    error = await refused(server.make_pod("b"))
    assert error.status == 403
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in str(error.body)


async def test_a_secret_is_had_once_and_its_value_is_encoded(server: Server) -> None:
    owner = await server.make_pod("a")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": owner.metadata.uid}
    body = {"metadata": {"name": "a", "ownerReferences": [reference]}, "stringData": {"KEY": "value"}}
    await server.core.create_namespaced_secret(server.namespace, body)
    assert (await server.core.read_namespaced_secret("a", server.namespace)).data == {"KEY": "dmFsdWU="}
    assert (await refused(server.core.create_namespaced_secret(server.namespace, body))).status == 409


async def test_rights_are_told(server: Server) -> None:
    attributes = {"namespace": server.namespace, "verb": "create", "resource": "pods"}
    body = {"spec": {"resourceAttributes": attributes}}
    answer = await client.AuthorizationV1Api(server.api).create_self_subject_access_review(body)
    assert answer.status.allowed is True


async def test_the_version_is_told(server: Server) -> None:
    assert (await client.VersionApi(server.api).get_code()).git_version.startswith("v1.")


async def test_the_log_of_a_pod_without_a_machine_is_empty(server: Server) -> None:
    await server.make_pod("a")
    assert not await server.core.read_namespaced_pod_log("a", server.namespace)


async def test_a_watch_tells_what_changes_after_a_version(server: Server) -> None:
    from kubernetes_asyncio import watch

    listed = await server.core.list_namespaced_pod(server.namespace)
    seen: list[tuple[str, str]] = []

    async def follow() -> None:
        options = {"resource_version": listed.metadata.resource_version, "label_selector": "x=y"}
        async with watch.Watch() as stream:
            async for event in stream.stream(server.core.list_namespaced_pod, server.namespace, **options):
                seen.append((event["type"], event["object"].metadata.name))
                if event["type"] == "DELETED":
                    return

    following = asyncio.create_task(follow())
    await server.make_pod("a", labels={"x": "y"})
    await server.make_pod("b")
    await server.core.delete_namespaced_pod("a", server.namespace)
    async with asyncio.timeout(SECONDS_MAX):
        await following
    assert seen[0] == ("ADDED", "a")
    assert seen[-1] == ("DELETED", "a")


async def test_a_watch_goes_on_from_the_last_version_that_it_told_and_not_from_one_that_is_forgotten(server: Server) -> None:
    async def watched(version: str) -> list[Document]:
        options = {"watch": True, "timeout_seconds": 1, "resource_version": version}
        answer: Any = await server.core.list_namespaced_pod(server.namespace, _preload_content=False, **options)
        assert answer.status == 200
        return [json.loads(line) for line in (await answer.content.read()).splitlines()]

    before = (await server.core.list_namespaced_pod(server.namespace)).metadata.resource_version
    await server.make_pod("a")
    first = await watched(before)
    assert (first[0]["type"], first[0]["object"]["metadata"]["name"]) == ("ADDED", "a")
    await server.make_pod("b")
    [*_, last] = await watched(first[-1]["object"]["metadata"]["resourceVersion"])
    assert last["object"]["metadata"]["name"] == "b"
    if server.forget is not None:
        await asyncio.to_thread(server.forget)
    [error] = await watched(before if server.forget else "1")
    assert (error["type"], error["object"]["kind"], error["object"]["code"]) == ("ERROR", "Status", 410)
