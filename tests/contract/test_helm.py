"""deploy/helm/tenuto: linted and rendered by Helm, valid by Kubernetes' published schemas, and in accord with the services."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest
import yaml

from tenuto.embedded.nats import executable
from tenuto.kernel.bus_permissions import KEEPER, SERVICES, agent_user
from tenuto.kernel.monitoring.catalogue import MEASURES
from tenuto.kernel.settings import Settings
from tenuto.services.gateway.cluster.adapters.bus_keeper import BusKeeper
from tenuto.services.launcher.adapters.provisioners.kubernetes.checks import RIGHTS
from tenuto.version import __version__
from tests.support import prometheus_operator
from tests.support.helm import CHART, LEAST, Document, Helm, lack, named, pods_of
from tests.support.kubernetes_rules import problems
from tests.support.ports import own_port
from tests.support.prometheus_operator import problems as operators_problems
from tests.support.waiting import SECONDS_MAX
from tests.unit.test_deploy import MODULES, ON_THE_BUS, asked_for

pytestmark = pytest.mark.real_part(lack())
MONITORING = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
EVERYTHING: Mapping[str, Any] = {
    "image": {"repository": "registry.example.org/tenuto", "tag": "2", "pullSecrets": ["registry"]},
    "persistence": {"accessMode": "ReadWriteOnce", "storageClass": "fast"},
    "nats": {"persistence": {"enabled": False}, "publicUrl": "nats://203.0.113.7:4222", "service": {"type": "LoadBalancer"}},
    "stores": {"existingSecret": "tenuto-stores"},
    "gateway": {
        "publicUrl": "https://tenuto.example.org", "env": {"TENUTO_DELETION_GRACE_HOURS": "1"},
        "oidc": {"issuer": "https://id.example.org", "clientId": "tenuto", "existingSecret": "tenuto-oidc", "createUsers": True},
    },
    "ingress": {"enabled": True, "host": "tenuto.example.org", "className": "nginx", "tlsSecret": "tenuto-tls"},
    "launcher": {"provisionerSecret": "tenuto-provisioners"},
    "agents": {"namespace": "training"},
    "metrics": {
        "port": 9200, "prometheusRule": {"enabled": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {
        "metricsFrom": MONITORING,
        "gatewayFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
    },
    "nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"key": "control", "operator": "Exists"}],
    "priorityClassName": "high", "podAnnotations": {"team": "ml"},
}  # fmt: skip
OWN_NATS: Mapping[str, Any] = {
    "nats": {"enabled": False, "url": "tls://nats.example.org:4222", "caSecret": "nats-ca"},
    "persistence": {"existingClaim": "files"}, "agents": {"rbac": False}, "networkPolicy": {"enabled": False},
    "metrics": {"enabled": False},
}  # fmt: skip
CASES: Mapping[str, Mapping[str, Any]] = {"least": {}, "everything": EVERYTHING, "own-nats": OWN_NATS}


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> dict[str, list[Document]]:
    return {name: helm.rendered(values) for name, values in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_to_say(helm: Helm, case: str) -> None:
    done = helm.run("lint", "--strict", CHART, *helm.values(CASES[case]))
    assert (done.returncode, "[WARNING]" in done.stdout) == (0, False), done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_what_it_renders_is_valid(rendered: dict[str, list[Document]], case: str) -> None:
    wrong = [
        (item["kind"], item["metadata"]["name"], [str(part) for part in error.absolute_path], error.message)
        for item in rendered[case]
        for error in (
            operators_problems(item) if item["apiVersion"] == prometheus_operator.API_VERSION else problems(item, strict=True)
        )
    ]
    assert wrong == []
    names = [(item["kind"], item["metadata"]["name"]) for item in rendered[case]]
    assert len(set(names)) == len(names) >= 10


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("service", sorted(MODULES))
def test_each_service_is_given_what_its_code_asks_for(rendered: dict[str, list[Document]], case: str, service: str) -> None:
    [container] = pods_of(rendered[case])[service]["containers"]
    given = {item["name"]: item.get("value") for item in container["env"]}
    optional = {
        "oidc_issuer",
        "oidc_client_id",
        "oidc_client_secret_file",
        "cors_origins",
        "webhook_addresses",
        "provisioner_directory",
        "stores_file",
    }
    needed = {f"TENUTO_{name.upper()}" for name in (asked_for(CHART.parents[2] / MODULES[service]) | ON_THE_BUS) - optional}
    assert needed <= given.keys()
    assert ("TENUTO_STORES_FILE" in given) == (case == "everything" and service in ("gateway", "launcher", "tracker"))
    known = {f"TENUTO_{item.name.upper()}" for item in fields(Settings)} | {"HOME"}
    assert given.keys() <= known, "a variable that no process reads"
    module = MODULES[service].removeprefix("src/tenuto/").removesuffix(".py").replace("/", ".")
    assert container["command"] == ["python", "-m", f"tenuto.{module}"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    for name, value in given.items():
        if name.endswith(("_FILE", "_DIRECTORY")):
            assert any(value == path or str(value).startswith(f"{path}/") for path in mounted), name
    volumes = {item["name"] for item in pods_of(rendered[case])[service]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_restricted(rendered: dict[str, list[Document]], case: str) -> None:
    pods = pods_of(rendered[case])
    assert {*MODULES, "migrate"} <= pods.keys()
    for name, pod in pods.items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (name == "launcher" and case != "own-nats")
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            own = container["securityContext"]
            assert own == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            assert {"requests", "limits"} <= container["resources"].keys()


def test_every_port_has_a_protocol(rendered: dict[str, list[Document]]) -> None:
    """Helm 4 applies on the server's side, and API servers before 1.23 know no default there: such an install ends halfway."""
    services = [item["spec"] for item in rendered["everything"] if item["kind"] == "Service"]
    containers = [container for pod in pods_of(rendered["everything"]).values() for container in pod["containers"]]
    ports = [port for place in (*services, *containers) for port in place.get("ports", ())]
    assert len(ports) >= 4
    assert all("protocol" in port for port in ports), ports


