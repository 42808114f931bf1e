"""Secrets at the REST door: whose they are, and what is said where they cannot be kept."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tenuto.kernel.secret_keys import KEY_BYTES
from tenuto.kernel.secrets import Secrets
from tenuto.schemas.events.search import ExperimentCanceled
from tenuto.schemas.events.trial import CheckpointDamaged
from tenuto.services.gateway.http.context import UNCERTAIN, Door
from tenuto.services.gateway.http.errors import DoorError
from tests.support.gateway_world import (
    CONTEXT,
    World,
    gateway_world,
    granted,
    released,
    requested,
    saved,
    validated,
)


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    async with gateway_world(database, tmp_path) as found:
        yield found


async def test_a_new_user_has_nothing_of_whoever_had_the_name_before(world: World) -> None:
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    old = {"Authorization": f"Bearer {made.json()['token']}"}
    async with world.log.pool.acquire() as connection:
        await connection.execute("INSERT INTO secrets VALUES ('olga', 'key', 'x', 1), ('ada', 'key', 'x', 1)")
    assert [item["name"] for item in (await world.http.get("/api/v1/secrets", headers=old)).json()] == ["key"]
    refused = await world.http.post("/api/v1/users", json={"name": "olga"})
    assert refused.status_code == 409
    assert len((await world.http.get("/api/v1/secrets", headers=old)).json()) == 1, "a refusal takes nothing away"

    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    new = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await world.http.get("/api/v1/secrets", headers=new)).json() == []
    async with world.log.pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM secrets") == 1, "those of others stay"

    # This gateway was given no file for the key.
    code, word, message = await world.error("PUT", "/secrets/key", json={"value": "correct horse"}, headers=new)
    assert (code, word) == (503, "unavailable")
    assert "the gateway's log tells its operator why" in message


async def test_a_new_user_has_nothing_of_the_earlier_one_where_the_answer_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is recorded, and who asked for it does not hear of it: a second attempt is refused, and a token made instead."""
    assert (await world.http.post("/api/v1/users", json={"name": "olga"})).status_code == 201
    async with world.log.pool.acquire() as connection:
        await connection.execute("INSERT INTO secrets VALUES ('olga', 'key', 'x', 1)")
    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    record = Door.carry_out

    async def lose(self: Door, command: Any) -> Any:
        await record(self, command)
        raise DoorError("unavailable", UNCERTAIN)

    with monkeypatch.context() as patch:
        patch.setattr(Door, "carry_out", lose)
        assert (await world.error("POST", "/users", json={"name": "olga"}))[0] == 503
    assert (await world.error("POST", "/users", json={"name": "olga"}))[0] == 409
    made = await world.http.post("/api/v1/users/olga/tokens", json={})
    new = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await world.http.get("/api/v1/secrets", headers=new)).json() == []


async def test_a_body_that_ends_after_its_user_is_gone_changes_nothing(world: World) -> None:
    """Else what an earlier user began to send becomes an experiment, or a secret, of whoever has the name by then."""
    token = (await world.http.post("/api/v1/users", json={"name": "olga"})).json()["token"]
    old = {"Authorization": f"Bearer {token}"}
    files: Any = {"config": (None, world.config), "context": ("context.tar.gz", CONTEXT)}
    built = world.http.build_request("POST", "/api/v1/experiments", files=files)
    for method, path, body, kind in (
        ("POST", "/api/v1/experiments", built.read(), built.headers["content-type"]),
        ("PUT", "/api/v1/secrets/key", b'{"value": "correct horse"}', "application/json"),
    ):
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(body: bytes = body, begun: asyncio.Event = begun, go_on: asyncio.Event = go_on) -> AsyncIterator[bytes]:
            yield body[:10]
            begun.set()
            await go_on.wait()
            yield body[10:]

        sending = asyncio.create_task(world.http.request(method, path, content=slow(), headers={**old, "Content-Type": kind}))
        await begun.wait()
        assert (await world.http.get("/api/v1/user", headers=old)).status_code == 200
        assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
        new_token = (await world.http.post("/api/v1/users", json={"name": "olga"})).json()["token"]
        go_on.set()
        answer = await sending
        assert answer.status_code == 401, answer.text
        assert await world.get("/experiments") == []
        old = {"Authorization": f"Bearer {new_token}"}
        assert (await world.http.get("/api/v1/secrets", headers=old)).json() == []


