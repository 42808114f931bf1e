"""No route makes a value of another kind of what a body says."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from tenuto.schemas.events.request import SlotsNamed
from tenuto.services.gateway.experiments.bodies import ChangeBody
from tenuto.services.gateway.http import errors
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.strict_json import StrictRoute
from tenuto.services.gateway.mlflow import bodies
from tenuto.services.gateway.subjects import SUBJECTS


def test_every_route_with_a_body_is_strict() -> None:
    routes = [
        route for subject in SUBJECTS for router in subject.routers for route in router.routes if isinstance(route, APIRoute)
    ]
    with_body = [route for route in routes if route.dependant.body_params]
    assert len(with_body) > 40
    assert [route.path for route in with_body if not isinstance(route, StrictRoute)] == []


@pytest.fixture(scope="module")
def client() -> TestClient:
    router = APIRouter(route_class=StrictRoute)

    @router.post("/slots")
    async def slots(body: SlotsNamed) -> Any:
        return {"slot_id": body.slot_id}

    @router.post("/change")
    async def change(body: ChangeBody | None = None) -> Any:
        return {"weight": body and body.weight}

    app = FastAPI()
    errors.install(app)
    app.include_router(router)
    return TestClient(app)


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/slots", {"slot_id": False}, "slot_id"),
        ("/slots", {"slot_id": "0"}, "slot_id"),
        ("/slots", {"slot_id": 0.0}, "slot_id"),
        ("/change", {"priority": True}, "priority"),
        ("/change", {"weight": "2"}, "weight"),
        ("/change", {"pool": 3}, "pool"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(client: TestClient, path: str, body: Any, where: str) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["path"]) == (400, where)


def test_what_json_means_is_taken(client: TestClient) -> None:
    assert client.post("/slots", json={"slot_id": 0}).json() == {"slot_id": 0}
    assert client.post("/slots", json={"slot_id": None}).json() == {"slot_id": None}
    assert client.post("/change", json={"weight": 2}).json() == {"weight": 2.0}, "JSON has one kind of number"
    assert client.post("/change").json() == {"weight": None}


def test_a_truth_is_no_number_for_mlflow_either() -> None:
    point = b'{"run_id": "1-1", "key": "a", "timestamp": 1, "value": %s}'
    with pytest.raises(DoorError, match="value"):
        bodies.made(bodies.LogMetric, point % b"true")
    assert bodies.made(bodies.LogMetric, point % b'"NaN"').key == "a", "so protobuf writes it"
    assert bodies.made(bodies.LogMetric, point % b'"1.5"').value == 1.5