def test_secrets_go_to_those_who_need_them(rendered: dict[str, list[Document]]) -> None:
    pods = pods_of(rendered["everything"])
    for service in SERVICES:
        [items] = [volume["secret"]["items"] for volume in pods[service]["volumes"] if volume["name"] == "bus"]
        assert items == [{"key": service, "path": "password"}], "its own password, and no other's"
    owners = {name for name, pod in pods.items() if "owner-url" in json.dumps(pod)}
    assert owners == {"migrate"}
    with_key = {name for name, pod in pods.items() if "/state/keys" in json.dumps(pod)}
    assert with_key == {"gateway", "launcher"}
    assert not [item for item in rendered["everything"] if item["kind"] == "Secret"]


def test_the_launcher_may_what_its_provisioner_needs_and_hardly_more(rendered: dict[str, list[Document]]) -> None:
    role = named(rendered["everything"], "Role", "t-tenuto-launcher")
    assert role["metadata"]["namespace"] == "training"
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    needed = {(resource, verb) for resource, verbs in RIGHTS for verb in verbs}
    reads = {("namespaces", "get"), ("serviceaccounts", "get"), ("persistentvolumeclaims", "get"), ("resourcequotas", "list")}
    assert granted == needed | reads
    binding = named(rendered["everything"], "RoleBinding", "t-tenuto-launcher")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "t-tenuto-launcher", "namespace": "ml"}]
    assert not [item for item in rendered["own-nats"] if item["kind"] in ("Role", "RoleBinding")]


