"""Lists: what is searched for is found, in its order, page by page, with the total; hostile cursors mean nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.client import AsyncClient, Target
from tenuto.schemas.events import EventData
from tenuto.schemas.events.search import ExperimentCanceled, TrialRequested
from tenuto.schemas.events.trial import ValidationReported
from tenuto.services.gateway.experiments.views import ExperimentView
from tenuto.services.gateway.trials.queries import log_lines
from tests.support.gateway_world import CONFIG, WHY, World, gateway_world, granted, requested, saved, validated
from tests.support.metric_points import store
from tests.support.waiting import until_async


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path, secret_key_file=str(tmp_path / "secret.key")) as made:
        yield made


async def pages(world: World, path: str) -> list[list[Any]]:
    """All pages of a list, as `Link` leads from one to the next."""
    found, base = [], path.partition("?")[0]
    while True:
        answer = await world.http.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        found.append(answer.json())
        link = answer.headers.get("Link")
        assert (link is not None) == (answer.headers.get("Tenuto-More") == "true")
        if link is None:
            return found
        [query] = re.findall(r'^<\?([^>]*)>; rel="next"$', link)
        path = f"{base}?{query}"


async def ids(world: World, query: str) -> list[int]:
    return [item["id"] for page in await pages(world, f"/experiments?{query}") for item in page]


def trial(experiment: int, number: int, **hyperparameters: Any) -> TrialRequested:
    return TrialRequested(
        experiment_id=experiment, trial_id=f"{experiment}-{number}", trial_number=number, hyperparameters=hyperparameters, seed=1,
        target_length=1, reason=WHY,
    )  # fmt: skip


def result(experiment: int, accuracy: float) -> ValidationReported:
    return ValidationReported(
        trial_id=f"{experiment}-1", allocation_id=f"{experiment}-1-1", batches=1, length=1, metrics={"accuracy": accuracy}
    )


NAMES = ("Beta", "alpha", "gamma", "Alpha", "delta")
ACCURACIES = (0.5, 0.9, None, 0.7, 0.5)


async def filled(world: World) -> None:
    """Experiments 1 to 5; 3 has no metric, 2 and 4 have ended."""
    for number, name in enumerate(NAMES, 1):
        await world.submit(CONFIG.replace("digits", name) + f"labels: [l{number % 2}]\n")
    events: list[EventData] = [
        trial(1, 1, lr=0.1, optimizer="adam"), trial(1, 2, lr=0.01, optimizer="sgd"), trial(2, 1, lr=0.01, optimizer="adam"),
        trial(3, 1, net={"layers": 3, "sizes": [1, 2]}, amp=True), trial(4, 1, lr=1),
        trial(5, 1, note="x" * 5_000, **{"n" * 900: 1}),
    ]  # fmt: skip
    events += [result(number, value) for number, value in enumerate(ACCURACIES, 1) if value is not None]
    await world.record(*events, ExperimentCanceled(experiment_id=4, trials=1), ExperimentCanceled(experiment_id=2, trials=1))


async def test_experiments_are_found_by_what_they_are(world: World) -> None:
    await filled(world)

    async def by(condition: str) -> list[int]:
        return await ids(world, f"hyperparameter={quote(condition)}")

    assert await by("lr=0.01") == [2, 1]
    assert await by("lr>0.01") == [4, 1]
    assert await by("lr>=0.01,lr<0.1,optimizer=adam") == [2], "all of one trial: 1 has an other one with each"
    assert await by("net.layers=3,amp=true") == [3]
    assert await by("net.sizes=[1") == []
    assert await by(f"note={'x' * 600}") == [5], "the beginning of a long text"
    assert await by("' OR 1=1 --") == []
    assert await ids(world, "metric_above=0.5") == [4, 2]
    assert await ids(world, "metric_below=0.7&label=l1") == [5, 1]
    assert await ids(world, "state=canceled&user=admin") == [4, 2]
    assert await ids(world, "user=ada") == []
    assert await ids(world, "name=ALPHA&sort=name&order=asc") == [2, 4]
    assert await ids(world, "text=ALPHA") == [4, 2]
    assert await ids(world, f"text={quote('l1 admin a')}") == [5, 3, 1], "each word is somewhere in it"
    assert await ids(world, f"text={quote('3 gamma')}") == [3], "its number, too"
    assert await ids(world, f"text={quote('alpha beta')}") == []
    assert await ids(world, f"text={quote(chr(37))}") == [], "no pattern"
    assert await ids(world, "method=single") == [5, 4, 3, 2, 1]
    assert await ids(world, "method=asha") == []
    third = (await world.get("/experiments/3"))["submitted_us"]
    assert await ids(world, f"submitted_after_us={third}") == [5, 4, 3]
    assert await ids(world, f"submitted_before_us={third}") == [2, 1]
    error = await world.error("GET", f"/experiments?hyperparameter={quote('lr>fast')}")
    assert error == (400, "invalid", "hyperparameter compares lr with 'fast', which is no number; only = takes other values.")
    assert (await world.http.post("/api/v1/views/rebuild")).status_code == 202
    await until_async(lambda: by("lr=0.01"), lambda found: found == [2, 1])  # folded anew, by a task that tells nobody


@pytest.mark.parametrize(
    ("sort", "smallest_first"),
    [
        ("id", [1, 2, 3, 4, 5]),
        ("name", [2, 4, 1, 5, 3]),
        ("user", [1, 2, 3, 4, 5]),
        ("state", [1, 3, 5, 2, 4]),
        ("ended", [4, 2, 1, 3, 5]),
        ("metric", [1, 5, 4, 2, 3]),
    ],
)
async def test_each_order_comes_in_pages_of_any_size(world: World, sort: str, smallest_first: list[int]) -> None:
    await filled(world)
    largest_first = [2, 4, 5, 1, 3] if sort == "metric" else smallest_first[::-1]  # what has no metric comes last in any case
    for limit in (1, 2, 5):
        for order, expected in (("asc", smallest_first), ("desc", largest_first)):
            assert await ids(world, f"sort={sort}&order={order}&limit={limit}") == expected
    answer = await world.http.get("/api/v1/experiments?total=true&limit=1&state=active")
    assert answer.headers["Tenuto-Total"] == "3"


async def test_a_list_shows_what_the_experiment_itself_says(world: World) -> None:
    await filled(world)
    await world.record(result(3, float("nan")), result(1, float("inf")))
    await world.http.patch("/api/v1/experiments/2/description", json={"name": 'Gänsefüßchen " \\ \t ü 🌙'})
    listed = await world.get("/experiments")
    assert [item["id"] for item in listed] == [5, 4, 3, 2, 1]
    for item in listed:
        whole = await world.get(f"/experiments/{item['id']}")
        assert item == {name: whole[name] for name in item}
        assert list(item) == list(ExperimentView.model_fields)
        ExperimentView.model_validate_json(json.dumps(item))
    assert [item["trials"] for item in listed] == [{"queued": n} for n in (1, 1, 1, 1, 2)]


async def test_users_and_deliveries_come_in_pages(world: World) -> None:
    for name in ("eve", "bob", "ada"):
        assert (await world.http.post("/api/v1/users", json={"name": name})).status_code == 201
    for limit in (1, 2, 3, 4):
        found = await pages(world, f"/users?limit={limit}")
        assert [item["name"] for page in found for item in page] == ["admin", "ada", "bob", "eve"], limit
    trigger = {"on": "event", "types": ["ExperimentSubmitted"]}
    target = {"kind": "http", "url": "https://hooks.example/x"}
    made = await world.http.post("/api/v1/webhooks", json={"name": "w", "target": target, "triggers": [trigger]})
    assert made.status_code == 201, made.text
    await filled(world)
    whole = await world.get("/webhooks/w/deliveries")
    assert [item["number"] for item in whole] == [5, 4, 3, 2, 1]
    for limit in (1, 2, 5):
        found = await pages(world, f"/webhooks/w/deliveries?limit={limit}")
        assert [item["number"] for page in found for item in page] == [5, 4, 3, 2, 1], limit
    assert (await world.error("GET", "/webhooks/w/deliveries?cursor=WyJ4Il0"))[:2] == (400, "invalid")


async def test_cursors_that_are_none_are_refused_in_words(world: World) -> None:
    await filled(world)
    link = (await world.http.get("/api/v1/experiments?sort=metric&limit=1")).headers["Link"]
    [of_metric] = re.findall("cursor=([^&>]*)", link)
    says = "cursor is not one of this list with this sort; take it from the `Link` header of its page before."
    given = ["", "x", "WzEsMl0", "bnVsbA", "W1tbW1tb" * 200, "WyJpZCIsImRlc2MiLCJ4IiwxXQ", of_metric + "A", of_metric]
    for cursor in given:
        assert await world.error("GET", f"/experiments?cursor={cursor}&limit=1") == (400, "invalid", says), cursor
    assert (await world.error("GET", f"/experiments?cursor={'A' * 3000}"))[:2] == (400, "invalid")


def kept(item: dict[str, Any]) -> dict[str, Any]:
    """Without what grows while one looks."""
    return {name: value for name, value in item.items() if name != "silent_seconds"}


async def test_every_list_that_can_grow_comes_in_pages(world: World) -> None:
    await world.submit()
    await world.record(*(requested(number) for number in (1, 2, 3)))
    for number in (1, 2, 3):
        await world.record(
            granted(f"1-{number}-1"),
            *(
                kind.model_copy(update={"trial_id": f"1-{number}", "allocation_id": f"1-{number}-1"})
                for batches in (1, 2)
                for kind in (
                    validated(batches, accuracy=0.5),
                    saved(batches).model_copy(update={"checkpoint_id": f"{number}-{batches}"}),
                )
            ),
        )
    for number in (1, 2, 3):
        await store(world.log.pool, number, {batches: {"accuracy": 0.5} for batches in (1, 2)})
    lists = {
        "/experiments/1/trials": 3, "/experiments/1/metrics": 6, "/experiments/1/validations": 6, "/experiments/1/checkpoints": 6,
        "/trials/1-2/metrics": 2, "/trials/1-2/validations": 2, "/checkpoints": 6, "/allocations": 3, "/events": None,
    }  # fmt: skip
    for path, count in lists.items():
        whole = await world.get(path)
        for limit in (1, 2):
            found = await pages(world, f"{path}?limit={limit}")
            assert [kept(item) for page in found for item in page] == list(map(kept, whole)), path
            assert all(len(page) <= limit for page in found)
        assert count in (None, len(whole)), path
    for path in ("/checkpoints", "/allocations"):
        assert (await world.error("GET", f"{path}?cursor=WzFd"))[:2] == (400, "invalid")


async def test_the_command_line_and_the_client_search(world: World, database: Any) -> None:
    await filled(world)
    token = world.http.headers["Authorization"].removeprefix("Bearer ")
    environment = {"TENUTO_URL": str(world.http.base_url), "TENUTO_TOKEN": token}

    async def tenuto(*words: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*words], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    async def listed(*words: str) -> list[int]:
        return [item["id"] for item in json.loads(await tenuto("exp", "ls", "--json", *words))]

    assert await listed("--hp", "lr<0.1,optimizer=adam") == [2]
    assert await listed("--sort", "metric", "--ascending", "--limit", "3") == [1, 5, 4]
    assert await listed("--metric-above", "0.5", "--state", "canceled", "--user", "admin", "--limit", "1") == [4]
    assert "No experiment fits." in await tenuto("exp", "ls", "--user", "ada")
    connection = await asyncpg.connect(database.url)
    await connection.execute(
        """INSERT INTO trial_logs (experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text, report_id,
               report_index) SELECT 1, 1, '1-1-1', 'node', n % 2, 'stdout', 0, CASE WHEN n % 7 = 0 THEN 'ERROR ' ELSE '' END || n,
               gen_random_uuid(), 0 FROM generate_series(1, 70) n"""
    )
    await connection.close()
    assert (await tenuto("exp", "logs", "1", "--text", "error", "--rank", "0")).count("ERROR") == 5
    assert len((await tenuto("trial", "logs", "1-1", "--level", "warning")).splitlines()) == 10
    async with AsyncClient(Target(environment["TENUTO_URL"], token, "the test")) as client:
        found = await client.list_experiments(hyperparameter="lr=0.01", sort="id", order="asc", limit=1)
        assert [item.id for item in found] == [1]
        assert [item.id for item in await client.list_experiments()] == [5, 4, 3, 2, 1]


async def test_a_log_is_searched_in_bounded_steps(world: World, database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.submit()
    await world.record(trial(1, 1, lr=1), trial(1, 2, lr=2))
    connection = await asyncpg.connect(database.url)
    lines = [
        "INFO begin",
        "12:00 WARNING Loss is high",
        "ERROR in step 3",
        "the error is none",
        "[CRITICAL] out of memory",
        "100% DONE",
    ]
    for index, text in enumerate(lines):
        await connection.execute(
            """INSERT INTO trial_logs (experiment_id, trial_number, allocation_id, agent_id, rank, stream, time_us, text,
                   report_id, report_index) VALUES (1, $1, '1-1-1', 'node', $2, 'stdout', 0, $3, gen_random_uuid(), 0)""",
            1 + index % 2,
            index % 3,
            text,
        )
    await connection.close()

    async def found(query: str, of: str = "experiments/1") -> list[list[str]]:
        return [[line["text"] for line in page] for page in await pages(world, f"/{of}/logs?{query}")]

    assert await found("text=ERROR") == [[lines[2], lines[3]]]
    assert await found("level=error") == [[lines[2], lines[4]]]
    assert await found("level=warning&rank=1") == [[lines[1], lines[4]]]
    assert await found("text=0%25") == [[lines[5]]]
    assert await found("text=error", of="trials/1-1") == [[lines[2]]]
    tail = await world.get("/experiments/1/logs?rank=0&tail=true&limit=1")
    assert [line["text"] for line in tail] == [lines[3]]
    monkeypatch.setattr(log_lines, "LINES_SEARCHED_MAX", 2)
    assert await found("text=error") == [[], [lines[2], lines[3]], [], []]
    assert await found("text=o&limit=1") == [*([line] for line in lines), []]
    assert (await world.error("GET", "/experiments/1/logs?level=loud"))[:2] == (400, "invalid")
    assert (await world.error("GET", "/experiments/9/logs?text=x"))[:2] == (404, "not_found")
