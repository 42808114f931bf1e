"""Earlier moments of experiments: what `at` shows is what a gateway showed that had seen no more of the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.kernel.eventlog import Append
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.access import ProjectChanged
from tenuto.schemas.events.request import ExperimentSubmitted
from tenuto.schemas.events.trial import CheckpointDamaged
from tenuto.services import gateway
from tenuto.services.gateway.experiments.adapters import past_views
from tests.support import histories
from tests.support.gateway_world import CONFIG, World, gateway_world, granted, released, requested, saved, validated

SQL = Path(gateway.__file__).parent / "sql"
APPENDED_MAX = 500
NAMES = ("failures-2026-11", "searches-2026-11-further", "searches-2026-11-metrics", "sharing-2026-11")
"""Histories that are looked at: together they have all search methods, failures, and policies of pools."""
PARTS = ("", "/trials", "/validations", "/pareto", "/rungs", "/lineage")
MOMENTS = 3
"""Moments of a history that are looked at, beside its end."""
NOW_ONLY = ("silent_seconds", "wall_hours_max", "wall_seconds", "wall_since_us", "as_of_us")
"""Fields that only the present or only the past has: the former count up to now, or stand in the gateway's present state."""


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as made:
        yield made


def without_now(view: Any) -> Any:
    if isinstance(view, list):
        return [without_now(item) for item in view]
    return {name: value for name, value in view.items() if name not in NOW_ONLY}


async def reads(world: World, experiment: int, at: int | None = None) -> dict[str, Any]:
    """All reads that take `at`, with their statuses."""
    found = {}
    for part in PARTS:
        params = {} if at is None else {"at": at}
        response = await world.http.get(f"/api/v1/experiments/{experiment}{part}", params=params)
        assert response.status_code in (200, 409), (part, response.text)
        found[part] = response.status_code, without_now(response.json())
    return found


async def append(world: World, events: Sequence[Event]) -> None:
    for first in range(0, len(events), APPENDED_MAX):
        recorded = await world.log.append(Append(events=list(events[first : first + APPENDED_MAX])))
    position = recorded.events[-1].position
    await world.service.loop.wait_position(position)
    await world.service.doors.base.views_reached(position)


def spoken(world: World, *words: str) -> str:
    """Output of a command."""
    token = world.http.headers["Authorization"].removeprefix("Bearer ")
    done = CliRunner().invoke(app, words, env={"TENUTO_URL": str(world.http.base_url), "TENUTO_TOKEN": token})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", NAMES)
async def test_a_moment_of_a_recorded_history_shows_what_was_shown_then(world: World, name: str) -> None:
    events = histories.read(name)
    drawn = random.Random(name)
    started = [event.position for event in events if event.type == ExperimentSubmitted.TYPE]
    moments = sorted(drawn.sample(range(started[0], len(events)), MOMENTS))
    shown: dict[tuple[int, int], dict[str, Any]] = {}
    first = 0
    for moment in (*moments, len(events)):
        await append(world, events[first:moment])
        first = moment
        submitted = [event for event in events[:moment] if event.type == ExperimentSubmitted.TYPE]
        for chosen in drawn.sample(submitted, min(2, len(submitted))):
            experiment = int(chosen.correlation_id)
            shown[experiment, moment] = await reads(world, experiment)
    for (experiment, moment), then in drawn.sample(sorted(shown.items()), len(shown)):
        assert await reads(world, experiment, moment) == then, (experiment, moment)


async def test_changes_that_came_from_elsewhere_are_in_the_past_at_their_place(world: World) -> None:
    await world.submit(CONFIG + "project: digits\n")
    await world.submit()
    other = requested(1).model_copy(update={"experiment_id": 2, "trial_id": "2-1"})
    await world.record(requested(1), other, saved(10), validated(10, accuracy=0.5))
    damage = CheckpointDamaged(
        trial_id="2-1", allocation_id="2-1-1", checkpoint_id=saved(10).checkpoint_id, reason="cut off", resumed_from=None
    )
    shown = {await world.log.head(): await reads(world, 1)}
    for event in (ProjectChanged(workspace="default", project="digits", name="numbers"), damage):
        await world.record(event)
        shown[await world.log.head()] = await reads(world, 1)
    before, renamed, damaged = (view[""][1] for view in shown.values())
    assert (before["project"], renamed["project"]) == ("digits", "numbers")
    assert (renamed["best_checkpoint_id"], damaged["best_checkpoint_id"]) == (saved(10).checkpoint_id, None)
    for moment in (*reversed(shown), *shown):  # back, which folds anew, and on
        assert await reads(world, 1, moment) == shown[moment]
    noted = "SELECT experiment_id, position FROM foreign_events ORDER BY position"
    projected = await world.log.pool.fetch(noted)
    assert [row["experiment_id"] for row in projected] == [0, 1]
    await world.log.pool.execute("TRUNCATE foreign_events")
    _, _, migration = (SQL / "0190_foreign_events.sql").read_text().partition("INSERT INTO")
    await world.log.pool.execute(f"INSERT INTO {migration}")
    assert await world.log.pool.fetch(noted) == projected


async def test_the_moments_are_those_at_which_something_changed(world: World) -> None:
    submitted = (await world.submit()).json()["position"]
    await world.record(requested(1), granted("1-1-1"), validated(1, accuracy=0.5), released("1-1-1"))
    whole = await world.get("/experiments/1/moments")
    assert whole["positions"] == list(range(submitted, submitted + 5))
    assert len(whole["times_us"]) == 5
    page = await world.http.get("/api/v1/experiments/1/moments", params={"limit": 2, "after": submitted})
    assert page.json()["positions"] == [submitted + 1, submitted + 2]
    assert f"after={submitted + 2}" in page.headers["link"]
    assert (await world.get("/experiments/1/moments?of=decisions"))["positions"] == [submitted + 1]
    assert await world.error("GET", "/experiments/7/moments") == (
        404, "not_found", "There is no experiment 7; `tenuto exp ls` lists those that there are.",
    )  # fmt: skip


