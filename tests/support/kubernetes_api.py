"""A Kubernetes API server of the tests' own: objects with versions, selectors, pages, watches, admission, graceful deletion and
owners, as the real one answers; and what a scheduler and a kubelet would do, when a test says so.

What it promises is in tests/contract/test_kubernetes_api.py, which runs against a real server, too.
Long, because it is one server.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.support.kubernetes_rules import Invalid, admitted, defaulted, fields_match, labels_match, usage, validate

Document = dict[str, Any]
TOKEN = "token-of-the-tests"
VERSION = "v1.33.0-tests"
KINDS = {
    "pods": "Pod",
    "secrets": "Secret",
    "namespaces": "Namespace",
    "resourcequotas": "ResourceQuota",
    "serviceaccounts": "ServiceAccount",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "priorityclasses": "PriorityClass",
}
OF_THE_CLUSTER = ("namespaces", "priorityclasses")
GROUPS = {"priorityclasses": "scheduling.k8s.io/v1"}


class Refused(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def answer(self) -> web.Response:
        body = {
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.status,
        }  # fmt: skip
        return web.json_response(body, status=self.status)


@dataclass
class Fault:
    """Of requests with this method and this end of their path, `times` times."""

    method: str
    path: str
    status: int
    """0: never answered."""
    message: str = "something broke"
    done: bool = False
    """True: what was asked for is done, and the answer is an error all the same."""
    times: int = 1


@dataclass
class KubernetesApi:
    """`start` and `stop` it. Everything that it has is in `objects`."""

    objects: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    """By resource, namespace (empty for those of the cluster) and name."""
    logs: dict[str, str] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Verb and resource (`pods/log`) that the account may not use."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each."""
    counted: list[Document] = field(default_factory=list)
    """Pods that were refused for their name after they had been counted for quotas. The real one counts anew after minutes."""
    url: str = ""
    oldest: int = 100
    """Versions before it are forgotten."""
    watches: int = 0
    """Begun so far."""
    cut_watches: int = 0
    """So many watches break (`cut`)."""
    _version: int = 100
    _history: list[tuple[int, str, str, Document]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._middleware], client_max_size=4 << 20)
        app.router.add_get("/version/", self._tell_version)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        for pattern in (
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}/{name}/{part}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}/{name}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/{resource}/{name}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/{resource}",
        ):
            app.router.add_route("*", pattern, self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        for name in ("default", "kube-system"):
            self.put("namespaces", "", {"metadata": {"name": name}, "status": {"phase": "Active"}})
        self.put("serviceaccounts", "default", {"metadata": {"name": "default"}})

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, path: Path, *, token: str = TOKEN, namespace: str = "default") -> Path:
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": {"server": self.url}}],
            "users": [{"name": "launcher", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "launcher", "namespace": namespace}}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(document))
        return path

    # What a test, the scheduler or a kubelet does

    def put(self, resource: str, namespace: str, body: Document) -> Document:
        body = {"apiVersion": GROUPS.get(resource, "v1"), "kind": KINDS[resource], **copy.deepcopy(body)}
        metadata = body["metadata"]
        if namespace:
            metadata["namespace"] = namespace
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", _now())
        known = (resource, namespace, metadata["name"]) in self.objects
        self._store(resource, namespace, body, "MODIFIED" if known else "ADDED")
        return body

    def pods(self, namespace: str = "default") -> list[Document]:
        return [item for (resource, where, _), item in sorted(self.objects.items()) if (resource, where) == ("pods", namespace)]

    def pod(self, name: str, namespace: str = "default") -> Document:
        return self.objects["pods", namespace, name]

    def unschedulable(self, name: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._change(name, lambda pod: pod["status"].update(conditions=[condition]))

    def schedule(self, name: str, machine: str = "machine-1") -> None:
        """The pod has a machine, and its image is pulled."""

        def change(pod: Document) -> None:
            pod["spec"]["nodeName"] = machine
            pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
            self._state(pod, {"waiting": {"reason": "ContainerCreating"}})

        self._change(name, change)

    def waits(self, name: str, reason: str, message: str) -> None:
        self._change(name, lambda pod: self._state(pod, {"waiting": {"reason": reason, "message": message}}))

    def run(self, name: str, log: str = "") -> None:
        """A kubelet starts a container only if the Secret that it names is there."""
        pod = self.pod(name)
        for source in pod["spec"]["containers"][0].get("envFrom", ()):
            secret = source["secretRef"]["name"]
            if ("secrets", pod["metadata"]["namespace"], secret) not in self.objects:
                self.schedule(name)
                self.waits(name, "CreateContainerConfigError", f'secret "{secret}" not found')
                return
        if not pod["spec"].get("nodeName"):
            self.schedule(name)
        self.logs[name] = log

        def change(pod: Document) -> None:
            pod["status"]["phase"] = "Running"
            self._state(pod, {"running": {"startedAt": _now()}})

        self._change(name, change)

    def finish(self, name: str, exit_code: int, reason: str = "", message: str = "", at: str = "") -> None:
        """The container has ended; a pod that was being deleted is gone with it."""
        ended = {"exitCode": exit_code, "reason": reason or ("Completed" if exit_code == 0 else "Error"), "message": message}

        def change(pod: Document) -> None:
            pod["status"]["phase"] = "Succeeded" if exit_code == 0 else "Failed"
            self._state(pod, {"terminated": {**ended, "finishedAt": at or _now()}})

        self._change(name, change)
        if self.pod(name)["metadata"].get("deletionTimestamp"):
            self._remove("pods", self.pod(name)["metadata"]["namespace"], name)

    def evict(self, name: str, message: str = "The node was low on resource: memory.") -> None:
        self._change(name, lambda pod: pod["status"].update(phase="Failed", reason="Evicted", message=message))

    def _state(self, pod: Document, state: Document) -> None:
        pod["status"]["containerStatuses"] = [{"name": pod["spec"]["containers"][0]["name"], "state": state}]

    def _change(self, name: str, change: Callable[[Document], None], namespace: str = "default") -> None:
        pod = copy.deepcopy(self.pod(name, namespace))
        change(pod)
        self._store("pods", namespace, pod, "MODIFIED")

    async def cut(self) -> None:
        """Breaks the connection of one watch."""
        self.cut_watches += 1
        await self._wake()

    def forget(self) -> None:
        """Watches cannot go on from any version so far, as after a compaction."""
        self.oldest = self._version + 1
        self._version += 1

    # The store

    def _store(self, resource: str, namespace: str, body: Document, event: str) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[resource, namespace, body["metadata"]["name"]] = body
        self._note(resource, event, body)

    def _remove(self, resource: str, namespace: str, name: str) -> Document:
        body = self.objects.pop((resource, namespace, name))
        self._version += 1
        self._note(resource, "DELETED", body)
        uid = body["metadata"]["uid"]
        for key, item in list(self.objects.items()):  # the garbage collector
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ())):
                self._remove(*key)
        return body

    def _note(self, resource: str, event: str, body: Document) -> None:
        self._history.append((self._version, resource, event, copy.deepcopy(body)))
        with suppress(RuntimeError):
            asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # The door

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        fault = next(self._due(request), None)
        if fault is not None and fault.status == 0:
            await asyncio.sleep(3_600)
        try:
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refused(401, "Unauthorized", "Unauthorized")
            if fault is not None and not fault.done:
                raise Refused(fault.status, "InternalError", fault.message)
            answer: web.StreamResponse = await handler(request)
        except Refused as error:
            return error.answer()
        except Invalid as error:
            return Refused(error.status, "Invalid" if error.status == 422 else "BadRequest", str(error)).answer()
        return Refused(fault.status, "InternalError", fault.message).answer() if fault is not None else answer

    def _due(self, request: web.Request) -> Iterator[Fault]:
        for fault in self.faults:
            if fault.method == request.method and request.path.endswith(fault.path) and fault.times > 0:
                fault.times -= 1
                yield fault

    async def _tell_version(self, request: web.Request) -> web.Response:
        rest = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")
        return web.json_response({"major": "1", "minor": "33", "gitVersion": VERSION, **dict.fromkeys(rest, "tests")})

    async def _review(self, request: web.Request) -> web.Response:
        body = await _body(request)
        wanted = body["spec"]["resourceAttributes"]
        resource = "/".join(part for part in (wanted["resource"], wanted.get("subresource")) if part)
        return web.json_response(body | {"status": {"allowed": (wanted["verb"], resource) not in self.forbidden}}, status=201)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        found = request.match_info
        resource, name, part = found["resource"], found.get("name", ""), found.get("part", "")
        namespace = "" if resource in OF_THE_CLUSTER else found.get("namespace", "")
        if resource not in KINDS or found["api"] != ("apis/" + GROUPS[resource] if resource in GROUPS else "api/v1"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        verb = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list"}.get(request.method, "other")
        whole = f"{resource}/{part}" if part else resource
        if verb == "list" and request.query.get("watch"):
            verb = "watch"
        if (verb, whole) in self.forbidden:
            what = f'{whole} "{name}"' if name else whole
            raise Refused(
                403, "Forbidden",
                f'{what} is forbidden: User "launcher" cannot {verb} resource "{whole}" in API group "" in the namespace '
                f'"{namespace}"',
            )  # fmt: skip
        if verb == "create" and not name:
            return await self._create(request, resource, namespace)
        if verb in ("list", "watch"):
            return await (self._watch if verb == "watch" else self._list)(request, resource, namespace)
        if (resource, namespace, name) not in self.objects:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        if verb == "delete" and not part:
            return await self._delete(request, resource, namespace, name)
        if verb == "get" and part == "log":
            return self._log(request, name, namespace)
        if verb == "get" and not part:
            return web.json_response(self._view(self.objects[resource, namespace, name]))
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _view(self, body: Document) -> Document:
        if body["kind"] == "ResourceQuota":
            hard, namespace = body["spec"]["hard"], body["metadata"]["namespace"]
            counted = [pod for pod in self.counted if pod["metadata"]["namespace"] == namespace]
            return body | {"status": {"hard": hard, "used": usage(hard, [*self.pods(namespace), *counted])}}
        return body

    async def _create(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        body = await _body(request)
        if namespace and ("namespaces", "", namespace) not in self.objects:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        metadata = body.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        validate(KINDS[resource], body)
        body = defaulted(resource, body)
        if resource == "pods":
            refused = admitted(body, namespace, self.objects, self.counted)
            if refused:
                raise Refused(403, "Forbidden", f'pods "{metadata["name"]}" is forbidden: {refused}')
        if (resource, namespace, metadata["name"]) in self.objects:
            if resource == "pods" and not request.query.get("dryRun"):
                self.counted.append(body | {"metadata": {**metadata, "namespace": namespace}})
            raise Refused(409, "AlreadyExists", f'{resource} "{metadata["name"]}" already exists')
        if request.query.get("dryRun") == "All":
            return web.json_response(body | {"metadata": {**body["metadata"], "uid": str(uuid.uuid4())}}, status=201)
        if "stringData" in body:
            given = {key: base64.b64encode(value.encode()).decode() for key, value in body.pop("stringData").items()}
            body["data"] = {**body.get("data", {}), **given}
        made = self.put(resource, namespace, body)
        uids = {item["metadata"]["uid"] for item in self.objects.values()}
        if any(owner["uid"] not in uids for owner in made["metadata"].get("ownerReferences", ())):
            self._remove(resource, namespace, metadata["name"])
        return web.json_response(made, status=201)

    async def _list(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        query = request.query
        names = [
            key for key, item in sorted(self.objects.items())
            if key[0] == resource and (not namespace or key[1] == namespace)
            and labels_match(query.get("labelSelector", ""), item["metadata"].get("labels", {}))
            and fields_match(query.get("fieldSelector", ""), item)
        ]  # fmt: skip
        version, after = str(self._version), ""
        if query.get("continue"):
            try:
                version, after = json.loads(base64.urlsafe_b64decode(query["continue"]))
            except ValueError:
                raise Refused(400, "BadRequest", "continue key is not valid") from None
        left = [key for key in names if "/".join(key) > after]
        limit = int(query.get("limit") or 0) or len(left)
        metadata: Document = {"resourceVersion": version}
        if len(left) > limit:
            token = json.dumps([version, "/".join(left[limit - 1])]).encode()
            metadata |= {"continue": base64.urlsafe_b64encode(token).decode(), "remainingItemCount": len(left) - limit}
        items = [self._view(self.objects[key]) for key in left[:limit]]
        return web.json_response({"kind": f"{KINDS[resource]}List", "apiVersion": "v1", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, resource: str, namespace: str) -> web.StreamResponse:
        query, response = request.query, web.StreamResponse(headers={"Content-Type": "application/json"})
        seen = int(query.get("resourceVersion") or self._version)
        await response.prepare(request)
        self.watches += 1

        async def tell(event: str, body: Document) -> None:
            await response.write(json.dumps({"type": event, "object": body}).encode() + b"\n")

        if seen < self.oldest:
            text = f"too old resource version: {seen} ({self.oldest})"
            await tell("ERROR", {"kind": "Status", "status": "Failure", "message": text, "reason": "Expired", "code": 410})
            return response
        with suppress(TimeoutError):
            async with asyncio.timeout(int(query.get("timeoutSeconds") or 1_800)):
                while not self.cut_watches:
                    for version, of, event, body in list(self._history):
                        if version <= seen:
                            continue
                        seen = version
                        if of != resource or (namespace and body["metadata"].get("namespace") != namespace):
                            continue
                        if labels_match(query.get("labelSelector", ""), body["metadata"].get("labels", {})):
                            await tell(event, body)
                    async with self._changed:
                        while (self._history[-1][0] if self._history else 0) <= seen and not self.cut_watches:
                            await self._changed.wait()
                self.cut_watches -= 1
                assert request.transport is not None
                request.transport.abort()
                return response
        if query.get("allowWatchBookmarks"):
            await tell("BOOKMARK", {"kind": KINDS[resource], "apiVersion": "v1", "metadata": {"resourceVersion": str(seen)}})
        return response

    async def _delete(self, request: web.Request, resource: str, namespace: str, name: str) -> web.Response:
        body = self.objects[resource, namespace, name]
        options = await _body(request) if request.can_read_body else {}
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != body["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}")
        if resource == "pods" and body["spec"].get("nodeName") and body["status"]["phase"] in ("Pending", "Running"):
            given = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
            grace = int(body["spec"]["terminationGracePeriodSeconds"] if given is None else given)
            if grace > 0:
                body = copy.deepcopy(body)
                body["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace}
                self._store(resource, namespace, body, "MODIFIED")
                return web.json_response(body)
        return web.json_response(self._remove(resource, namespace, name))

    def _log(self, request: web.Request, name: str, namespace: str) -> web.Response:
        pod = self.pod(name, namespace)
        if pod["status"]["phase"] == "Pending" and pod["spec"].get("nodeName"):
            container = pod["spec"]["containers"][0]["name"]
            raise Refused(400, "BadRequest", f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        lines = self.logs.get(name, "").splitlines(keepends=True)
        if request.query.get("tailLines"):
            lines = lines[-int(request.query["tailLines"]) :]
        text = "".join(lines).encode()[: int(request.query.get("limitBytes") or 1 << 30)]
        return web.Response(body=text, content_type="text/plain")


async def _body(request: web.Request) -> Document:
    try:
        found = await request.json()
    except ValueError:
        raise Refused(400, "BadRequest", "the object provided is unrecognized") from None
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the object provided is unrecognized")
    return found


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