async def test_a_token_makes_none_that_outlives_it(world: World) -> None:
    made = await world.http.post("/api/v1/users", json={"name": "olga", "expires_days": 1})
    own = {"Authorization": f"Bearer {made.json()['token']}"}
    end_us = made.json()["expires_us"]
    path = "/api/v1/users/olga/tokens"
    code, word, message = await world.error("POST", "/users/olga/tokens", json={"expires_days": 2}, headers=own)
    assert (code, word) == (403, "forbidden")
    assert "ends in 1.00 days and makes none that ends later" in message
    assert (await world.http.post(path, json={}, headers=own)).json()["expires_us"] == end_us, "unless asked, as long as itself"
    assert (await world.http.post(path, json={"expires_days": 0.5}, headers=own)).json()["expires_us"] < end_us
    [first, *_] = (await world.http.get(path, headers=own)).json()
    rotated = await world.http.post(f"{path}/{first['id']}/rotate", headers=own)
    assert rotated.json()["expires_us"] == end_us
    assert (await world.http.post(path, json={"expires_days": 365})).json()["expires_us"] > end_us, "an admin may"


async def test_a_namesake_does_not_own_what_an_earlier_user_left(world: World) -> None:
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    old = {"Authorization": f"Bearer {made.json()['token']}"}
    assert (await world.submit(**old)).status_code == 201
    await world.record(requested(1), granted("1-1-1"), saved(9), released("1-1-1"), ExperimentCanceled(experiment_id=1, trials=1))
    assert (await world.http.post("/api/v1/checkpoints/1-1-1-9/verify", headers=old)).status_code != 403
    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    new = {"Authorization": f"Bearer {made.json()['token']}"}
    code, _, message = await world.error("POST", "/checkpoints/1-1-1-9/verify", headers=new)
    assert (code, message) == (403, "Experiment 1 is an earlier user olga's; only an admin may change it.")
    longer = {"overrides": {"searcher": {"max_length": {"batches": 200}}}}
    code, _, message = await world.error("POST", "/experiments/1/continue", json=longer, headers=new)
    assert code == 403
    assert "Experiment 1 is an earlier user olga's: going on from its checkpoints loads what its code pickled" in message
    trusting = await world.http.post("/api/v1/experiments/1/continue", json={**longer, "trust": True}, headers=new)
    assert trusting.status_code == 201
    killed = await world.http.post("/api/v1/experiments/2/kill", headers=new)
    assert killed.status_code == 200, "what she submits is her own"


async def test_a_trial_marks_no_checkpoint_of_another_user_as_damaged(world: World) -> None:
    """Its report is what its code says; the trial's own story keeps it."""
    for name in ("olga", "eve"):
        made = await world.http.post("/api/v1/users", json={"name": name})
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        assert (await world.submit(**headers)).status_code == 201
    await world.record(requested(1), granted("1-1-1"), validated(9, accuracy=0.75), saved(9))

    async def damaged(by: int) -> list[Any]:
        damage = {"checkpoint_id": "1-1-1-9", "reason": "forged", "resumed_from": None}
        await world.record(CheckpointDamaged(trial_id=f"{by}-1", allocation_id=f"{by}-1-1", **damage))
        found: list[Any] = await world.get("/checkpoints?damaged=true")
        return found

    assert await damaged(by=2) == []
    assert (await world.get("/experiments/1"))["best_checkpoint_id"] == "1-1-1-9"
    await world.record(*(ExperimentCanceled(experiment_id=number, trials=0) for number in (1, 2)))
    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    assert (await world.submit(Authorization=f"Bearer {made.json()['token']}")).status_code == 201
    assert await damaged(by=3) == [], "a namesake is another user"
    assert len(await damaged(by=1)) == 1


