"""What NetworkPolicies of Kubernetes let through, by the rules of its documentation and without a cluster: a connection needs
the leave of its source and of its target, a pod that no policy selects has every leave, and leaves of several policies add up."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int] = field(default_factory=dict)
    """Ports with a name."""


@dataclass(frozen=True)
class Outside:
    """An address outside of the cluster, which no selector chooses."""

    name: str
    address: str = "203.0.113.1"


End = Pod | Outside


@dataclass(frozen=True)
class Policies:
    documents: Sequence[Document]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of namespaces, beside the name that each has as a label."""

    def __post_init__(self) -> None:
        for document in self.documents:
            assert (document["kind"], document["apiVersion"]) == ("NetworkPolicy", "networking.k8s.io/v1")

    def let_through(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        return self.lets_out(source, target, port, protocol) and self._granted(target, source, target, port, protocol, "Ingress")

    def lets_out(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """The leave of the source alone."""
        return self._granted(source, target, target, port, protocol, "Egress")

    def _granted(self, judged: End, other: End, target: End, port: int, protocol: str, direction: str) -> bool:
        """True if policies of `judged` grant it a connection with `other`."""
        if isinstance(judged, Outside):
            return True
        mine = [item for item in self.documents if self._selects(item, judged) and direction in _types(item["spec"])]
        rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
        return not mine or any(
            _has_port(rule.get("ports"), target, port, protocol) and self._has_peer(rule.get(peers), other, judged.namespace)
            for item in mine
            for rule in item["spec"].get(rules) or ()
        )

    def _selects(self, document: Document, pod: Pod) -> bool:
        return document["metadata"]["namespace"] == pod.namespace and chosen(document["spec"]["podSelector"], pod.labels)

    def _has_peer(self, peers: Iterable[Document] | None, other: End, own_namespace: str) -> bool:
        """No peers: everybody."""
        return not peers or any(self._is_peer(peer, other, own_namespace) for peer in peers)

    def _is_peer(self, peer: Document, other: End, own_namespace: str) -> bool:
        """Both selectors in one peer must choose; one of pods alone chooses in the policy's own namespace."""
        assert peer.keys() <= {"podSelector", "namespaceSelector", "ipBlock"}
        if isinstance(other, Outside):
            return "ipBlock" in peer and _in_block(peer["ipBlock"], other.address)
        if "ipBlock" in peer:
            return False  # a pod's address is its cluster's matter
        if "namespaceSelector" in peer:
            named = {"kubernetes.io/metadata.name": other.namespace, **self.namespaces.get(other.namespace, {})}
            if not chosen(peer["namespaceSelector"], named):
                return False
        elif other.namespace != own_namespace:
            return False
        return "podSelector" not in peer or chosen(peer["podSelector"], other.labels)


def chosen(selector: Document, labels: Mapping[str, str]) -> bool:
    """True if a selector of labels chooses these; an empty one chooses all."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
        fits = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits[operator]:
            return False
    return True


def _types(spec: Document) -> Sequence[str]:
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]


def _has_port(ports: Iterable[Document] | None, target: End, port: int, protocol: str) -> bool:
    """No ports: all."""
    return not ports or any(
        item.get("protocol", "TCP") == protocol and ("port" not in item or _fits(item, target, port)) for item in ports
    )


def _fits(item: Document, target: End, port: int) -> bool:
    first = item["port"]
    if isinstance(first, str):
        return isinstance(target, Pod) and target.ports.get(first) == port
    return bool(first <= port <= item.get("endPort", first))


def _in_block(block: Document, address: str) -> bool:
    place = ipaddress.ip_address(address)
    return place in ipaddress.ip_network(block["cidr"]) and not any(
        place in ipaddress.ip_network(item) for item in block.get("except") or ()
    )