def test_migrations_come_before_everything_else(rendered: dict[str, list[Document]]) -> None:
    job = named(rendered["least"], "Job", "t-tenuto-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    spec = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec, "the chart's own accounts do not exist before the first install"
    assert {next(iter(volume.keys() - {"name"})) for volume in spec["volumes"]} == {"emptyDir"}


def test_a_claim_for_one_machine_keeps_its_pods_together(rendered: dict[str, list[Document]]) -> None:
    pods = pods_of(rendered["everything"])
    together = {name for name, pod in pods.items() if "podAffinity" in pod.get("affinity", {})}
    with_claim = {name for name, pod in pods.items() if "persistentVolumeClaim" in json.dumps(pod["volumes"])}
    assert together | {"gateway"} == with_claim == {"gateway", "tracker", "launcher", "nats"}
    assert not any("affinity" in pod for pod in pods_of(rendered["least"]).values())


def test_network_policies_open_what_is_needed(rendered: dict[str, list[Document]]) -> None:
    documents = rendered["everything"]
    assert named(documents, "NetworkPolicy", "t-tenuto-closed")["spec"].get("ingress") is None
    [rule] = named(documents, "NetworkPolicy", "t-tenuto-gateway")["spec"]["ingress"]
    assert len(rule["from"]) == 2
    assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "training"}
    assert named(documents, "NetworkPolicy", "t-tenuto-agents")["metadata"]["namespace"] == "training"
    assert not [item for item in rendered["own-nats"] if item["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("service", sorted(MODULES))
def test_each_service_is_probed_and_scraped_where_it_listens(rendered: dict[str, list[Document]], service: str) -> None:
    for case, port in (("least", 9100), ("everything", 9200)):
        [container] = pods_of(rendered[case])[service]["containers"]
        given = {item["name"]: item.get("value") for item in container["env"]}
        assert Settings(metrics_listen=given["TENUTO_METRICS_LISTEN"]).metrics_address() == ("0.0.0.0", port)
        ports = {item["name"]: item["containerPort"] for item in container["ports"]}
        assert ports["metrics"] == port
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] in ports
            assert asked["path"] in ("/healthz", "/readyz")
        headless = named(rendered[case], "Service", f"t-tenuto-{service}-metrics")
        assert headless["spec"]["ports"] == [{"name": "metrics", "port": port, "targetPort": "metrics", "protocol": "TCP"}]
        assert headless["spec"]["selector"]["app.kubernetes.io/component"] == service
    monitor = named(rendered["everything"], "ServiceMonitor", "t-tenuto")
    chosen = named(rendered["everything"], "Service", f"t-tenuto-{service}-metrics")["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= chosen.items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [without] = pods_of(rendered["own-nats"])[service]["containers"]
    assert ("livenessProbe" in without) == (service == "gateway")
    assert not [item for item in rendered["own-nats"] if item["kind"] in ("ServiceMonitor", "PrometheusRule")]


def test_only_who_is_named_reads_metrics(rendered: dict[str, list[Document]]) -> None:
    policy = named(rendered["everything"], "NetworkPolicy", "t-tenuto-metrics")["spec"]
    assert policy["ingress"] == [{"ports": [{"port": 9200}], "from": MONITORING}]
    assert set(policy["podSelector"]["matchExpressions"][0]["values"]) == set(MODULES)
    assert not [item for item in rendered["least"] if item["metadata"]["name"] == "t-tenuto-metrics"]


def test_alerts_are_those_of_the_document_and_ask_for_metrics_that_exist(rendered: dict[str, list[Document]]) -> None:
    text = (CHART.parents[2] / "docs/metrics.md").read_text()
    documented = yaml.safe_load(text[text.index("```yaml\ngroups:") + 8 :].partition("```")[0])
    assert documented == yaml.safe_load((CHART / "alerts.yaml").read_text())
    assert named(rendered["everything"], "PrometheusRule", "t-tenuto")["spec"] == documented
    known = {measure.name for measure in MEASURES} | {f"{item.name}_bucket" for item in MEASURES if item.kind == "histogram"}
    asked = set(re.findall(r"tenuto_[a-z_]+", " ".join([rule["expr"] for rule in documented["groups"][0]["rules"]])))
    assert asked <= known
    assert set(re.findall(r"tenuto_[a-z_]+", text)) <= known


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"database": {"existingSecret": ""}}, "database.existingSecret is required"),
        ({"bus": {"existingSecret": ""}}, "bus.existingSecret is required"),
        ({"image": {"repository": ""}}, "image.repository is required"),
        ({"nats": {"enabled": False}}, "nats.url is required where nats.enabled is false"),
        ({"ingress": {"enabled": True}}, "ingress.host is required where ingress.enabled is true"),
        ({"persistence": {"accessMode": "Sometimes"}}, "accessMode"),
        ({"gatway": {}}, "gatway"),
        ({"metrics": {"port": 80}}, "port"),
        ({"metrics": {"port": 8080}}, "port"),
        ({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}}, "metrics.enabled is required"),
        ({"gateway": {"env": {"TENUTO_LOG_JSON": 1}}}, "TENUTO_LOG_JSON"),
        ({"gateway": {"env": {"TENUTO_REST_PORT": "80"}}}, "gateway.env must not have TENUTO_REST_PORT"),
        ({"relay": {"env": {"TENUTO_NATS_URL": "nats://elsewhere"}}}, "relay.env must not have TENUTO_NATS_URL"),
        ({"gateway": {"oidc": {"clientId": "tenuto"}}}, "gateway.oidc.issuer and gateway.oidc.clientId belong together"),
        ({"gateway": {"resources": {"limits": {"memory": "much"}}}}, "memory"),
        ({"image": {"repository": 'tenuto"\n          securityContext: {privileged: true}\n#'}}, "repository"),
        ({"agents": {"namespace": "Our Agents"}}, "namespace"),
        ({"nats": {"enabled": False, "url": 'tls://nats"'}}, "url"),
    ],
)
def test_values_that_do_not_fit_are_refused(helm: Helm, values: Mapping[str, Any], said: str) -> None:
    done = helm.run("template", "t", CHART, *helm.values(values))
    assert done.returncode != 0
    assert said in done.stderr


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"].keys() == yaml.safe_load((CHART / "values.yaml").read_text()).keys() | {"global"}
    assert set(LEAST) <= schema["properties"].keys()


