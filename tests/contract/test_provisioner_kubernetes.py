"""What the provisioner of pods promises beyond the contract of all provisioners, on the tests' API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import ProvisionerError, RealNode
from tenuto.services.launcher.adapters.provisioners import kubernetes as module
from tenuto.services.launcher.adapters.provisioners.kubernetes import door
from tests.support.kubernetes_api import TOKEN, Fault
from tests.support.kubernetes_nodes import SECRET, Bench, bench_of, order, pod_name

GPU = {"gpu_resource": "nvidia.com/gpu"}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_of(tmp_path) as found:
        yield found


async def test_a_node_from_its_start_to_its_end(bench: Bench) -> None:
    provisioner, name = bench.provisioner(), pod_name("gpus-1")
    await provisioner.start([order()])
    assert (bench.names(), bench.secrets()) == ([name], [name])
    assert await provisioner.nodes() == [RealNode("gpus-1", f"default/{name}", "pending")]
    bench.api.schedule(name)
    assert await provisioner.nodes() == [RealNode("gpus-1", f"default/{name}", "running")]
    bench.api.run(name, "first\nsecond\nthird\n")
    [node] = await provisioner.nodes()
    assert await provisioner.logs(node, 2) == "second\nthird\n"
    await provisioner.stop(node)
    [node] = await provisioner.nodes()
    assert (node.phase, node.detail) == ("running", "it is being deleted")
    assert bench.api.pod(name)["metadata"]["deletionGracePeriodSeconds"] == 150
    await provisioner.stop(node)
    bench.api.finish(name, 0)
    assert await provisioner.nodes() == []
    assert bench.secrets() == [], "the token goes with the pod"
    await provisioner.stop(node)
    assert await provisioner.logs(node, 5) == ""
    await provisioner.close()


async def test_the_token_is_in_the_secret_alone(bench: Bench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order()])
    assert SECRET not in json.dumps(bench.api.pods())
    assert SECRET not in repr(order())
    secret = bench.api.objects["secrets", "default", pod_name("gpus-1")]
    assert secret["metadata"]["ownerReferences"][0]["uid"] == bench.api.pods()[0]["metadata"]["uid"]
    bench.api.run(pod_name("gpus-1"))
    assert (await provisioner.nodes())[0].detail == "", "the container finds the Secret that it names"
    await provisioner.close()


async def test_a_second_start_is_no_second_node(bench: Bench) -> None:
    provisioner, other = bench.provisioner(), bench.provisioner()
    await asyncio.gather(provisioner.start([order()]), other.start([order()]))
    before = bench.api.pods()[0]["metadata"]["uid"]
    await provisioner.start([order()])
    assert [pod["metadata"]["uid"] for pod in bench.api.pods()] == [before]
    await provisioner.close()
    await other.close()


async def test_a_start_that_was_cut_between_pod_and_secret_is_completed_by_the_next(bench: Bench) -> None:
    provisioner, name = bench.provisioner(), pod_name("gpus-1")
    await provisioner.start([order()])
    bench.api._remove("secrets", "default", name)
    bench.api.run(name)
    assert (await provisioner.nodes())[0].detail == f'CreateContainerConfigError: secret "{name}" not found'
    await provisioner.start([order()])
    bench.api.run(name)
    assert (await provisioner.nodes())[0].detail == ""
    assert len(bench.api.pods()) == 1
    await provisioner.close()


async def test_pools_and_clusters_in_one_namespace_do_not_meet(bench: Bench) -> None:
    here, there = bench.provisioner(), bench.provisioner(cluster="cluster-2")
    beside = bench.provisioner(pool="others")
    await here.start([order()])
    await there.start([order()])
    await beside.start([order("others-1")])
    for provisioner, node_id in ((here, "gpus-1"), (there, "gpus-1"), (beside, "others-1")):
        [node] = await provisioner.nodes()
        assert node.node_id == node_id
        await provisioner.stop(node)
        assert await provisioner.nodes() == []
        await provisioner.close()


async def test_a_foreign_pod_of_that_name_is_no_node(bench: Bench) -> None:
    name = pod_name("gpus-1")
    bench.api.put("pods", "default", {"metadata": {"name": name}, "spec": {"containers": []}, "status": {"phase": "Pending"}})
    provisioner = bench.provisioner()
    with pytest.raises(ProvisionerError, match=r"is not a node of this cluster: delete it") as caught:
        await provisioner.start([order()])
    assert caught.value.kind == "refused"
    await provisioner.close()


async def test_names_that_kubernetes_does_not_know_become_names_that_it_does(bench: Bench) -> None:
    provisioner = bench.provisioner(pool="Big_GPUs-")
    ids = ["Big_GPUs--1", "big-gpus--1", "x" * 120, "a.b:c"]
    await provisioner.start([order(node_id) for node_id in ids])
    assert sorted(node.node_id for node in await provisioner.nodes()) == sorted(ids)
    await provisioner.close()


async def test_a_group_is_had_whole_or_not_at_all(bench: Bench) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"requests.nvidia.com/gpu": "5"}}}
    bench.api.put("resourcequotas", "default", quota)
    provisioner = bench.provisioner(GPU)
    await provisioner.start([order("gpus-1")])
    with pytest.raises(ProvisionerError, match=r"exceeded quota: few, requested: requests.nvidia.com/gpu=2") as caught:
        await provisioner.start([order(f"gpus-{number}") for number in (2, 3, 4)])
    assert caught.value.kind == "quota"
    assert bench.names() == [pod_name("gpus-1")]
    assert bench.secrets() == [pod_name("gpus-1")]
    await provisioner.start([order("gpus-5")])
    await provisioner.start([order("gpus-1")])  # is there already, though the quota is used up
    assert len(bench.names()) == 2
    await provisioner.close()


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("path", ["/pods", "/secrets"])
async def test_a_group_with_an_answer_that_says_nothing_is_taken_back(bench: Bench, path: str, done: bool) -> None:
    bench.api.faults.append(Fault("POST", path, 500, done=done))
    provisioner = bench.provisioner()
    with pytest.raises(ProvisionerError) as caught:
        await provisioner.start([order("gpus-1"), order("gpus-2")])
    assert caught.value.kind == "unreachable"
    assert SECRET not in str(caught.value)
    left = await provisioner.nodes()
    assert [node.node_id for node in left] in ([], ["gpus-1"], ["gpus-2"]), "what is not known to be there is found"
    for node in left:
        await provisioner.stop(node)
    assert bench.api.pods() == []
    await provisioner.close()


async def test_an_api_server_that_does_not_answer_is_unreachable(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(door, "ANSWER_SECONDS_MAX", 0.2)
        provisioner = bench.provisioner()
        for method, path in (("GET", "/pods"), ("POST", "/pods")):
            bench.api.faults.append(Fault(method, path, 0))
        with pytest.raises(ProvisionerError, match="does not answer within") as caught:
            await provisioner.nodes()
        assert caught.value.kind == "unreachable"
        with pytest.raises(ProvisionerError, match="does not answer within"):
            await provisioner.start([order()])
        await provisioner.close()
    await bench.api.stop()
    gone = bench.provisioner()
    with pytest.raises(ProvisionerError, match="cannot be reached") as caught:
        await gone.nodes()
    assert caught.value.kind == "unreachable"
    await gone.close()


@pytest.mark.parametrize(("status", "kind"), [(429, "unreachable"), (503, "unreachable"), (400, "refused"), (422, "refused")])
async def test_kinds_of_refusals(bench: Bench, status: int, kind: str) -> None:
    bench.api.faults.append(Fault("POST", "/pods", status, message="words\nof\x1b the server"))
    provisioner = bench.provisioner()
    with pytest.raises(ProvisionerError, match=r"words of\\x1b the server\.$") as caught:
        await provisioner.start([order()])
    assert caught.value.kind == kind
    await provisioner.close()


async def test_wrong_credentials_are_refused_and_not_told(bench: Bench) -> None:
    bench.api.kubeconfig(bench.directory / "kubeconfig", token="another-secret")
    provisioner = bench.provisioner()
    with pytest.raises(ProvisionerError, match="credentials are not valid there") as caught:
        await provisioner.nodes()
    assert caught.value.kind == "refused"
    assert "another-secret" not in str(caught.value)
    await provisioner.close()
    (bench.directory / "kubeconfig").write_text(f"users: [{{token: {TOKEN}")
    with pytest.raises(ProvisionerError, match="The kubeconfig kubeconfig cannot be used") as caught:
        await bench.provisioner().nodes()
    assert TOKEN not in str(caught.value)
    with pytest.raises(ProvisionerError, match="without a path"):
        await bench.provisioner({"kubeconfig": "../kubeconfig"}).nodes()
    with pytest.raises(ProvisionerError, match="run the launcher in Kubernetes, or set kubeconfig"):
        await bench.provisioner({"kubeconfig": ""}).nodes()


async def test_reasons_in_the_words_of_kubernetes(bench: Bench) -> None:
    provisioner, name = bench.provisioner(GPU), pod_name("gpus-1")

    async def said() -> tuple[str, str]:
        [node] = await provisioner.nodes()
        return node.phase, node.detail

    await provisioner.start([order()])
    bench.api.unschedulable(name, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    assert await said() == ("pending", "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    bench.api.schedule(name)
    bench.api.waits(name, "ErrImagePull", "not found")
    assert await said() == ("running", "ErrImagePull: not found"), "it holds a machine, so the time to join runs"
    assert (await provisioner.nodes())[0].image_missing
    bench.api.run(name)
    bench.api.evict(name)
    assert await said() == ("ended", "Evicted: The node was low on resource: memory.")
    await provisioner.close()


@pytest.mark.parametrize(
    ("code", "reason", "message", "detail"),
    [
        (0, "", "", ""),
        (137, "OOMKilled", "", "OOMKilled, exit code 137"),
        (64, "", "first line\nagent: The token has ended.\n", "Error, exit code 64: agent: The token has ended."),
    ],
)
async def test_ends(bench: Bench, code: int, reason: str, message: str, detail: str) -> None:
    provisioner, name = bench.provisioner(), pod_name("gpus-1")
    await provisioner.start([order()])
    bench.api.run(name)
    bench.api.finish(name, code, reason, message)
    [node] = await provisioner.nodes()
    assert (node.phase, node.detail) == ("ended", detail)
    await provisioner.start([order()])
    assert (await provisioner.nodes())[0].phase == "ended", "an id is never used again"
    await provisioner.stop(node)
    assert bench.api.pods() == []
    await provisioner.close()


async def test_pods_that_ended_long_ago_are_removed(bench: Bench) -> None:
    provisioner = bench.provisioner()
    await provisioner.start([order("gpus-1"), order("gpus-2"), order("gpus-3")])
    for number in (1, 2, 3):
        bench.api.run(pod_name(f"gpus-{number}"))
    bench.api.finish(pod_name("gpus-1"), 0, at="2020-01-01T00:00:00Z")
    bench.api.finish(pod_name("gpus-2"), 1)
    assert len(await provisioner.nodes()) == 3
    assert sorted(node.node_id for node in await provisioner.nodes()) == ["gpus-2", "gpus-3"]
    await provisioner.close()


async def test_a_list_in_pages_is_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_PODS", 3)
    provisioner = bench.provisioner()
    await provisioner.start([order(f"gpus-{number}") for number in range(8)])
    assert sorted(node.node_id for node in await provisioner.nodes()) == [f"gpus-{number}" for number in range(8)]
    assert sum(request == ("GET", "/api/v1/namespaces/default/pods") for request in bench.api.requests) == 3
    await provisioner.close()


async def test_check_finds_nothing_where_all_is_well_and_starts_nothing(bench: Bench) -> None:
    provisioner = bench.provisioner()
    found = await provisioner.check()
    assert [finding.problem for finding in found if finding.problem] == []
    said = [finding.what for finding in found]
    assert any("Kubernetes v1.33.0-tests" in what for what in said)
    assert any("whether it can be pulled shows when the first pod starts" in what for what in said)
    assert bench.api.pods() == []
    await provisioner.close()


async def test_check_finds_what_is_missing(bench: Bench) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    bench.api.put("resourcequotas", "default", quota)
    bench.api.forbidden |= {("create", "secrets"), ("get", "pods/log")}
    settings = {"service_account": "robot", "priority_class": "low", "volumes": "data:/data"}
    provisioner = bench.provisioner(settings)
    problems = {finding.what.split(" in namespace")[0]: finding.problem for finding in await provisioner.check()}
    assert "may not create secrets in namespace default: bind a Role" in problems["rights on secrets"]
    assert problems["rights on pods"] == ""
    assert "may not get pods/log" in problems["rights on pods/log"]
    assert problems["service account robot"].startswith("There is no service account robot")
    assert problems["priority class low"].startswith("There is no priority class low")
    assert problems["claim data"].startswith("There is no claim data")
    assert problems["quota few: pods 0 of 0"].startswith("Nothing is left of pods")
    assert 'serviceaccount "robot" not found' in problems["dry run of a pod of type default"]
    await provisioner.close()


async def test_check_says_what_it_may_not_see(bench: Bench) -> None:
    bench.api.forbidden |= {("get", "namespaces"), ("list", "resourcequotas"), ("get", "serviceaccounts")}
    provisioner = bench.provisioner({"service_account": "default"})
    found = await provisioner.check()
    assert [finding.problem for finding in found if finding.problem] == []
    assert sum("not seen, as the launcher may not" in finding.what for finding in found) == 3
    await provisioner.close()


async def test_check_of_a_server_that_is_gone_and_of_wrong_settings(bench: Bench) -> None:
    wrong = await bench.provisioner({"colour": "red"}).check()
    assert [finding.problem[:25] for finding in wrong] == ["Setting colour is unknown"]
    missing = bench.provisioner({"namespace": "none-such"})
    problems = [finding.problem for finding in await missing.check() if finding.problem]
    assert any("There is no namespace none-such" in problem for problem in problems)
    await missing.close()
    await bench.api.stop()
    provisioner = bench.provisioner()
    [finding] = await provisioner.check()
    assert "It cannot be asked" in finding.problem
    await provisioner.close()


async def test_a_type_asks_for_its_slots_of_the_device(bench: Bench) -> None:
    provisioner = bench.provisioner({**GPU, "memory": "8Gi"})
    big, plain = NodeType(name="big", slots=8, settings={"memory": "64Gi"}), NodeType(name="plain", slots=4, device="cpu")
    await provisioner.start([order("gpus-1", big), order("gpus-2", plain)])
    found = {
        pod["metadata"]["annotations"]["tenuto.dev/node"]: pod["spec"]["containers"][0]["resources"]["limits"]
        for pod in bench.api.pods()
    }
    assert found == {"gpus-1": {"memory": "64Gi", "nvidia.com/gpu": "8"}, "gpus-2": {"memory": "8Gi"}}
    await provisioner.close()


async def test_a_pool_whose_pods_would_run_images_is_refused_before_anything_is_asked() -> None:
    """Trials that name an image would else have nodes started for them for ever, none of which can serve them."""
    types = (NodeType(images=True),)
    settings = {"image": "registry.example.org/tenuto:1", "kubeconfig": "none-such"}
    given = Provisioning(provisioner="kubernetes", settings=settings, node_types=types)
    provisioner = module.KubernetesProvisioner("cluster", "gpus", given)
    [finding] = await provisioner.check()
    assert finding.problem.startswith("Nodes of type ")
    assert "cannot run trials that name an image: a pod has no Docker; leave out images" in finding.problem
    with pytest.raises(ProvisionerError, match="a pod has no Docker") as refused:
        await provisioner.start([order("gpus-1", types[0])])
    assert refused.value.kind == "refused"
    await provisioner.close()
