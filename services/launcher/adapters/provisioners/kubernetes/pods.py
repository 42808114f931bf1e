"""Pods as nodes: what a pod's document says about the node, in the words of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tenuto.schemas.text import visible
from tenuto.services.launcher.adapters.provisioners import Phase, RealNode
from tenuto.services.launcher.adapters.provisioners.kubernetes.manifests import NODE

Document = dict[str, Any]
DETAIL_MAX = 300
"""Most characters of Kubernetes's words: the reason stands in front, a list of machines at the end."""
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
"""Kubelet's reasons for a container that waits because it has no image. It tries again by itself, ever more seldom."""
_ORDINARY = ("ContainerCreating", "PodInitializing", "Completed")


def node_of(pod: Document) -> RealNode:
    """A pod without a machine is pending: nothing of it is paid for. From then on it is running, as it holds the machine, also
    while its image is pulled: if that fails for ever, the time to join ends it."""
    waiting = [
        (item.get("state") or {}).get("waiting") or {} for item in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    missing = any(item.get("reason") in _NO_IMAGE for item in waiting)
    return RealNode(node_id_of(pod), provider_id_of(pod), _phase(pod), _detail(pod), image_missing=missing)


def node_id_of(pod: Document) -> str:
    metadata = pod.get("metadata") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    return str(annotations.get(NODE) or labels.get(NODE) or "")


def provider_id_of(pod: Document) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def place_of(provider_id: str) -> tuple[str, str]:
    """Namespace and name."""
    namespace, _, name = provider_id.partition("/")
    return namespace, name


def is_ended(pod: Document) -> bool:
    return _phase(pod) == "ended"


def finished_at(pod: Document) -> float | None:
    """Time at which the last container ended, in seconds since 1970. None: not known."""
    times = [
        terminated["finishedAt"]
        for status in _containers(pod)
        if (terminated := (status.get("state") or {}).get("terminated")) and terminated.get("finishedAt")
    ]
    try:
        return max((datetime.fromisoformat(text).timestamp() for text in times), default=None)
    except ValueError:
        return None


def _phase(pod: Document) -> Phase:
    said = (pod.get("status") or {}).get("phase", "Pending")
    if said in ("Succeeded", "Failed"):
        return "ended"
    if said == "Pending" and not (pod.get("spec") or {}).get("nodeName"):
        return "pending"
    return "running"


def _detail(pod: Document) -> str:
    parts = list(_reasons(pod))
    if (pod.get("metadata") or {}).get("deletionTimestamp") and not is_ended(pod):
        parts.insert(0, "it is being deleted")
    return shown("; ".join(parts))


def _reasons(pod: Document) -> Iterable[str]:
    status = pod.get("status") or {}
    if status.get("reason"):  # Evicted, NodeLost, Preempting, DeadlineExceeded
        yield _said(status["reason"], status.get("message"))
    for condition in status.get("conditions") or ():
        if (condition.get("type"), condition.get("status")) in (("PodScheduled", "False"), ("DisruptionTarget", "True")):
            yield _said(condition.get("reason"), condition.get("message"))
    for item in _containers(pod):
        state = item.get("state") or {}
        if (waiting := state.get("waiting")) and waiting.get("reason") not in _ORDINARY:
            yield _said(waiting.get("reason"), waiting.get("message"))
        if terminated := state.get("terminated"):
            code = terminated.get("exitCode", 0)
            reason = str(terminated.get("reason") or "Error")
            if code or reason != "Completed":
                # Its message is the end of what the agent printed.
                yield _said(f"{reason}, exit code {code}", _last_line(terminated.get("message")))


def _containers(pod: Document) -> list[Document]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _said(reason: Any, message: Any) -> str:
    return ": ".join(str(part).strip() for part in (reason, message) if part)


def _last_line(text: Any) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[-1] if lines else ""


def shown(text: str) -> str:
    text = visible(" ".join(text.split()))
    return text if len(text) <= DETAIL_MAX else text[: DETAIL_MAX - 3] + "..."


def quota_left(quota: Document) -> list[tuple[str, str, str]]:
    """Rows of a ResourceQuota: resource, used, most."""
    status = quota.get("status") or {}
    hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
    used = status.get("used") or {}
    return [(name, str(used.get(name, "0")), str(amount)) for name, amount in sorted(hard.items())]


def message_of(body: bytes) -> tuple[str, str]:
    """Reason and message of an answer that refuses (a `Status`); empty where it is something else, such as a proxy's page."""
    try:
        status = json.loads(body)
    except ValueError:
        return "", ""
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return "", ""
    return str(status.get("reason") or ""), shown(str(status.get("message") or ""))
