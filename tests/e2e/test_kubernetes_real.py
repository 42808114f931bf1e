"""Pools of pods on a real Kubernetes, used as docs/kubernetes.md says, with no more rights than it names: evicted and deleted
pods, gangs over the pods' own addresses, and what is said of pods that cannot start."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import kubernetes_machine as machine
from tests.support.kubernetes_real import MARKS, RealKubernetes
from tests.support.live_cluster import LiveCluster
from tests.support.namespaces import reached_at
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, STORE, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), *MARKS]
NAMESPACE, IMAGE = "training", "tenuto.test/tenuto:1"
LEAVING = Path(__file__).parent / "models/leaving"
RANKED = Path(__file__).parents[1] / "support/trials/ranked"
GPU = "nvidia.com/gpu"
Document = dict[str, Any]


@dataclass
class Field:
    """A live cluster, and a namespace that it may start pods in."""

    cluster: LiveCluster
    kubernetes: RealKubernetes
    settings: dict[str, str]
    gates: Path
    """Directory that pods see, too."""

    def create_pool(self, name: str, *options: str, **settings: str) -> None:
        given = [word for key, value in {**self.settings, **settings}.items() for word in ("--set", f"{key}={value}")]
        self.cluster.cli(
            "pool", "create", name, "--provisioner", "kubernetes", "--slots", "1", "--idle-seconds", "10", *options, *given
        )

    def pods(self, pool: str) -> list[Document]:
        found = self.kubernetes.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=tenuto.dev/pool%3D{pool}")
        items: list[Document] = found["items"]
        return items

    def evict(self, pod: Document) -> None:
        """As `kubectl drain` does."""
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        self.kubernetes.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body)

    def delete(self, pod: Document, **options: object) -> None:
        self.kubernetes.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", options)

    def of(self, kind: str, experiment: str = "") -> list[Any]:
        events = [event for event in self.cluster.events() if event.type == kind]
        return [event.data for event in events if not experiment or event.correlation_id == experiment]

    def submit(self, context: Path, config: Document) -> str:
        file = self.cluster.directory / "config.yaml"
        file.write_text(yaml.safe_dump({**config, "checkpoint_storage": {"store": STORE}}))
        return str(self.cluster.json("exp", "create", file, context)["id"])

    def says(self, words: str, *command: str) -> str:
        """What a command prints, as soon as it has these words."""
        return self.cluster.once(lambda: " ".join(self.cluster.cli(*command).stdout.split()), lambda text: words in text)


@pytest.fixture(scope="module")
def field(kubernetes: RealKubernetes, s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    directory = tmp_path_factory.mktemp("field")
    gates, files = directory / "gates", directory / "files"
    for path in (gates, files):
        path.mkdir()
    gates.chmod(0o777)
    kubernetes.make_namespace(NAMESPACE)
    machine.make_image(kubernetes, IMAGE, ["OMP_NUM_THREADS=1", "TENUTO_HEARTBEAT_SECONDS=0.5"])
    kubernetes.kubeconfig(files / "kubeconfig", "launcher", NAMESPACE)
    volumes = machine.claim(kubernetes, NAMESPACE, gates)
    settings = {
        "image": IMAGE,
        "image_pull_policy": "Never",
        "kubeconfig": "kubeconfig",
        "volumes": volumes,
        "cpu": "600m",
        "memory": "2Gi",
    }
    cluster = LiveCluster(directory / "cluster", cpu_slots=1)
    cluster.environment |= {"TENUTO_PROVISIONER_DIRECTORY": str(files)}
    s3_process.make_bucket("pods")
    place = ["--bucket", "pods", "--endpoint", f"http://{kubernetes.here}:{s3_process.port}", "--no-test"]
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    try:
        with reached_at(kubernetes.here, s3_process.port), cluster.listening(kubernetes.here):
            cluster.cli("store", "create", STORE, "--type", "s3", *place, more=keys)
            yield Field(cluster, kubernetes, settings, gates)
            cluster.check_bus()
    finally:
        kubernetes.empty(NAMESPACE)


def test_a_trial_goes_on_in_other_pods_when_its_own_are_evicted_and_killed(field: Field) -> None:
    field.create_pool("one", "--max", "2")
    checked = field.cluster.cli("pool", "check", "one").stdout
    assert "Kubernetes v1." in checked
    assert "problem" not in checked
    assert field.pods("one") == []

    gate = field.gates / "one"
    config = {**yaml.safe_load((LEAVING / "config.yaml").read_text()), "resources": {"pool": "one"}}
    experiment = field.submit(LEAVING, {**config, "hyperparameters": {"gate": str(gate)}})
    field.cluster.wait_for(lambda: bool(field.of("CheckpointSaved", experiment)))
    assert "agent is ready" in field.cluster.cli("node", "logs", "one-1").stdout
    [pod] = field.pods("one")
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert not pod["spec"].get("hostNetwork")
    field.evict(pod)
    field.cluster.wait_for(lambda: bool(field.of("WorkersExited", experiment)))
    assert field.of("WorkersExited", experiment)[0].outcome == "preempted", "it saved in its grace period"
    lost = field.cluster.once(
        lambda: [data.announced for data in field.of("AgentLost") if data.agent_id == "one-1"], lambda found: len(found) > 0
    )
    assert lost == [True]

    field.cluster.wait_for(lambda: len(field.of("WorkersStarted", experiment)) == 2)
    [pod] = [pod for pod in field.pods("one") if not pod["metadata"].get("deletionTimestamp")]
    field.delete(pod, gracePeriodSeconds=0)
    field.cluster.wait_for(lambda: len(field.of("WorkersExited", experiment)) == 2)
    gate.touch()
    field.cluster.wait_for(lambda: bool(field.of("ExperimentCompleted", experiment)))
    agents = [data.slots[0].agent_id for data in field.of("AllocationGranted", experiment)]
    assert agents[:3] == ["one-1", "one-2", "one-3"]
    field.cluster.wait_for(lambda: not field.pods("one"))
    with pytest.raises(urllib.error.HTTPError):
        field.kubernetes.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{pod['metadata']['name']}")


def test_a_gang_trains_over_the_addresses_of_its_pods_and_goes_on_after_one_was_evicted(field: Field) -> None:
    field.create_pool("gangs", "--max", "3")
    experiment = field.submit(
        RANKED,
        {
            "name": "ranked", "entrypoint": "model_def:RankedTrial",
            "hyperparameters": {"random": True, "noise": 0.1, "batch": 9, "loader_workers": 0},
            "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 120}},
            "resources": {"slots_per_trial": 3, "pool": "gangs"}, "min_checkpoint_period": {"batches": 20},
            "environment": {"variables": {"TEST_SLOW": "data 0 0.03"}},
        },
    )  # fmt: skip
    field.cluster.wait_for(lambda: bool(field.of("CheckpointSaved", experiment)))
    pods = field.pods("gangs")
    addresses = {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == 3
    assert field.kubernetes.address not in addresses
    field.evict(pods[1])
    field.cluster.wait_for(lambda: bool(field.of("ExperimentCompleted", experiment)))
    assert field.of("TrialFinished", experiment)
    outcomes = [data.outcome for data in field.of("WorkersExited", experiment)]
    assert outcomes[0] == "preempted"
    assert outcomes[-1] == "finished"


def test_what_is_said_of_pods_that_cannot_start(field: Field) -> None:
    config = {**yaml.safe_load((LEAVING / "config.yaml").read_text())}
    field.create_pool("gpus", "--max", "1", gpu_resource=GPU)
    field.create_pool("lost", "--max", "1", image="tenuto.test/none-such:1")
    field.create_pool("few", "--max", "1", namespace="few")
    field.kubernetes.make_namespace("few")
    quota = {"metadata": {"name": "nothing", "namespace": "few"}, "spec": {"hard": {"pods": "0"}}}
    field.kubernetes.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    wanted = {name: field.submit(LEAVING, {**config, "resources": {"pool": name}}) for name in ("gpus", "lost", "few")}
    for command in (("job", "ls"), ("pool", "show", "gpus")):
        said = field.says("Insufficient nvidia.com/gpu", *command)
        assert "Unschedulable: 0/1 nodes are available: 1 Insufficient" in said, "processors, too, while pods of others are there"
    assert "ErrImageNeverPull" in field.says("ErrImageNeverPull", "job", "ls")
    assert "exceeded quota: nothing, requested: pods=1, used: pods=0, limited: pods=0" in field.says(
        "exceeded quota", "job", "ls"
    )

    path = f"/api/v1/nodes/{machine.NAME}/status"
    field.kubernetes.patch(path, {"status": {"capacity": {GPU: "1"}, "allocatable": {GPU: "1"}}})
    field.cluster.wait_for(lambda: bool(field.of("ExperimentCompleted", wanted["gpus"])))
    for name in ("lost", "few"):
        field.cluster.cli("exp", "kill", wanted[name])