async def test_nobody_gets_the_name_of_a_removed_user_whose_experiments_run(world: World) -> None:
    """They would take what the new user sets under the names that they know, at their next start."""
    made = await world.http.post("/api/v1/users", json={"name": "olga"})
    old = {"Authorization": f"Bearer {made.json()['token']}"}
    for _ in range(2):
        assert (await world.submit(**old)).status_code == 201
    assert (await world.http.delete("/api/v1/users/olga")).status_code == 200
    code, word, message = await world.error("POST", "/users", json={"name": "olga"})
    assert (code, word) == (409, "conflict")
    assert "Of an earlier user olga experiments have not ended (1, 2)" in message
    assert (await world.http.post("/api/v1/users", json={"name": "ada"})).status_code == 201
    await world.record(*(ExperimentCanceled(experiment_id=number, trials=0) for number in (1, 2)))
    assert (await world.http.post("/api/v1/users", json={"name": "olga"})).status_code == 201


async def test_a_database_that_is_away_is_no_defect_of_the_door(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the door itself asks it, for whose an experiment is, before a handler is reached."""
    made = await world.http.post("/api/v1/users", json={"name": "ada"})
    ada = {"Authorization": f"Bearer {made.json()['token']}"}
    database_away = asyncpg.InternalClientError("got result for unknown protocol state 3")

    async def away(*_: object) -> None:
        raise database_away

    monkeypatch.setattr(world.service.doors.experiments.views, "place", away)
    monkeypatch.setattr(world.service.doors.experiments.views, "checkpoint", away)
    for method, path in (("POST", "/experiments/7/pause"), ("POST", "/checkpoints/some-checkpoint/verify")):
        code, word, message = await world.error(method, path, headers=ada)
        assert (code, word) == (503, "unavailable"), f"{method} {path}: {message}"


class Broken:
    """A pool whose process is killed at the second change."""

    def __init__(self, pool: Any) -> None:
        self.pool, self.left = pool, 1

    async def fetch(self, *arguments: Any) -> Any:
        return await self.pool.fetch(*arguments)

    async def execute(self, *arguments: Any) -> None:
        if not self.left:
            raise ConnectionError("killed")
        self.left -= 1
        await self.pool.execute(*arguments)


async def test_the_key_is_changed_also_after_a_change_that_was_killed(database: Any, tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    async with gateway_world(database, tmp_path, secret_key_file=str(file)) as world:
        names = [f"key{number}" for number in range(3)]
        for name in names:
            assert (await world.http.put(f"/api/v1/secrets/{name}", json={"value": f"value of {name}"})).status_code == 200
        references = [f"admin/{name}" for name in names]
        launcher = Secrets(world.log.pool, file)

        async def readable() -> None:
            for secrets in (launcher, Secrets(world.log.pool, file)):
                assert await secrets.values(references) == {f"admin/{name}": f"value of {name}" for name in names}

        await readable()
        first = file.read_bytes()
        with pytest.raises(ConnectionError):
            await Secrets(Broken(world.log.pool), file).change_key()
        assert (len(file.read_bytes()), file.read_bytes()[KEY_BYTES:]) == (2 * KEY_BYTES, first)
        await readable()

        made = await world.http.post("/api/v1/users", json={"name": "olga"})
        olga = {"Authorization": f"Bearer {made.json()['token']}"}
        assert (await world.http.post("/api/v1/secrets/rotate-key", headers=olga)).status_code == 403
        async with world.log.pool.acquire() as connection:
            await connection.execute("INSERT INTO secrets VALUES ('ada', 'lost', 'sealed with a key that is lost', 1)")
        done = await world.http.post("/api/v1/secrets/rotate-key")
        assert done.status_code == 200
        assert (done.json()["secrets"], done.json()["unreadable"]) == (3, 1)
        assert len(file.read_bytes()) == KEY_BYTES
        assert file.read_bytes() != first
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        await readable()
        (tmp_path / "old.key").write_bytes(first)
        (tmp_path / "old.key").chmod(0o600)
        assert await Secrets(world.log.pool, tmp_path / "old.key").values(references) == {}, "the old key opens nothing"
        [event] = [item for item in await world.get("/events") if item["type"] == "SecretKeyChanged"]
        assert event["position"] == done.json()["position"]
