"""A Kubernetes API server of the tests' own: objects with versions, selectors, pages, watches, admission, graceful deletion and
owners, as the real one answers.

What it promises is in tests/contract/test_kubernetes_api.py, which runs against a real server, too.
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
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.support import kubernetes_protobuf
from tests.support.kubernetes_objects import OF_THE_CLUSTER, Document, KubernetesObjects, now
from tests.support.kubernetes_rules import Invalid, admitted, defaulted, fields_match, labels_match, usage, validate

TOKEN = "token-of-the-tests"
VERSION = "v1.33.0-tests"


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
class KubernetesApi(KubernetesObjects):
    """`start` and `stop` it. Everything that it has is in `objects`."""

    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Verb and resource (`pods/log`) that the account may not use."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each."""
    url: str = ""
    asks_for_token: bool = True
    """False: all may all. Programs in Go send no token over a connection without TLS."""
    watches: int = 0
    """Begun so far."""
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(middlewares=[self._middleware], client_max_size=4 << 20)
        app.router.add_get("/version{slash:/?}", self._tell_version)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        for pattern in (
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}/{name}/{part}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}/{name}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/namespaces/{namespace}/{resource}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/{resource}/{name}",
            "/{api:api/v1|apis/[^/]+/[^/]+}/{resource}",
        ):
            app.router.add_route("*", pattern, self._handle)
        self._add_routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        for name in ("default", "kube-system"):
            self.put("namespaces", "", {"metadata": {"name": name}, "status": {"phase": "Active"}})
        self.put("serviceaccounts", "default", {"metadata": {"name": "default"}})

    def _add_routes(self, app: web.Application) -> None:
        """Further ones."""

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

    # The door

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        fault = next(self._due(request), None)
        if fault is not None and fault.status == 0:
            await asyncio.sleep(3_600)
        try:
            if self.asks_for_token and request.headers.get("Authorization") != f"Bearer {TOKEN}":
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
        body = await body_of(request)
        wanted = body["spec"]["resourceAttributes"]
        resource = "/".join(part for part in (wanted["resource"], wanted.get("subresource")) if part)
        return web.json_response(body | {"status": {"allowed": (wanted["verb"], resource) not in self.forbidden}}, status=201)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        found = request.match_info
        resource, name, part = found["resource"], found.get("name", ""), found.get("part", "")
        namespace = "" if resource in OF_THE_CLUSTER else found.get("namespace", "")
        if resource not in self.kinds or found["api"] != (
            "apis/" + self.groups[resource] if resource in self.groups else "api/v1"
        ):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        verbs = {"POST": "create", "DELETE": "delete", "GET": "get" if name else "list", "PUT": "update", "PATCH": "patch"}
        verb = verbs.get(request.method, "other")
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
        if verb in ("update", "patch") and name and not part:
            return await self._write(request, resource, namespace, name)
        if (resource, namespace, name) not in self.objects:
            raise Refused(404, "NotFound", f'{resource} "{name}" not found')
        if verb == "delete" and not part:
            return await self._delete(request, resource, namespace, name)
        if verb == "get" and part == "log":
            return self._log(request, name, namespace)
        if verb == "get" and not part:
            return web.json_response(self._view(self.objects[resource, namespace, name]))
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    async def _write(self, request: web.Request, resource: str, namespace: str, name: str) -> web.Response:
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _view(self, body: Document) -> Document:
        if body["kind"] == "ResourceQuota":
            hard, namespace = body["spec"]["hard"], body["metadata"]["namespace"]
            counted = [pod for pod in self.counted if pod["metadata"]["namespace"] == namespace]
            return body | {"status": {"hard": hard, "used": usage(hard, [*self.pods(namespace), *counted])}}
        return body

    async def _create(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        body = await body_of(request)
        if namespace and ("namespaces", "", namespace) not in self.objects:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        metadata = body.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        validate(self.kinds[resource], body)
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
        return web.json_response(
            {"kind": f"{self.kinds[resource]}List", "apiVersion": "v1", "metadata": metadata, "items": items}
        )

    async def _watch(self, request: web.Request, resource: str, namespace: str) -> web.StreamResponse:
        query, response = request.query, web.StreamResponse(headers={"Content-Type": "application/json"})
        if query.get("sendInitialEvents"):  # as a server does that has no lists by watches
            raise Refused(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        seen = int(query.get("resourceVersion") or self._version)
        await response.prepare(request)
        self.watches += 1

        async def tell(event: str, body: Document) -> None:
            await response.write(json.dumps({"type": event, "object": body}).encode() + b"\n")

        if seen < self.oldest:
            text = f"too old resource version: {seen} ({self.oldest})"
            await tell("ERROR", {"kind": "Status", "status": "Failure", "message": text, "reason": "Expired", "code": 410})
            return response
        with suppress(TimeoutError, ConnectionResetError):  # the latter: who watched has gone
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
            await tell("BOOKMARK", {"kind": self.kinds[resource], "apiVersion": "v1", "metadata": {"resourceVersion": str(seen)}})
        return response

    async def _delete(self, request: web.Request, resource: str, namespace: str, name: str) -> web.Response:
        body = self.objects[resource, namespace, name]
        options = await body_of(request) if request.can_read_body else {}
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != body["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}")
        if resource == "pods" and body["spec"].get("nodeName") and body["status"]["phase"] in ("Pending", "Running"):
            given = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
            grace = int(body["spec"]["terminationGracePeriodSeconds"] if given is None else given)
            if grace > 0:
                body = copy.deepcopy(body)
                body["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
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


async def body_of(request: web.Request) -> Document:
    try:
        is_json = request.content_type != kubernetes_protobuf.CONTENT_TYPE
        found = await request.json() if is_json else kubernetes_protobuf.read(await request.read())
    except ValueError:
        raise Refused(400, "BadRequest", "the object provided is unrecognized") from None
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the object provided is unrecognized")
    return found
