"""The gateway is made of subjects: those that no other needs can be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.services.gateway.http.context import Door
from tenuto.services.gateway.http.errors import DoorError
from tests.support.gateway_world import gateway_world


async def test_the_gateway_works_without_mlflow_and_automations(database: Any, tmp_path: Path) -> None:
    async with gateway_world(database, tmp_path, without=frozenset({"mlflow", "automations"})) as world:
        assert (await world.submit()).status_code == 201
        assert (await world.get("/status"))["automations"] == []
        document = (await world.http.get("/api/v1/openapi.json")).json()
        assert "/api/v1/experiments" in document["paths"]
        assert not [path for path in document["paths"] if "automation" in path]
        for gone in ("/api/v1/automations", "/mlflow/api/2.0/mlflow/experiments/get?experiment_id=1"):
            answer = await world.http.get(gone)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        made = await world.http.post("/api/v1/users", json={"name": "ada"})
        assert made.status_code == 201, "a user's automations are forgotten where there are any"


async def test_the_whole_gateway_has_both(database: Any, tmp_path: Path) -> None:
    async with gateway_world(database, tmp_path) as world:
        assert await world.get("/automations") == []
        experiment = (await world.submit()).json()["id"]
        answer = await world.http.get(f"/mlflow/api/2.0/mlflow/experiments/get?experiment_id={experiment}")
        assert answer.json()["experiment"]["name"].startswith("digits")


async def test_what_others_need_is_not_left_out(database: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="other subjects of the gateway need people"):
        async with gateway_world(database, tmp_path, without=frozenset({"people", "mlflow"})):
            pass


async def test_whose_a_webhook_is_is_looked_up_after_the_log_was_read(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, every webhook and automation is unknown: 404 would be wrong."""

    async def not_yet(door: Door) -> None:
        raise DoorError("unavailable", "The gateway has not read the log yet; try again in a moment.")

    async with gateway_world(database, tmp_path) as world:
        monkeypatch.setattr(Door, "users_known", not_yet)
        for path in ("webhooks/done/test", "automations/mine/redeliver"):
            assert (await world.http.post(f"/api/v1/{path}")).status_code == 503, path
