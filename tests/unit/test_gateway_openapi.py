"""The OpenAPI document in docs/reference is what the REST door serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from tenuto.services.gateway.rest.door import MLFLOW_MODULES, openapi_document, query_parameters

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


def in_query(document: dict[str, Any]) -> dict[str, set[str]]:
    return {
        f"{method.upper()} {path}": {item["name"] for item in operation.get("parameters", ()) if item["in"] == "query"}
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def test_the_door_takes_the_query_parameters_that_documents_name() -> None:
    mlflow = FastAPI()
    for module in MLFLOW_MODULES:
        for route in module.router.routes:
            mlflow.add_api_route(route.path, route.endpoint, methods=sorted(route.methods or ()))  # type: ignore[attr-defined]
    documented = in_query(openapi_document()) | in_query(mlflow.openapi())
    assert documented == query_parameters()
    assert sum(len(names) for names in documented.values()) > 100
