"""Examples of the OpenAPI document are valid, and there is one for every body and every answer."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import pytest
from pydantic import TypeAdapter

from tenuto.schemas.base import Model
from tenuto.schemas.config.reading import parse_config
from tenuto.services.gateway.experiments.examples import CONFIG
from tenuto.services.gateway.http.examples import answers
from tenuto.services.gateway.rest import PREFIX, openapi_document
from tenuto.services.gateway.subjects import SUBJECTS

DOCUMENT = openapi_document()
BODIES = {route: example for subject in SUBJECTS for route, example in subject.example_bodies.items()}
VIEWS = {kind: example for subject in SUBJECTS for kind, example in subject.example_views.items()}
ANSWERS = answers(SUBJECTS)
LINES_MAX = 60
"""Of an example as it is shown."""
ROUTES = [route for subject in SUBJECTS for router in subject.routers for route in router.routes]


def operation(route: str) -> dict[str, Any]:
    method, path = route.split(" ")
    found: dict[str, Any] = DOCUMENT["paths"][PREFIX + path][method.lower()]
    return found


def check(content: dict[str, Any]) -> None:
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(schema).validate(content["example"])


@pytest.mark.parametrize("route", BODIES)
def test_a_body_is_valid(route: str) -> None:
    check(operation(route)["requestBody"]["content"]["application/json"])
    method, path = route.split(" ")
    [found] = [one for one in ROUTES if one.path == path and method in one.methods]
    [body] = found.dependant.body_params
    TypeAdapter(body.field_info.annotation).validate_json(json.dumps(BODIES[route]))  # more than a schema can say


@pytest.mark.parametrize("route", ANSWERS)
def test_an_answer_is_valid(route: str) -> None:
    [answer] = [found for status, found in operation(route)["responses"].items() if status.startswith("2")]
    check(answer["content"]["application/json"])
    assert len(json.dumps(answer["content"]["application/json"]["example"], indent=1).splitlines()) <= LINES_MAX


@pytest.mark.parametrize("kind", VIEWS)
def test_an_answer_has_only_what_the_gateway_sends(kind: type[Model]) -> None:
    example = kind.model_validate_json(json.dumps(VIEWS[kind]))
    assert example.model_dump(mode="json", exclude_unset=True) == VIEWS[kind]


def test_every_class_is_that_of_an_answer() -> None:
    kinds = {part for route in ROUTES for part in (route.response_model, *get_args(route.response_model))}
    assert VIEWS.keys() <= kinds


def test_every_body_has_an_example() -> None:
    with_body = {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, found in DOCUMENT["paths"].items()
        for method, one in found.items()
        if "application/json" in one.get("requestBody", {}).get("content", {})
    }
    assert with_body == BODIES.keys()


def test_every_answer_has_an_example() -> None:
    with_answer = {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, found in DOCUMENT["paths"].items()
        for method, one in found.items()
        for status, answer in one["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }
    assert with_answer == ANSWERS.keys()


def test_the_experiment_is_one() -> None:
    upload = operation("POST /experiments")["requestBody"]["content"]["multipart/form-data"]
    assert upload["schema"]["properties"]["config"]["example"] == CONFIG
    assert parse_config(CONFIG).searcher.name == "asha"