async def test_nats_starts_with_the_rendered_configuration_and_takes_agents_in(
    rendered: dict[str, list[Document]], tmp_path: Path
) -> None:
    """The real server, the script of its first container, and the gateway's way to tell it of agents."""
    data = named(rendered["least"], "ConfigMap", "t-tenuto-nats")["data"]
    users, given = tmp_path / "users", tmp_path / "given"
    users.mkdir()
    given.mkdir()
    passwords = {name: secrets.token_urlsafe(16) for name in (*SERVICES, KEEPER)}
    for name, password in passwords.items():
        (given / name).write_text(password)
    (tmp_path / "users.py").write_text(data["users.py"])
    for _ in range(2):  # at each start of the pod
        command = [sys.executable, tmp_path / "users.py", given, users]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=SECONDS_MAX)
    port, monitor = own_port(), own_port()
    text = data["nats.conf"].replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("0.0.0.0:8222", f"127.0.0.1:{monitor}")
    (tmp_path / "nats.conf").write_text(text.replace('"/data"', json.dumps(str(tmp_path / "data"))))
    server = await asyncio.create_subprocess_exec(
        executable(), "--config", tmp_path / "nats.conf", stderr=asyncio.subprocess.PIPE
    )
    try:
        assert server.stderr is not None
        async with asyncio.timeout(SECONDS_MAX):
            while b"Server is ready" not in (line := await server.stderr.readline()):
                assert line, "it ended"
        reading = asyncio.create_task(server.stderr.read())
        [container] = pods_of(rendered["least"])["nats"]["containers"]
        async with aiohttp.ClientSession() as session:
            for probe in ("startupProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                async with session.get(f"http://127.0.0.1:{monitor}{path}") as answer:
                    assert answer.status == 200
        url = f"nats://127.0.0.1:{port}"
        await _login(url, "searcher", passwords["searcher"])
        with pytest.raises(nats.errors.Error):
            await _login(url, "searcher", passwords["relay"])
        keeper, own = BusKeeper(Settings(bus_users_directory=str(users), nats_url=url)), secrets.token_urlsafe(32)
        await keeper.admit("gpus-1", own)
        await _login(url, agent_user("gpus-1"), own)
    finally:
        server.terminate()
        await server.wait()
        await reading


async def _login(url: str, user: str, password: str) -> None:
    client = nats.NATS()
    try:
        await client.connect(url, user=user, password=password, allow_reconnect=False, connect_timeout=60)
    finally:
        await client.close()
