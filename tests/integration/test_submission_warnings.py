"""What the answer of a submission tells besides its id: rungs, and what may not be what was meant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_world import CONFIG, World, gateway_world


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


async def test_the_example_of_the_openapi_document_can_be_submitted(world: World) -> None:
    document = (await world.http.get("/api/v1/openapi.json")).json()
    upload = document["paths"]["/api/v1/experiments"]["post"]["requestBody"]["content"]["multipart/form-data"]
    response = await world.submit(upload["schema"]["properties"]["config"]["example"])
    assert (response.status_code, response.json()["id"], "warnings" in response.json()) == (201, 1, False), response.text


async def test_a_search_says_at_which_lengths_it_compares(world: World) -> None:
    searcher = "searcher: {name: asha, metric: accuracy, max_trials: 16, max_length: {batches: 640}}"
    config = f"entrypoint: model_def:Trial\n{searcher}\n"
    answer = (await world.submit(config)).json()
    assert (answer["rungs"], answer.get("warnings")) == ("40, 160, 640 batches; at most 16 trials", None)
    seen = await world.get("/experiments/1")
    assert (seen["rungs"], seen["config"]["searcher"]["min_rung_length"]) == (answer["rungs"], 32)
    small = config.replace("max_trials: 16", "max_trials: 16, max_rungs: 5")
    [warning] = (await world.submit(small)).json()["warnings"]
    assert "first after 2 of 640 batches" in warning
    shown = (await world.http.post("/api/v1/preview", json={"config": small})).json()
    assert (shown["rungs"], shown["warnings"]) == ("2, 10, 40, 160, 640 batches; at most 16 trials", [warning])
    assert (await world.http.patch("/api/v1/experiments/1", json={"max_trials": 20})).status_code == 200
    assert (await world.get("/experiments/1"))["rungs"] == "40, 160, 640 batches; at most 20 trials"
    assert "rungs" not in (await world.submit()).json()


async def test_values_that_other_readers_of_yaml_take_for_something_else_are_told(world: World) -> None:
    text = CONFIG + "hyperparameters: {shuffle: off, size: 010}\n"
    first, second = (await world.submit(text)).json()["warnings"]
    assert first.startswith("line 5: off is text here (YAML 1.2); YAML 1.1 takes it for true or false.")
    assert second.startswith("line 5: 010 is the number 10 here")
    shown = (await world.http.post("/api/v1/preview", json={"config": text})).json()
    assert shown["warnings"] == [first, second]
    part = {"config": "hyperparameters: {shuffle: off}\n"}
    for path in ("/api/v1/templates/mine", "/api/v1/workspaces/default/defaults"):
        answer = (await world.http.put(path, json=part)).json()
        assert [line.partition(":")[0] for line in answer["warnings"]] == ["line 1"], answer
        assert "warnings" not in (await world.http.get(path)).json()
    assert (await world.submit(CONFIG.replace("digits", "other"))).json().get("warnings") is None
