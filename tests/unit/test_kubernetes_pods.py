"""Settings of pools whose nodes are pods, and the documents that follow from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tenuto.kernel.settings import Settings
from tenuto.schemas.provisioning import NodeType, Provisioning
from tenuto.services.launcher.adapters.provisioners import Order
from tenuto.services.launcher.adapters.provisioners.kubernetes import manifests, pods
from tenuto.services.launcher.adapters.provisioners.kubernetes.settings import (
    NAMES,
    connection_of,
    pod_of,
)
from tenuto.services.launcher.adapters.provisioners.setting_readers import BadSetting
from tests.support.kubernetes_rules import problems

ROOT = Path(__file__).parents[2]
IMAGE = {"image": "registry.example.org/team/tenuto:1.2@sha256:abc"}
EVERYTHING = {
    **IMAGE, "image_pull_policy": "Always", "pull_secret_names": "one, two", "service_account": "agents",
    "node_selector": "cloud.example.org/gpu=a100,zone=", "tolerations": "nvidia.com/gpu:NoSchedule,team=vision,x",
    "priority_class": "low", "runtime_class": "nvidia", "gpu_resource": "nvidia.com/gpu", "cpu": "3500m", "memory": "16Gi",
    "disk": "50Gi", "shm": "8Gi", "volumes": "data:/data:ro, scratch:/scratch", "run_as_user": "5000", "grace_seconds": "600",
    "namespace": "team-a", "kubeconfig": "cluster.yaml", "context": "admin@cluster",
}  # fmt: skip


def made(settings: dict[str, str], node_type: NodeType | None = None, image: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    node_type = node_type or NodeType(slots=4)
    provisioning = Provisioning(provisioner="kubernetes", settings=settings, node_types=(node_type,))
    order = Order("gpus-7", node_type, {"TENUTO_AGENT_ID": "gpus-7", "TENUTO_JOIN_TOKEN": "secret"}, image)
    pod = manifests.pod("cluster-1", "gpus", order, pod_of(provisioning, node_type))
    return pod, manifests.secret("cluster-1", "gpus", order, "uid-1")


@pytest.mark.parametrize(
    "settings", [IMAGE, EVERYTHING, {**IMAGE, "allow_root": "true", "worker_user": "tenuto-worker"}], ids=["least", "all", "root"]
)
@pytest.mark.parametrize("image", ["", "example.org/vision:3"], ids=["own", "of a trial"])
def test_documents_fit_the_published_schemas(settings: dict[str, str], image: str) -> None:
    for document in made(settings, image=image):
        assert [error.message for error in problems(document, strict=True)] == []


@pytest.mark.parametrize("image", ["", "example.org/vision:3"], ids=["own", "of a trial"])
def test_a_pod_has_the_least_rights(image: str) -> None:
    """Those of the Pod Security Standard "restricted"."""
    spec = made(IMAGE, image=image)[0]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        own = container["securityContext"]
        assert own == {"allowPrivilegeEscalation": False, "privileged": False, "capabilities": {"drop": ["ALL"]}}
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} <= {"emptyDir", "persistentVolumeClaim"}


def test_the_grace_leaves_the_agent_time_to_save() -> None:
    spec = made({**IMAGE, "grace_seconds": "300"})[0]["spec"]
    environment = {item["name"]: item["value"] for item in spec["containers"][0]["env"]}
    assert spec["terminationGracePeriodSeconds"] == 300
    assert environment["TENUTO_LEAVE_SIGNAL_SECONDS"] == "295"


def test_the_agent_may_close_its_directory_to_others() -> None:
    """A mounted disk belongs to root, whose mode another account cannot change."""
    [container] = made(IMAGE)[0]["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    directory, mounts = environment["TENUTO_AGENT_DIRECTORY"], [item["mountPath"] for item in container["volumeMounts"]]
    assert directory not in mounts
    assert any(directory.startswith(f"{mount}/") for mount in mounts)


def test_every_setting_reaches_the_pod() -> None:
    spec = made(EVERYTHING)[0]["spec"]
    [container] = spec["containers"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "vision"},
        {"key": "x", "operator": "Exists"},
    ]
    assert spec["nodeSelector"] == {"cloud.example.org/gpu": "a100", "zone": ""}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"] == {
        "cpu": "3500m", "memory": "16Gi", "ephemeral-storage": "50Gi", "nvidia.com/gpu": "4",
    }  # fmt: skip
    mounted = {item["mountPath"]: item.get("readOnly", False) for item in container["volumeMounts"]}
    assert mounted == {manifests.DISK: False, "/dev/shm": False, "/data": True, "/scratch": False}
    assert (spec["serviceAccountName"], spec["priorityClassName"], spec["runtimeClassName"]) == ("agents", "low", "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert spec["securityContext"]["runAsUser"] == 5000
    provisioning = Provisioning(provisioner="kubernetes", settings=EVERYTHING)
    assert connection_of(provisioning).namespace == "team-a"


def test_a_type_has_settings_of_its_own_before_those_of_the_pool() -> None:
    small = NodeType(name="small", settings={"memory": "1Gi", "image": "other:2"})
    [container] = made({**IMAGE, "memory": "8Gi", "cpu": "2"}, small)[0]["spec"]["containers"]
    assert (container["image"], container["resources"]["limits"]) == ("other:2", {"memory": "1Gi", "cpu": "2"})


@pytest.mark.parametrize(
    ("settings", "node_type", "said"),
    [
        ({}, {}, "Setting image is required"),
        ({"imag": "x"}, {}, "Setting imag is unknown to the provisioner kubernetes, whose settings are: allow_root,"),
        ({"cpu": "lots"}, {}, "Setting cpu must be a quantity such as 4, 500m or 16Gi (found 'lots')."),
        ({"volumes": "data:relative"}, {}, "Setting volumes must be claims NAME:/PATH"),
        ({"volumes": "data:/a/../etc"}, {}, "Setting volumes must be claims NAME:/PATH"),
        ({"volumes": "a:/x,b:/x"}, {}, "mounts two claims at /x"),
        ({"tolerations": "x:Sometimes"}, {}, "Setting tolerations must be taints"),
        ({"node_selector": "zone"}, {}, "Setting node_selector must be labels key=value"),
        ({"run_as_user": "0"}, {}, "Setting run_as_user is 0, which is root: choose another account, or set allow_root=true."),
        ({"worker_user": "worker"}, {}, "set allow_root=true as well"),
        ({"grace_seconds": "5"}, {}, "Setting grace_seconds must be a whole number from 20 to 3600 (found '5')."),
        ({"allow_root": "yes"}, {}, "Setting allow_root must be true or false"),
        ({}, {"settings": {"namespace": "x", "image": "y"}}, "Setting namespace belongs to the pool, not to its type of nodes"),
        ({"image": "x"}, {"device": "A100"}, "have the device A100, but ask for none: set gpu_resource"),
        ({"image": "x"}, {"images": True}, "cannot run trials that name an image"),
        ({**IMAGE, "worker_user": "w", "allow_root": "true"}, {"node_images": ("x",)}, "would run as root; leave out one"),
        ({**IMAGE, "run_as_user": "0", "allow_root": "true"}, {"node_images": ("x",)}, "run_as_user is 0: an image that a trial"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(settings: dict[str, str], node_type: dict[str, Any], said: str) -> None:
    given = settings if settings == {} or "image" in settings or "imag" in settings else IMAGE | settings
    with pytest.raises(BadSetting) as caught:
        made(given, NodeType(**node_type))
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("file", ["../x", "/etc/passwd", "a/b", ".hidden"])
def test_a_kubeconfig_is_a_file_of_the_directory_of_secrets(file: str) -> None:
    with pytest.raises(BadSetting, match="without a path"):
        connection_of(Provisioning(provisioner="kubernetes", settings={"kubeconfig": file}))


def test_names_are_valid_and_differ_where_ids_or_clusters_do() -> None:
    ids = ["gpus-1", "GPUS-1", "gpus_1", "a.b:c", "-", "x" * 128, "x" * 127 + "y"]
    names = [manifests.name_of(cluster, node_id) for cluster in ("one", "two") for node_id in ids]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)
    labels = [manifests.label_of(text) for text in ids]
    assert len(set(labels)) == len(labels)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label) for label in labels)


def test_a_pod_in_a_trials_image_gets_our_packages_from_the_pools_image() -> None:
    image = "example.org/vision:3"
    spec = made({**EVERYTHING, "gpu_resource": "nvidia.com/gpu"}, image=image)[0]["spec"]
    [first], [agent] = spec["initContainers"], spec["containers"]
    assert (first["image"], agent["image"]) == (IMAGE["image"], image)
    assert agent["command"] == ["python3", "-I", "/tenuto/boot.py", "agent", image, "gpus-7"]
    assert {"name": "packages", "mountPath": "/tenuto", "readOnly": True} in agent["volumeMounts"]
    assert {"name": "packages", "emptyDir": {}} in spec["volumes"]
    assert "envFrom" not in first, "it gets no token"
    assert first["resources"]["limits"] == {"cpu": "3500m", "memory": "16Gi", "ephemeral-storage": "50Gi"}, "and no device"


@pytest.mark.parametrize(
    ("image", "settings", "device", "required"),
    [
        ("example.org/vision:3", {"gpu_resource": "nvidia.com/gpu"}, "", True),
        ("example.org/vision:3", {"gpu_resource": "nvidia.com/gpu"}, "cpu", False),
        ("example.org/vision:3", {}, "", False),
        ("", {"gpu_resource": "nvidia.com/gpu"}, "", False),
    ],
)
def test_an_agent_in_a_trials_image_needs_the_gpus_that_its_pod_holds(
    image: str, settings: dict[str, str], device: str, required: bool
) -> None:
    [container] = made({**IMAGE, **settings}, NodeType(slots=2, device=device), image)[0]["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    assert Settings.from_environment(environment).gpus_required == required


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"])
def test_a_pod_without_its_image_is_told_apart(reason: str) -> None:
    pod = made(IMAGE)[0]
    pod["metadata"]["namespace"] = "default"
    for said, missing in ((reason, True), ("ContainerCreating", False), ("CrashLoopBackOff", False)):
        pod["status"] = {"containerStatuses": [{"state": {"waiting": {"reason": said}}}]}
        assert pods.node_of(pod).image_missing is missing


def test_words_of_kubernetes_are_shown_as_one_short_line() -> None:
    status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "x\n\x1b[2J" * 200}]}
    [detail] = [pods.node_of({"metadata": {"name": "a", "namespace": "b"}, "spec": {}, "status": status}).detail]
    assert len(detail) == pods.DETAIL_MAX
    assert "\n" not in detail
    assert "\x1b" not in detail


def test_the_guide_has_every_setting() -> None:
    text = (ROOT / "docs/kubernetes.md").read_text()
    rows = set(re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE))
    assert rows == NAMES
