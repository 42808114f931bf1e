"""The chart on a real Kubernetes, installed as its guide says, and used: migrations, services, volumes, probes, the launcher's
own account, and a trial in a pod that it starts. Network policies are not enforced there."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenuto.embedded.nats import executable
from tests.conftest import Database
from tests.support import kubernetes_machine as machine
from tests.support.helm import CHART, Helm, lack
from tests.support.kubernetes_real import MARKS, RealKubernetes
from tests.support.live_cluster import TENUTO, WAIT_SECONDS_MAX
from tests.support.namespaces import reached_at
from tests.support.ports import own_port
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, STORE, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.real_part(lack()), *MARKS]
NAMESPACE, IMAGE = "tenuto", "tenuto.test/chart"
BUS = ("relay", "searcher", "scheduler", "launcher", "tracker", "gateway", "keeper")
MODEL = Path(__file__).parent / "models/leaving"


def kubectl(helm: Helm, kubernetes: RealKubernetes, *words: str) -> list[str]:
    return [str(helm.kubectl), "--kubeconfig", str(kubernetes.directory / "admin.kubeconfig"), "--namespace", NAMESPACE, *words]


def done(command: list[str]) -> str:
    found = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX * 2, check=False)
    assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
    return found.stdout


@contextmanager
def installed(helm: Helm, kubernetes: RealKubernetes, database: Database, stores: Path) -> Iterator[str]:
    """What Helm prints, as soon as all is ready."""
    kubernetes.make_namespace(NAMESPACE, granted=False)
    machine.make_image(kubernetes, f"{IMAGE}:1", ["OMP_NUM_THREADS=1"])
    machine.make_image(kubernetes, "tenuto.test/nats:1", [], entry=(str(executable()),))
    for name, mode, size in (("state", "ReadWriteMany", "50Gi"), ("bus", "ReadWriteOnce", "10Gi")):
        machine.local_volume(kubernetes, kubernetes.directory / f"volume-{name}", mode, size)
    urls = {"owner-url": database.owner_url, "service-url": database.url}
    given = {name: url.replace("127.0.0.1", kubernetes.here) for name, url in urls.items()}
    bus, declared = {name: secrets.token_hex(24) for name in BUS}, {"stores.yaml": stores.read_text()}
    for name, values in (("database", given), ("bus", bus), ("stores", declared)):
        metadata = {"name": f"tenuto-{name}", "namespace": NAMESPACE}
        kubernetes.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values})
    values = {
        "image.repository": IMAGE, "image.tag": "1", "nats.image.repository": "tenuto.test/nats", "nats.image.tag": "1",
        "database.existingSecret": "tenuto-database", "bus.existingSecret": "tenuto-bus",
        "stores.existingSecret": "tenuto-stores",
    }  # fmt: skip
    options = [word for key, value in values.items() for word in ("--set-string", f"{key}={value}")]
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(kubernetes.directory / "admin.kubeconfig"))
    tried = helm.run("install", "tenuto", CHART, *where, *options, "--dry-run=server")
    assert tried.returncode == 0, tried.stderr
    made = helm.run("install", "tenuto", CHART, *where, *options, "--wait", "--timeout", "8m", seconds_max=600)
    pods = done(kubectl(helm, kubernetes, "get", "pods", "--output", "wide"))
    assert made.returncode == 0, f"{made.stdout}{made.stderr}{pods}"
    yield made.stdout
    gone = helm.run("uninstall", "tenuto", *where, "--wait", "--timeout", "5m", seconds_max=400)
    kubernetes.empty(NAMESPACE)  # pods of its pools are not the chart's
    assert gone.returncode == 0, gone.stderr


@contextmanager
def forwarded(helm: Helm, kubernetes: RealKubernetes) -> Iterator[str]:
    port = own_port()
    command = kubectl(helm, kubernetes, "port-forward", "service/tenuto-gateway", f"{port}:8080")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "Forwarding from" in process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_the_chart_is_installed_and_trains(
    kubernetes: RealKubernetes, empty_database: Database, s3_server: S3Server, tmp_path: Path
) -> None:
    helm, stores = Helm.unpacked(tmp_path), tmp_path / "stores.yaml"
    place = ["--bucket", s3_server.bucket, "--endpoint", f"http://{kubernetes.here}:{s3_server.port}", "--no-test"]
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    command = [str(TENUTO), "store", "create", STORE, "--file", str(stores), "--type", "s3", *place]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **keys}, timeout=WAIT_SECONDS_MAX)
    port = int(empty_database.url.rpartition(":")[2].partition("/")[0])
    with (
        reached_at(kubernetes.here, port),
        reached_at(kubernetes.here, s3_server.port),
        installed(helm, kubernetes, empty_database, stores) as printed,
        forwarded(helm, kubernetes) as url,
    ):
        assert "exec deployment/tenuto-gateway -- cat /state/rest/rest.token" in printed
        token = done(
            kubectl(helm, kubernetes, "exec", "deployment/tenuto-gateway", "--", "cat", "/state/rest/rest.token")
        ).strip()
        environment = {**os.environ, "TENUTO_URL": url, "TENUTO_TOKEN": token, "HOME": str(tmp_path)}

        def tenuto(*words: str | Path) -> str:
            command = [str(TENUTO), *map(str, words)]
            found = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=WAIT_SECONDS_MAX * 2, check=False
            )
            assert found.returncode == 0, f"{words}: {found.stdout}{found.stderr}"
            return found.stdout

        tenuto("status")
        settings: dict[str, Any] = {"image": f"{IMAGE}:1", "image_pull_policy": "Never", "cpu": "600m", "memory": "2Gi"}
        given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        tenuto("pool", "create", "far", "--provisioner", "kubernetes", "--slots", "1", "--max", "1", *given)
        checked = tenuto("pool", "check", "far")
        assert "problem" not in checked
        assert "not seen" not in checked, "the chart's Role lets the check see all"
        options = ("--set", "resources.pool=far", "--set", f"checkpoint_storage.store={STORE}")
        tenuto("exp", "create", MODEL / "config.yaml", MODEL, *options, "--follow")
        assert "completed" in tenuto("exp", "ls")