async def test_a_moment_that_cannot_be_shown_is_refused_with_its_reason(world: World) -> None:
    await world.submit()
    second = (await world.submit()).json()["position"]
    head = await world.log.head()
    for part in PARTS:
        await refused(world, part, head, second)


async def refused(world: World, part: str, head: int, second: int) -> None:
    assert await world.error("GET", f"/experiments/2{part}?at={second - 1}") == (
        404, "not_found", f"Experiment 2 was not submitted yet at position {second - 1}: it was at position {second}.",
    )  # fmt: skip
    assert await world.error("GET", f"/experiments/1{part}?at={head + 1}") == (
        404, "not_found", f"The log has no position {head + 1} yet: its last event has position {head}.",
    )  # fmt: skip
    assert (await world.error("GET", f"/experiments/9{part}?at={head}"))[2].startswith("There is no experiment 9;")


async def test_the_past_of_what_a_user_does_not_see_is_as_unknown_as_its_present(world: World) -> None:
    assert (await world.http.post("/api/v1/workspaces", json={"name": "vault", "private": True})).status_code == 201
    assert (await world.submit(CONFIG + "\nresources: {workspace: vault}")).status_code == 201
    head = await world.log.head()
    headers = {"Authorization": f"Bearer {(await world.http.post('/api/v1/users', json={'name': 'eve'})).json()['token']}"}
    paths = [*(f"{part}?at={head}" for part in PARTS), "/moments"]
    for path in paths:
        hidden, unknown = [await world.error("GET", f"/experiments/{number}{path}", headers=headers) for number in (1, 99)]
        assert hidden == (404, "not_found", unknown[2].replace("99", "1")), path
    role = {"kind": "user", "name": "eve", "role": "viewer"}
    assert (await world.http.post("/api/v1/workspaces/vault/grants", json=role)).status_code == 200
    seen = [(await world.http.get(f"/api/v1/experiments/1{path}", headers=headers)).status_code for path in paths]
    assert set(seen) <= {200, 409}, seen  # a search of one metric has no front


async def test_no_more_events_are_folded_than_the_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.submit()
    await world.record(requested(1), *(validated(batches, accuracy=0.5) for batches in range(1, 5)))
    head = await world.log.head()
    monkeypatch.setattr(past_views, "EVENTS_MAX", 4)
    status, code, message = await world.error("GET", f"/experiments/1?at={head}")
    assert (status, code) == (413, "too_large")
    assert f"more than 4 events up to position {head}" in message
    for at in (head - 2, head):  # what is kept counts for the next one
        assert (await world.get(f"/experiments/1/validations?at={at}"))[-1]["batches"] == at - head + 4


async def test_more_waiting_requests_than_the_limit_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.submit()
    head = await world.log.head()
    monkeypatch.setattr(past_views, "WAITING_MAX", 0)
    status, code, message = await world.error("GET", f"/experiments/1?at={head}")
    assert (status, code) == (429, "too_many")
    assert message == "Too many look at earlier moments of experiments; try again in a few seconds."


async def test_a_lost_connection_costs_only_the_answer_that_it_was_for(world: World) -> None:
    await world.submit()
    await world.record(requested(1))
    head = await world.log.head()
    known = await world.get(f"/experiments/1/trials?at={head}")
    [kept] = [item for item in world.service.doors.experiments.past._kept if item.experiment_id == 1]
    assert kept._connection is not None
    await world.log.pool.execute("SELECT pg_terminate_backend($1)", kept._connection.get_server_pid())
    answers = [await world.http.get(f"/api/v1/experiments/1/trials?at={head}") for _ in range(2)]
    assert answers[0].status_code in (200, 503)
    assert answers[1].json() == known


async def test_commands_show_an_earlier_moment(world: World) -> None:
    await world.submit()
    await world.record(requested(1), saved(10), validated(10, accuracy=0.5))
    at = str(await world.log.head())
    await world.record(validated(20, accuracy=0.75), requested(2))
    then = await asyncio.to_thread(spoken, world, "exp", "describe", "1", "--at", at)
    assert "accuracy 0.5" in then
    assert "as of" in then
    assert saved(10).checkpoint_id in then
    assert "1-2 " not in then
    assert "accuracy 0.75" in await asyncio.to_thread(spoken, world, "exp", "describe", "1")
    assert "copy" in await asyncio.to_thread(spoken, world, "exp", "lineage", "1", "--at", at)


async def test_moments_of_several_experiments_asked_for_at_once_do_not_mix(world: World) -> None:
    shown: dict[tuple[int, int], Any] = {}
    for _ in range(past_views.KEPT_MAX + 2):
        await world.submit()
    for number in range(1, 4):
        for experiment in range(1, past_views.KEPT_MAX + 3):
            name = f"{experiment}-{number}"
            await world.record(requested(number).model_copy(update={"experiment_id": experiment, "trial_id": name}))
            shown[experiment, await world.log.head()] = [f"{experiment}-{one}" for one in range(1, number + 1)]
    asked = random.Random(1).sample(sorted(shown), len(shown))
    found = await asyncio.gather(*(world.get(f"/experiments/{one}/trials?at={at}") for one, at in asked))
    assert [[trial["id"] for trial in trials] for trials in found] == [shown[key] for key in asked]
