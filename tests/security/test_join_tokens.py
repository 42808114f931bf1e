"""Join tokens and agents' credentials in the wrong hands: over the real REST door, on a real bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats as nats_module
import nats.errors
import pytest
from nats.aio.client import Client

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.bus_permissions import agent_user
from tenuto.kernel.bus_users import BadAgentName, BusUsers
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas import subjects
from tenuto.schemas.join_tokens import JoinToken
from tenuto.schemas.joining import hash_of
from tests.support.gateway_world import World, gateway_world
from tests.support.waiting import until_async, until_on_loop

PASSWORD = "p" * 43


@dataclass
class Scene:
    gateway: World
    server: NatsServer
    users: BusUsers
    clients: list[Client] = field(default_factory=list)

    async def token(self, **said: Any) -> JoinToken:
        response = await self.gateway.http.post("/api/v1/join-tokens", json={"pool": "gpus"} | said)
        assert response.status_code == 201, response.text
        assert response.headers["cache-control"] == "no-store"
        return JoinToken.read(response.json()["token"])

    async def join(self, token: JoinToken, agent: str = "node", password: str = PASSWORD, secret: str = "") -> Any:
        body = {"token_id": token.id, "secret": secret or token.secret, "agent_id": agent, "password": password}
        response = await self.gateway.http.post("/api/v1/agents/join", json=body, headers={"Authorization": ""})
        return response.status_code, response.json()

    async def refusal(self, *args: Any, **said: Any) -> str:
        status, body = await self.join(*args, **said)
        return f"{status} {body['error']['code']}: {body['error']['message']}"

    async def connected(self, agent: str = "node", password: str = PASSWORD) -> Client:
        async def note(_: Exception) -> None: ...

        user = agent_user(agent)
        client = await nats_module.connect(
            self.server.url, user=user, password=password, inbox_prefix=subjects.inbox(user), allow_reconnect=False, error_cb=note
        )
        self.clients.append(client)
        return client

    async def standing(self, agent: str, password: str) -> bool:
        body = {"agent_id": agent, "credential_hash": hash_of(password)}
        response = await self.gateway.http.post("/api/v1/agents/standing", json=body, headers={"Authorization": ""})
        return bool(response.json()["joined"])


@pytest.fixture
async def scene(database: Any, tmp_path: Path) -> AsyncIterator[Scene]:
    users = BusUsers(tmp_path / "users")
    server = NatsServer(tmp_path / "nats", users=users)
    users.services()
    users.add_agents(["operators"])
    await server.start()
    own = {"nats_url": server.url, "bus_users_directory": str(tmp_path / "users")}
    async with gateway_world(database, tmp_path, **own) as gateway:
        found = Scene(gateway, server, users)
        yield found
        for client in found.clients:
            await client.close()
    await server.kill()


async def test_a_machine_joins_and_has_a_user_of_its_own_on_the_bus(scene: Scene) -> None:
    with pytest.raises(nats.errors.Error):
        await scene.connected()
    token = await scene.token()
    status, joined = await scene.join(token)
    assert (status, joined) == (201, {"agent_id": "node", "pool": "gpus", "nats_url": scene.server.url, "nats_ca": ""})
    bus = await scene.connected()
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    bus._error_cb = note
    for subject in (
        subjects.heartbeat("operators"),
        subjects.ingress("tracker", "operators"),
        "$JS.API.INFO",
        "$SYS.REQ.SERVER.PING",
    ):
        await bus.publish(subject, b"forged")
    await bus.flush()
    await until_on_loop(lambda: refusals, lambda told: len(told) >= 4)  # the client calls nobody
    assert all("permissions violation" in text.lower() for text in refusals)
    assert (await scene.join(token))[0] == 201, "asked again, as after a lost answer"
    [shown] = await scene.gateway.get("/join-tokens")
    assert (shown["id"], shown["uses"], "secret" in str(shown)) == (token.id, 1, False)


async def test_a_stolen_or_replayed_token_lets_in_nobody_beyond_what_it_was_made_for(scene: Scene) -> None:
    token = await scene.token()
    assert (await scene.join(token))[0] == 201
    assert "used up" in await scene.refusal(token, "thief")
    assert (await scene.refusal(token, "node", "q" * 43)).startswith("401 expired"), "nor does it give the name to another"
    short = await scene.token(expires_seconds=1, uses_max=1_000)
    clock = scene.gateway.service.doors.base.clock
    await until_async(lambda: scene.join(short, f"n{clock.now_us()}"), lambda answer: answer[0] != 201)
    assert (await scene.refusal(short, "late")).startswith("401 expired"), "also a token with uses left"
    gone = await scene.token(uses_max=5)
    assert (await scene.gateway.http.delete(f"/api/v1/join-tokens/{gone.id}")).status_code == 200
    assert (await scene.refusal(gone, "late")).startswith("401 unauthorized")
    many = await scene.token(uses_max=5)
    for taken in ("node", "operators"):
        assert (await scene.refusal(many, taken, "q" * 43)).startswith("409 exists"), "no agent that is there is displaced"
    assert scene.users.password("operators") != "q" * 43
    for name in ("a b", "../x", "a\n", "*", ">"):
        assert (await scene.join(many, name))[0] == 400
    for path in (scene.gateway.shared, scene.users._directory):
        kept = [file for file in path.rglob("*") if file.is_file()]
        assert not [file for file in kept if many.secret.encode() in file.read_bytes()]
    events = await scene.gateway.get("/events")
    assert many.secret not in str(events)
    assert PASSWORD not in str(events)


async def test_guesses_are_slowed_down_and_do_not_keep_others_out(scene: Scene) -> None:
    token = await scene.token(uses_max=9)
    said = [await scene.refusal(token, secret=f"{number:043d}") for number in range(8)]
    assert said[0].startswith("401 unauthorized")
    assert said[-1].startswith("429 too_many")
    assert [text[:3] for text in said] == ["401"] * 5 + ["429"] * 3
    assert (await scene.refusal(token)).startswith("429"), "also the right one from that address, which waits its time"
    scene.gateway.service.doors.cluster.join_throttle.forgive("127.0.0.1", "127.0.0.1", 0)
    assert (await scene.join(token))[0] == 201


async def test_a_revoked_agent_is_out_at_once_and_stays_out(scene: Scene) -> None:
    token = await scene.token(uses_max=9)
    await scene.join(token)
    await scene.join(token, "other", "o" * 43)
    bus, other = await scene.connected(), await scene.connected("other", "o" * 43)
    assert await scene.standing("node", PASSWORD)
    assert await scene.standing("operators", scene.users.password("operators") or "")
    assert not await scene.standing("node", "q" * 43)
    assert (await scene.gateway.http.delete("/api/v1/agents/node")).status_code == 200
    await until_on_loop(lambda: not bus.is_connected)  # the client calls nobody
    with pytest.raises(nats.errors.Error):
        await scene.connected()
    await other.flush()
    assert not await scene.standing("node", PASSWORD)
    with pytest.raises(BadAgentName, match="was revoked"):
        scene.users.add_agents(["node"])
    assert await scene.gateway.error("DELETE", "/agents/node") == (
        404, "not_found", "No agent named node has credentials; `tenuto agent ls` shows the agents."
    )  # fmt: skip
    assert (await scene.gateway.http.delete("/api/v1/agents/operators")).status_code == 200, "whoever gave the credentials"
    assert not await scene.standing("operators", "x")
    assert (await scene.join(token, password="n" * 43))[0] == 201
    with pytest.raises(nats.errors.Error):
        await scene.connected()
    await scene.connected(password="n" * 43)


async def test_questions_about_agents_have_a_rate(scene: Scene) -> None:
    """They need no token, and each costs a look at a file."""
    await scene.join(await scene.token())

    async def asked(agent: str) -> Any:
        body = {"agent_id": agent, "credential_hash": hash_of(PASSWORD)}
        return await scene.gateway.http.post("/api/v1/agents/standing", json=body, headers={"Authorization": ""})

    assert (await asked("node")).json() == {"joined": True}
    pace, later = (
        scene.gateway.service.doors.cluster.standing_pace,
        asyncio.get_running_loop().time() + 3_600,
    )  # so that none is over soon
    while not pace.take("127.0.0.1", "node", later):
        pass
    refused = await asked("node")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many")
    assert int(refused.headers["retry-after"]) >= 1
    assert any(pace.take("127.0.0.1", f"guess-{number}", later) for number in range(1_000))
    assert (await asked("other")).status_code == 429


async def test_what_the_gateway_did_not_complete_it_completes_at_its_next_start(scene: Scene) -> None:
    """It ended between the record and the bus."""
    await scene.join(await scene.token())
    keeper = scene.gateway.service.doors.cluster.keeper
    assert keeper is not None
    await scene.gateway.http.delete("/api/v1/agents/node")
    scene.users.admit_agent("node", PASSWORD)
    completing = asyncio.create_task(keeper.run(lambda: scene.gateway.service.loop.state.joining.revoked))
    await until_on_loop(scene.users.agents, lambda found: found == ["operators"])  # nothing else tells
    await stop_task(completing)


async def test_a_revocation_while_the_bus_is_away_is_completed_when_it_is_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.join(await scene.token())
    bus = await scene.connected()
    keeper = scene.gateway.service.doors.cluster.keeper
    assert keeper is not None
    told = keeper._settings
    monkeypatch.setattr(keeper, "_settings", Settings(nats_url="nats://127.0.0.1:1"))  # as if a link was cut
    assert (await scene.gateway.error("DELETE", "/agents/node"))[:2] == (503, "unavailable")
    await bus.flush()
    monkeypatch.setattr(keeper, "_settings", told)
    await until_on_loop(lambda: not bus.is_connected)  # the client calls nobody


async def test_a_bus_that_is_away_is_said_and_the_join_is_completed_when_it_is_back(scene: Scene) -> None:
    token = await scene.token()
    await scene.server.kill()
    assert (await scene.refusal(token)).startswith("503 unavailable: The bus could not be told")
    await scene.server.start()
    assert (await scene.join(token))[0] == 201
    await scene.connected()
