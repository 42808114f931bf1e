"""The OpenAPI document in docs/reference is what the REST door serves."""

from __future__ import annotations

import json
from pathlib import Path

from tenuto.services.gateway.rest.door import openapi_document

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
