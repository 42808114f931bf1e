"""Network policies of deploy/helm/tenuto, evaluated: each part reaches what it needs and no stranger reaches it, by the pods,
services and addresses that the chart itself renders. Without any one rule of any one policy a line of these tables is wrong."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenuto.services.launcher.adapters.provisioners.kubernetes.manifests import labels_of
from tests.support.helm import Document, Helm, lack, named, pods_of
from tests.support.network_policies import End, Outside, Pod, Policies
from tests.unit.test_deploy import MODULES

pytestmark = pytest.mark.real_part(lack())
RELEASE = "ml"
"""Namespace of `Helm.rendered`."""


def from_namespace(name: str) -> list[Document]:
    return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}]


CASES: Mapping[str, Mapping[str, Any]] = {
    "least": {},
    "elsewhere": {
        "agents": {"namespace": "training"},
        "metrics": {"port": 9200},
        "networkPolicy": {
            "metricsFrom": from_namespace("monitoring"), "gatewayFrom": from_namespace("ingress"),
            "natsFrom": [{"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.9/32"]}}],
        },
    },
    "own-servers": {
        "nats": {"enabled": False, "url": "tls://nats.example.org:4443,tls://nats2.example.org", "caSecret": "nats-ca"},
        "database": {"port": 6432},
    },
}  # fmt: skip
DATABASE, API, WEB = Outside("the database"), Outside("the API server"), Outside("a web server")
STRANGE_PORT = 29_511
Row = tuple[End, End, int, str, bool]
"""Source, target, port, protocol, and True if it is needed, False if nobody needs it."""


class World:
    """Pods as the chart and the launcher make them, and others."""

    def __init__(self, documents: Sequence[Document], values: Mapping[str, Any]) -> None:
        self.documents, self.values = documents, values
        self.pods = {pod.name: pod for item in documents if "template" in item.get("spec", {}) for pod in [_pod(item)]}
        self.services = [self.pods[name] for name in sorted(MODULES)]
        place = values.get("agents", {}).get("namespace", RELEASE)
        self.agents = [Pod(f"agent {n}", place, labels_of("cluster-1", "gpus", f"gpus-{n}")) for n in (1, 2)]
        relay = self.pods["relay"].labels
        self.strangers: list[End] = [
            Pod("a pod beside the release", RELEASE, {"app": "notebook"}),
            Pod("a pod beside the agents", place, {"app": "notebook"}),
            Pod("one labeled as an agent, elsewhere", "elsewhere", self.agents[0].labels),
            Pod("one labeled as a service, elsewhere", "elsewhere", relay),
            Pod("another release", RELEASE, {**relay, "app.kubernetes.io/instance": "other"}),
            Outside("somebody outside", "198.51.100.7"),
        ]
        self.policies = Policies([item for item in documents if item["kind"] == "NetworkPolicy"])

    def variable(self, service: str, name: str) -> str:
        [container] = pods_of(list(self.documents))[service]["containers"]
        [item] = [item for item in container["env"] if item["name"] == name]
        return str(item["value"])

    def behind(self, url: str) -> list[tuple[End, int]]:
        """Pods or servers, with their ports, that an address of the configuration leads to."""
        found: list[tuple[End, int]] = []
        for part in url.split(","):
            place = urlsplit(part)
            host, port = str(place.hostname), place.port or 4222
            if not host.endswith(f".{RELEASE}.svc"):
                found.append((Outside(host), port))
                continue
            service = named(list(self.documents), "Service", host.partition(".")[0])["spec"]
            [target] = [item["targetPort"] for item in service["ports"] if item["port"] == port]
            [pod] = [pod for pod in self.pods.values() if service["selector"].items() <= pod.labels.items()]
            found.append((pod, pod.ports[target]))
        return found

    def rows(self) -> Iterator[Row]:
        buses = [place for service in self.services for place in self.behind(self.variable(service.name, "TENUTO_NATS_URL"))]
        [gateway] = self.behind(self.variable("gateway", "TENUTO_PUBLIC_URL"))
        port = self.values.get("database", {}).get("port", 5432)
        nameserver = Pod("the name server", "kube-system", {"k8s-app": "kube-dns"})
        for service in self.services:
            yield from ((service, nameserver, 53, protocol, True) for protocol in ("UDP", "TCP"))
            yield service, DATABASE, port, "TCP", True
            yield from ((service, *place, "TCP", True) for place in buses)
        for name in ("gateway", "launcher", "tracker"):
            yield self.pods[name], WEB, 443, "TCP", True
        yield self.pods["launcher"], API, 6443, "TCP", True
        yield self.pods["migrate"], DATABASE, port, "TCP", True
        for agent, other in (self.agents, self.agents[::-1]):
            yield from ((agent, *place, "TCP", True) for place in (gateway, *buses))
            yield agent, WEB, 443, "TCP", True
            yield agent, other, STRANGE_PORT, "TCP", True
        yield from self._asked_for()
        yield from self._forbidden()

    def _asked_for(self) -> Iterator[Row]:
        """What values of the chart open."""
        given = self.values.get("networkPolicy", {})
        if given:
            prometheus, proxy = Pod("Prometheus", "monitoring", {}), Pod("the proxy", "ingress", {})
            for service in self.services:
                yield prometheus, service, service.ports["metrics"], "TCP", True
                yield proxy, service, service.ports["metrics"], "TCP", False
            yield proxy, self.pods["gateway"], self.pods["gateway"].ports["rest"], "TCP", True
            yield prometheus, self.pods["gateway"], self.pods["gateway"].ports["rest"], "TCP", False
            yield Outside("a machine that joined"), self.pods["nats"], self.pods["nats"].ports["nats"], "TCP", True
            yield Outside("one that may not", "203.0.113.9"), self.pods["nats"], self.pods["nats"].ports["nats"], "TCP", False

    def _forbidden(self) -> Iterator[Row]:
        for stranger in self.strangers:
            for pod in self.pods.values():
                yield from ((stranger, pod, port, "TCP", False) for port in (*pod.ports.values(), STRANGE_PORT))
            yield from ((stranger, agent, STRANGE_PORT, "TCP", False) for agent in self.agents)
        for service in self.services:
            yield from ((agent, service, service.ports["metrics"], "TCP", False) for agent in self.agents)
            yield from ((service, agent, STRANGE_PORT, "TCP", False) for agent in self.agents)
            yield from ((service, other, other.ports["metrics"], "TCP", False) for other in self.services if other != service)
        for name in ("relay", "searcher", "scheduler"):
            yield self.pods[name], WEB, 443, "TCP", False
            yield self.pods[name], self.pods["gateway"], self.pods["gateway"].ports["rest"], "TCP", False
            yield (
                self.pods[name],
                self.strangers[0],
                4222,
                "TCP",
                "nats" not in self.pods,
            )  # where a NATS of yours is, nobody knows
        if nats := self.pods.get("nats"):
            yield nats, WEB, 443, "TCP", False
            yield nats, DATABASE, 5432, "TCP", False
            yield from ((pod, nats, nats.ports["monitor"], "TCP", False) for pod in (*self.services, *self.agents))

    def wrong(self, policies: Policies) -> Iterator[str]:
        for source, target, port, protocol, needed in self.rows():
            if policies.let_through(source, target, port, protocol) != needed:
                verb = "does not reach" if needed else "reaches"
                yield f"{source.name} {verb} {target.name} at {protocol} port {port}"
        # NATS itself lets nobody in there, so that only the leave of the source can tell.
        for name in ("relay", "searcher", "scheduler"):
            if "nats" in self.pods and policies.lets_out(self.pods[name], self.pods["nats"], self.pods["nats"].ports["monitor"]):
                yield f"{name} may ask NATS's monitor"


def _pod(owner: Document) -> Pod:
    template = owner["spec"]["template"]
    ports = {
        item["name"]: item["containerPort"] for container in template["spec"]["containers"] for item in container.get("ports", ())
    }
    labels = template["metadata"]["labels"]
    return Pod(labels["app.kubernetes.io/component"], owner["metadata"]["namespace"], labels, ports)


@pytest.fixture(scope="module")
def worlds(helm: Helm) -> Mapping[str, World]:
    return {name: World(helm.rendered(values), values) for name, values in CASES.items()}


@pytest.mark.parametrize("case", CASES)
def test_each_part_reaches_what_it_needs_and_no_stranger_reaches_it(worlds: Mapping[str, World], case: str) -> None:
    world = worlds[case]
    rows = list(world.rows())
    assert len(rows) > 100
    assert {needed for *_, needed in rows} == {True, False}
    assert list(world.wrong(world.policies)) == []


def lessened(documents: Sequence[Document]) -> Iterator[tuple[str, list[Document]]]:
    """These policies without one of them, without one of their rules, and without one port or one peer of a rule."""
    for number, document in enumerate(documents):
        name = document["metadata"]["name"]

        def changed(*way: str | int, number: int = number) -> list[Document]:
            copied = copy.deepcopy(list(documents))
            holder = functools.reduce(lambda item, key: item[key], way[:-1], copied[number]["spec"])
            del holder[way[-1]]
            return copied

        yield name, [*documents[:number], *documents[number + 1 :]]
        for direction in ("ingress", "egress"):
            for at, rule in enumerate(document["spec"].get(direction) or ()):
                yield f"{name}.{direction}.{at}", changed(direction, at)
                for part in ("ports", "from", "to"):
                    for index in range(len(rule.get(part) or ())):
                        yield f"{name}.{direction}.{at}.{part}.{index}", changed(direction, at, part, index)
                    if part in rule:
                        yield f"{name}.{direction}.{at} with any of {part}", changed(direction, at, part)


@pytest.mark.parametrize("case", CASES)
def test_no_part_of_a_policy_can_be_left_out(worlds: Mapping[str, World], case: str) -> None:
    world = worlds[case]
    tried = list(lessened(world.policies.documents))
    assert len(tried) > 15
    unnoticed = [name for name, documents in tried if next(world.wrong(Policies(documents)), None) is None]
    assert unnoticed == []


def test_no_policies_where_none_are_asked_for(helm: Helm) -> None:
    assert [item for item in helm.rendered({"networkPolicy": {"enabled": False}}) if item["kind"] == "NetworkPolicy"] == []
