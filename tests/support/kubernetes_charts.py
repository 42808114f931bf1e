"""The tests' Kubernetes as Helm needs it: the kinds of a chart, discovery, changes by replacement and by server-side apply,
fields that cannot be changed, and jobs that end as a test says."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml
from aiohttp import web

from tests.support.kubernetes_api import KubernetesApi, Refused, body_of
from tests.support.kubernetes_objects import GROUPS, KINDS, OF_THE_CLUSTER, Document, now
from tests.support.kubernetes_rules import defaulted, problems, validate

RBAC, NETWORKING = "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1"
FIXED: Mapping[str, tuple[str, ...]] = {
    "deployments": ("selector",),
    "statefulsets": ("selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy"),
    "persistentvolumeclaims": ("accessModes", "storageClassName", "volumeName"),
    "jobs": ("template", "selector", "completions"),
}
"""Parts of `spec` that a real server refuses to change."""
APPLY = "application/apply-patch+yaml"
_SERVERS = ("uid", "creationTimestamp", "resourceVersion", "generation", "namespace")


@dataclass
class ChartApi(KubernetesApi):
    kinds: ClassVar[Mapping[str, str]] = {
        **KINDS, "configmaps": "ConfigMap", "services": "Service", "deployments": "Deployment", "statefulsets": "StatefulSet",
        "jobs": "Job", "roles": "Role", "rolebindings": "RoleBinding", "networkpolicies": "NetworkPolicy", "ingresses": "Ingress",
    }  # fmt: skip
    groups: ClassVar[Mapping[str, str]] = {
        **GROUPS, "deployments": "apps/v1", "statefulsets": "apps/v1", "jobs": "batch/v1", "roles": RBAC, "rolebindings": RBAC,
        "networkpolicies": NETWORKING, "ingresses": NETWORKING,
    }  # fmt: skip
    asks_for_token: bool = False
    job_fails: bool = False
    """Of those that begin from now on."""
    _applied: dict[tuple[str, str, str, str], Document] = field(default_factory=dict)
    """What each manager of fields applied last, by resource, namespace, name and manager."""

    def history(self, since: int = 0) -> list[tuple[str, str, str]]:
        """Event, resource and name of each change after that version."""
        return [(event, of, body["metadata"]["name"]) for version, of, event, body in self._history if version > since]

    @property
    def version(self) -> int:
        return self._version

    # Discovery

    def _add_routes(self, app: web.Application) -> None:
        app.router.add_get("/api", self._tell_core)
        app.router.add_get("/apis", self._tell_groups)
        app.router.add_get("/{api:api/v1|apis/[^/]+/[^/]+}", self._tell_resources)
        app.router.add_get("/openapi/v3", self._tell_descriptions)
        app.router.add_get("/openapi/v3/{api:api/v1|apis/[^/]+/[^/]+}", self._describe)

    async def _tell_core(self, request: web.Request) -> web.Response:
        return web.json_response({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})

    async def _tell_groups(self, request: web.Request) -> web.Response:
        groups = []
        for place in sorted(set(self.groups.values())):
            name, _, version = place.partition("/")
            told = {"groupVersion": place, "version": version}
            groups.append({"name": name, "versions": [told], "preferredVersion": told})
        return web.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def _tell_resources(self, request: web.Request) -> web.Response:
        path = request.match_info["api"]
        resources = [
            {
                "name": name, "singularName": kind.lower(), "kind": kind, "namespaced": name not in OF_THE_CLUSTER,
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }
            for name, kind in self.kinds.items()
            if self.path_of(name) == path
        ]  # fmt: skip
        if not resources:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        version = path.removeprefix("apis/").removeprefix("api/")
        return web.json_response({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})

    async def _tell_descriptions(self, request: web.Request) -> web.Response:
        paths = {self.path_of(name) for name in self.kinds}
        return web.json_response({"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(paths)}})

    async def _describe(self, request: web.Request) -> web.Response:
        """All that client-go looks for: that the server itself checks the fields of what it is given."""
        path = request.match_info["api"]
        group, _, version = path.removeprefix("apis/").removeprefix("api/").rpartition("/")
        checked = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
        paths = {
            f"/{path}/namespaces/{{namespace}}/{name}/{{name}}": {
                "patch": {
                    "parameters": checked,
                    "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
                }
            }
            for name, kind in self.kinds.items()
            if self.path_of(name) == path
        }
        return web.json_response({"openapi": "3.0.0", "info": {"title": "tests", "version": "1"}, "paths": paths})

    # Changes

    async def _write(self, request: web.Request, resource: str, namespace: str, name: str) -> web.Response:
        key = (resource, namespace, name)
        live = self.objects.get(key)
        if request.method == "PUT":
            if live is None:
                raise Refused(404, "NotFound", f'{resource} "{name}" not found')
            return self._changed_to(key, await body_of(request), request)
        if request.content_type != APPLY:
            raise Refused(415, "UnsupportedMediaType", f"{request.content_type} is not supported by this server of the tests")
        body: Document = yaml.safe_load(await request.read())
        manager = (*key, request.query["fieldManager"])
        made = copy.deepcopy(live) if live is not None else {"metadata": {"name": name}}
        _leave_out(made, self._applied.get(manager, {}), body)
        _put_in(made, body)
        answer = self._changed_to(key, made, request)
        if request.query.get("dryRun") != "All":
            self._applied[manager] = body
        return answer

    def _changed_to(self, key: tuple[str, str, str], body: Document, request: web.Request) -> web.Response:
        resource, namespace, name = key
        live = self.objects.get(key)
        if namespace and ("namespaces", "", namespace) not in self.objects:
            raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
        validate(self.kinds[resource], body)
        if request.query.get("fieldValidation") == "Strict":
            for error in problems(body, strict=True):
                raise Refused(400, "BadRequest", f"strict decoding error: {error.message}")
        if "stringData" in body:
            raise Refused(400, "BadRequest", "stringData is not read by this server of the tests")
        if live is None:
            body = defaulted(resource, body)
        else:
            body["metadata"] |= {name: live["metadata"][name] for name in _SERVERS if name in live["metadata"]}
            for part in FIXED.get(resource, ()):
                if body["spec"].get(part) != live["spec"].get(part):
                    message = f'{self.kinds[resource]} "{name}" is invalid: spec.{part}: Forbidden: field is immutable'
                    raise Refused(422, "Invalid", message)
            if body == live:
                return web.json_response(live)
        if request.query.get("dryRun") == "All":
            return web.json_response(body, status=201 if live is None else 200)
        body["metadata"]["generation"] = body["metadata"].get("generation", 0) + 1
        made = self.put(resource, namespace, body)
        if resource == "jobs" and live is None:
            asyncio.get_running_loop().call_soon(self._end_job, namespace, name)
        return web.json_response(made, status=201 if live is None else 200)

    def _end_job(self, namespace: str, name: str) -> None:
        job = copy.deepcopy(self.objects["jobs", namespace, name])
        kind, count = ("Failed", "failed") if self.job_fails else ("Complete", "succeeded")
        condition = {"type": kind, "status": "True", "lastTransitionTime": now(), "message": "", "reason": ""}
        job["status"] = {count: 1, "conditions": [condition], "startTime": now()}
        self._store("jobs", namespace, job, "MODIFIED")


def _leave_out(made: Document, before: Mapping[str, Any], now_given: Mapping[str, Any]) -> None:
    """Removes what the manager gave before and gives no more."""
    for key, value in before.items():
        if key not in now_given:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(now_given[key], dict) and isinstance(made.get(key), dict):
            _leave_out(made[key], value, now_given[key])


def _put_in(made: Document, given: Mapping[str, Any]) -> None:
    """Lists are replaced as a whole: nobody but Helm writes into those of a chart."""
    for key, value in given.items():
        if isinstance(value, dict) and isinstance(made.get(key), dict):
            _put_in(made[key], value)
        else:
            made[key] = copy.deepcopy(value)
