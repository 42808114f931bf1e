"""Rules of the tests' Kubernetes API server: validity by the published schemas, defaults, admission and selectors."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema

Document = dict[str, Any]
SCHEMAS = "kubernetes-json-schema/v1.37.0-local"
"""Of kubernetes-validate: made from Kubernetes' own OpenAPI document."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Invalid(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def validate(kind: str, body: Document) -> None:
    """Raises Invalid: 400 where a value has another type, 422 where it cannot be."""
    name = (body.get("metadata") or {}).get("name", "")
    if body.get("kind", kind) != kind:
        raise Invalid(400, f"{body['kind']} in version v1 cannot be handled as a {kind}")
    body = {"apiVersion": "v1", "kind": kind, **body}
    for error in sorted(problems(body), key=lambda item: item.validator != "type"):
        where = ".".join(str(part) for part in error.absolute_path)
        if error.validator == "required":
            raise Invalid(422, f'{kind} "{name}" is invalid: {where}: Required value: {error.message}')
        raise Invalid(400, f"{kind} in version v1 cannot be handled as a {kind}: {where}: {error.message}")
    if not name:
        raise Invalid(422, f'{kind} "" is invalid: metadata.name: Required value: name or generateName is required')
    if not _NAME.fullmatch(name):
        raise Invalid(422, f'{kind} "{name}" is invalid: metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain')
    for key, value in (body["metadata"].get("labels") or {}).items():
        if not re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value):
            raise Invalid(422, f'{kind} "{name}" is invalid: metadata.labels: Invalid value: "{value}" of {key}')
    if kind == "Pod":
        _validate_pod(name, body["spec"])


def problems(body: Document, *, strict: bool = False) -> list[jsonschema.ValidationError]:
    """By the published schema of the document's kind. `strict`: unknown fields, which a server drops, are problems, too."""
    return list(_validator(str(body["apiVersion"]), str(body["kind"]), strict).iter_errors(body))


@functools.cache
def _validator(api_version: str, kind: str, strict: bool) -> jsonschema.Draft202012Validator:
    group, _, version = api_version.rpartition("/")
    definitions = _definitions(strict)
    wanted = {"group": group, "kind": kind, "version": version}
    [name] = [key for key, item in definitions["$defs"].items() if wanted in item.get("x-kubernetes-group-version-kind", ())]
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions["$defs"]})


@functools.cache
def _definitions(strict: bool) -> Document:
    package = find_spec("kubernetes_validate")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / (SCHEMAS + ("-strict" if strict else ""))
    found: Document = json.loads((folder / "_definitions.json").read_text())
    return found


def _validate_pod(name: str, spec: Document) -> None:
    if not spec.get("containers"):
        raise Invalid(422, f'Pod "{name}" is invalid: spec.containers: Required value')
    volumes = {item["name"] for item in spec.get("volumes") or ()}
    if len(volumes) != len(spec.get("volumes") or ()):
        raise Invalid(422, f'Pod "{name}" is invalid: spec.volumes: Duplicate value')
    for index, container in enumerate(spec["containers"]):
        place = f'Pod "{name}" is invalid: spec.containers[{index}]'
        if not container.get("image"):
            raise Invalid(422, f"{place}.image: Required value")
        if container.get("terminationMessagePolicy", "File") not in ("File", "FallbackToLogsOnError"):
            raise Invalid(422, f"{place}.terminationMessagePolicy: Unsupported value")
        for mount in container.get("volumeMounts") or ():
            if mount["name"] not in volumes:
                raise Invalid(422, f'{place}.volumeMounts[0].name: Not found: "{mount["name"]}"')
        given = container.get("resources") or {}
        for resource, amount in (given.get("requests") or {}).items():
            if quantity(amount) > quantity((given.get("limits") or {}).get(resource, amount)):
                raise Invalid(422, f"{place}.resources.requests: Invalid value: must be less than or equal to {resource} limit")
    if int(spec.get("terminationGracePeriodSeconds", 30)) < 0:
        raise Invalid(422, f'Pod "{name}" is invalid: spec.terminationGracePeriodSeconds: Invalid value')


def defaulted(resource: str, body: Document) -> Document:
    body = copy.deepcopy(body)
    if resource == "pods":
        body["spec"].setdefault("terminationGracePeriodSeconds", 30)
        body["spec"].setdefault("restartPolicy", "Always")
        body["spec"].setdefault("serviceAccountName", "default")
        body["status"] = {"phase": "Pending"}
    return body


def admitted(
    pod: Document, namespace: str, objects: Mapping[tuple[str, str, str], Document], counted: Sequence[Document] = ()
) -> str:
    """Reason why admission refuses the pod; empty if it does not. `counted`: pods that are not there and count for quotas."""
    account = pod["spec"]["serviceAccountName"]
    if account != "default" and ("serviceaccounts", namespace, account) not in objects:
        return f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
    priority = pod["spec"].get("priorityClassName")
    if priority and ("priorityclasses", "", priority) not in objects:
        return f"no PriorityClass with name {priority} was found"
    pods = [item for (resource, where, _), item in objects.items() if (resource, where) == ("pods", namespace)]
    pods += [item for item in counted if item["metadata"]["namespace"] == namespace]
    for (resource, where, name), quota in sorted(objects.items()):
        if (resource, where) != ("resourcequotas", namespace):
            continue
        hard = quota["spec"]["hard"]
        before, after = usage(hard, pods), usage(hard, [*pods, pod])
        over = [item for item in hard if quantity(after[item]) > quantity(hard[item]) and after[item] != before[item]]
        if over:
            rows = [",".join(f"{item}={amounts[item]}" for item in over) for amounts in (usage(hard, [pod]), before, hard)]
            return f"exceeded quota: {name}, requested: {rows[0]}, used: {rows[1]}, limited: {rows[2]}"
    return ""


def usage(hard: Mapping[str, str], pods: Sequence[Document]) -> dict[str, str]:
    """Pods that have ended do not count."""
    live = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    found = {}
    for name in hard:
        if name == "pods":
            found[name] = str(len(live))
            continue
        wanted = name.removeprefix("requests.")
        amounts = [
            item.get("resources", {}).get("requests", {}).get(wanted, "0") for pod in live for item in pod["spec"]["containers"]
        ]
        found[name] = f"{sum(quantity(amount) for amount in amounts):g}"
    return found


def quantity(text: Any) -> float:
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text))
    if match is None:
        raise Invalid(400, f"quantities must match the regular expression (found {text!r})")
    factors = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
    return float(match[1]) * factors[match[2]]


def labels_match(selector: str, labels: Mapping[str, str]) -> bool:
    """Equality, sets and existence, as a label selector writes them."""
    for item in re.split(r",(?![^()]*\))", selector):
        item = item.strip()
        if not item:
            continue
        if among := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", item):
            values = [value.strip() for value in among[3].split(",")]
            if (labels.get(among[1]) in values) != (among[2] == "in"):
                return False
        elif "!=" in item:
            key, value = item.split("!=", 1)
            if labels.get(key) == value:
                return False
        elif "=" in item:
            key, value = re.split("==?", item, maxsplit=1)
            if labels.get(key.strip()) != value.strip():
                return False
        elif item.startswith("!"):
            if item[1:] in labels:
                return False
        elif item not in labels:
            return False
    return True


def fields_match(selector: str, body: Document) -> bool:
    for item in filter(None, selector.split(",")):
        key, value = re.split("!=|==?", item, maxsplit=1)
        found: Any = body
        for part in key.split("."):
            found = (found or {}).get(part)
        if (str(found or "") == value) == ("!=" in item):
            return False
    return True
