"""The OpenAPI document in docs/reference is what the REST door serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from tenuto.services.gateway.mlflow import subject as mlflow_subject
from tenuto.services.gateway.rest import openapi_document, query_parameters
from tenuto.services.gateway.rights.permissions import Where
from tenuto.services.gateway.subjects import SUBJECTS, permissions_of

ROUTES = permissions_of(SUBJECTS).rules

GOLDEN = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_committed_document_is_what_the_routes_give() -> None:
    rendered = json.dumps(openapi_document(), indent=1, sort_keys=True) + "\n"
    assert GOLDEN.read_text() == rendered, "run `make docs` and commit the result"


def test_every_operation_names_its_error_body() -> None:
    document = openapi_document()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert {"400", "401", "503"} <= operation["responses"].keys(), f"{method} {path}"
            for status, answer in operation["responses"].items():
                if status >= "4":
                    assert answer["content"]["application/problem+json"]["schema"]["$ref"].endswith("/ErrorView")
            assert operation["tags"], f"{method} {path}"


def test_operations_have_names_for_people() -> None:
    operations = {
        f"{method.upper()} {path}": operation["operationId"]
        for path, found in openapi_document()["paths"].items()
        for method, operation in found.items()
    }
    assert len(set(operations.values())) == len(operations)
    assert operations["GET /api/v1/experiments"] == "get_experiments"
    assert operations["GET /api/v1/experiments/{experiment_id}"] == "get_experiment"
    assert operations["POST /api/v1/experiments/{experiment_id}/pause"] == "post_experiment_pause"
    assert [name for name in operations.values() if "api_v1" in name or not name.isidentifier()] == []


def test_routes_that_need_no_token_say_so() -> None:
    document = openapi_document()
    assert document["security"] == [{"token": []}]
    open_ = {
        f"{method.upper()} {path}"
        for path, found in document["paths"].items()
        for method, operation in found.items()
        if operation.get("security") == []
    }
    assert open_ == {route for route, rule in ROUTES.items() if rule.where is Where.OPEN} - {
        "GET /healthz", "GET /api/v1/openapi.json", "GET /api/v1/docs",
    }  # fmt: skip


def in_query(document: dict[str, Any]) -> dict[str, set[str]]:
    return {
        f"{method.upper()} {path}": {item["name"] for item in operation.get("parameters", ()) if item["in"] == "query"}
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def test_the_door_takes_the_query_parameters_that_documents_name() -> None:
    mlflow = FastAPI()
    for router in mlflow_subject.SUBJECT.foreign_routers:
        for route in router.routes:
            mlflow.add_api_route(route.path, route.endpoint, methods=sorted(route.methods or ()))  # type: ignore[attr-defined]
    documented = in_query(openapi_document()) | in_query(mlflow.openapi())
    assert documented == query_parameters()
    assert sum(len(names) for names in documented.values()) > 100
