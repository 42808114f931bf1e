"""Webhooks through the REST door, on a real log, with real receivers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tenuto.schemas.events.agent import AgentLost
from tenuto.schemas.events.registry import Reason
from tenuto.schemas.events.search import ExperimentCompleted, ExperimentFailed
from tenuto.schemas.events.trial import NoticeReported, TrialFailed
from tenuto.services.gateway.notices.policies import delivering
from tests.support.gateway_world import World, gateway_world, requested
from tests.support.receivers import Fault, PagerDutyReceiver, Receiver, SignedReceiver, SlackReceiver
from tests.support.waiting import SECONDS_MAX, until_async

LOST = [{"on": "agent_lost"}]


class Hooks(World):
    async def make(self, name: str, target: dict[str, Any], triggers: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        response = await self.http.post("/api/v1/webhooks", json={"name": name, "target": target, "triggers": triggers, **more})
        assert response.status_code == 201, response.text
        return dict(response.json())

    async def signed(self, name: str, receiver: SignedReceiver, triggers: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        target = {"kind": "http", "url": f"{receiver.url}/hook"}
        made = await self.make(name, target, triggers, **more)
        receiver.secret = made["secret"]
        return made

    async def post(self, path: str, body: Any = None) -> Any:
        response = await self.http.post(f"/api/v1{path}", json=body)
        assert response.status_code < 300, response.text
        return response.json()

    async def once(self, path: str, right: Callable[[Any], bool]) -> Any:
        return await until_async(lambda: self.get(path), right)

    async def lose(self, *numbers: int) -> None:
        await self.record(*(AgentLost(agent_id=f"node-{number}", reason="no heartbeat") for number in numbers))


def opened(database: Any, tmp_path: Path, addresses: str = "127.0.0.0/8") -> contextlib.AbstractAsyncContextManager[Hooks]:
    return gateway_world(
        database,
        tmp_path,
        Hooks,
        secret_key_file=str(tmp_path / "secret.key"),
        webhook_addresses=addresses,
        public_url="https://tenuto.example.com/",
    )


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[Hooks]:
    async with opened(database, tmp_path) as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of a tenth: what is tested is their order."""
    monkeypatch.setattr(delivering, "RETRIES", replace(delivering.RETRIES, first_seconds=0.1))


def agents(receiver: Receiver) -> list[str]:
    return [notice["agent_id"] for body in receiver.taken for notice in body["data"]["notices"]]


async def test_in_order_through_failures_and_restarts(database: Any, tmp_path: Path) -> None:
    receiver, dead = SignedReceiver(""), SignedReceiver("")
    dead.always = Fault(503)
    async with receiver.running(), dead.running():
        async with opened(database, tmp_path) as world:
            await world.signed("living", receiver, LOST)
            await world.signed("dead", dead, LOST)
            receiver.faults = [Fault(500), Fault(cut=True), Fault(500)]
            await world.lose(*range(20))
            await asyncio.wait_for(receiver.wait_taken(10), SECONDS_MAX)
        async with opened(database, tmp_path) as world:
            await world.lose(*range(20, 30))
            await asyncio.wait_for(receiver.wait_taken(30), SECONDS_MAX)
            found = await world.once("/webhooks/living", lambda item: not item["waiting"])
            assert (found["notices"], found["parked"], found["answer"]) == (30, 0, "")
            by_id = dict(zip(receiver.ids, agents(receiver), strict=True))
            assert list(by_id.values()) == [f"node-{number}" for number in range(30)], "in order, and none lost"
            # Nothing says that the dead one was asked before the living one had taken all.
            found = await world.once("/status", lambda item: [hook["answer"] for hook in item["webhooks"]] == ["HTTP 503"])
            [trouble] = found["webhooks"]
            assert (trouble["name"], trouble["waiting"]) == ("dead", 30)
            dead.always = None
            await asyncio.wait_for(dead.wait_taken(30), SECONDS_MAX)
            await world.once("/webhooks/dead", lambda item: not item["waiting"])
            assert list(dict.fromkeys(agents(dead))) == [f"node-{number}" for number in range(30)]
            assert (await world.get("/status"))["webhooks"] == []
            [first, *_] = await world.get("/webhooks/dead/deliveries?limit=1")
            assert (first["number"], first["state"], first["answer"]) == (30, "delivered", "HTTP 204")
            assert first["why"] == "Agent node-29 is lost: no heartbeat."
    assert receiver.complaints == []


async def test_parked_and_sent_again_as_it_was(world: Hooks) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        await world.signed("mine", receiver, LOST)
        receiver.faults = [Fault(410), Fault(307, {"Location": f"{receiver.url}/elsewhere"})]
        await world.lose(1, 2, 3)
        await world.once("/webhooks/mine", lambda item: item["notices"] == 3 and not item["waiting"] and item["parked"] == 2)
        assert agents(receiver) == ["node-3"], "what is refused holds up nothing"
        rows = await world.get("/webhooks/mine/deliveries")
        assert [row["state"] for row in rows] == ["delivered", "parked", "parked"]
        assert rows[2]["answer"] == "the target refuses it: HTTP 410."
        assert "a redirect, which is not followed" in rows[1]["answer"]
        assert await world.error("POST", "/webhooks/mine/redeliver", json={"numbers": [3]}) == (
            404,
            "not_found",
            "Notice 3 of webhook mine is not parked; `tenuto webhook deliveries mine` shows which are.",
        )
        assert (await world.post("/webhooks/mine/redeliver", {"numbers": [2]}))["numbers"] == [2]
        assert (await world.post("/webhooks/mine/redeliver"))["numbers"] == [1]
        await asyncio.wait_for(receiver.wait_taken(3), SECONDS_MAX)
        assert sorted(agents(receiver)) == ["node-1", "node-2", "node-3"]
        assert len(set(receiver.ids)) == 3
        await world.once("/webhooks/mine", lambda item: not (item["waiting"] or item["parked"]))


async def test_addresses_that_are_not_public(database: Any, tmp_path: Path) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        port = receiver.url.rpartition(":")[2]
        places = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "169.254.169.254", "2130706433"]
        async with opened(database, tmp_path, addresses="") as world:
            for index, place in enumerate(places):
                await world.make(f"hook-{index}", {"kind": "http", "url": f"http://{place}:{port}/hook"}, LOST)
            await world.lose(1)
            for index, place in enumerate(places):
                await world.once(f"/webhooks/hook-{index}", lambda item: item["parked"] == 1)
                [row] = await world.get(f"/webhooks/hook-{index}/deliveries")
                assert row["state"] == "parked", place
                whole = "its address is none that one could connect to" if place == "2130706433" else "is no public address"
                assert whole in row["answer"], place
        assert receiver.asked == 0
        async with opened(database, tmp_path) as world:
            await world.post("/webhooks/hook-0/test")
            await asyncio.wait_for(receiver.wait_asked(1), SECONDS_MAX)


async def test_secrets_are_nowhere(world: Hooks, database: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    receiver, slack, pager = SignedReceiver(""), SlackReceiver(), PagerDutyReceiver()
    async with receiver.running(), slack.running(), pager.running():
        made = await world.signed("mine", receiver, LOST)
        bot = {"kind": "slack", "token": slack.TOKEN, "channel": "C024BE91L", "api_url": f"{slack.url}/api/"}
        await world.make("bot", bot, LOST)
        await world.make("chat", {"kind": "slack", "url": f"{slack.url}/services/T000/B000/SECRETSECRET"}, LOST)
        await world.make("pager", {"kind": "pagerduty", "routing_key": pager.KEY, "api_url": pager.url}, LOST)
        slack.faults = [Fault(500), Fault(429, {"Retry-After": "0"})]
        pager.faults = [Fault(429, {"Retry-After": "0"})]
        await world.lose(1)
        for name in ("mine", "bot", "chat", "pager"):
            await world.once(f"/webhooks/{name}", lambda item: not item["waiting"] and item["notices"] == 1)
        again = await world.post("/webhooks/mine/rotate", {"keep_old_hours": 1})
        assert again["secret"] != made["secret"]
        await world.lose(2)  # the receiver has the old secret still
        await asyncio.wait_for(receiver.wait_taken(2), SECONDS_MAX)
        receiver.secret = again["secret"]
        await world.lose(3)
        await asyncio.wait_for(receiver.wait_taken(3), SECONDS_MAX)
        assert receiver.complaints == slack.complaints == pager.complaints == []
        secrets = [made["secret"], again["secret"], slack.TOKEN, "SECRETSECRET", pager.KEY]
        answers = [
            (await world.http.get(f"/api/v1{path}")).text for path in ("/webhooks", "/webhooks/mine", "/events", "/status")
        ]
        connection = await asyncpg.connect(database.url)
        try:
            rows = await connection.fetch("SELECT payload FROM events")
            stored = [bytes(row["value"]) for row in await connection.fetch("SELECT value FROM secrets")]
        finally:
            await connection.close()
        assert len(stored) == 4, "what was rotated away is forgotten"
        seen = " ".join([*answers, *(str(row["payload"]) for row in rows), *map(str, stored), caplog.text])
        assert [secret for secret in secrets if secret in seen] == []
        for name in ("mine", "bot", "chat", "pager"):
            assert (await world.http.delete(f"/api/v1/webhooks/{name}")).status_code == 200
        assert await world.get("/webhooks") == []


async def test_what_slack_and_pagerduty_are_told_of_an_experiment(world: Hooks) -> None:
    slack, pager = SlackReceiver(), PagerDutyReceiver()
    async with slack.running(), pager.running():
        ends = [{"on": "trial", "states": ["failed"]}, {"on": "experiment", "states": ["completed"]}]
        failed = [{"on": "event", "types": ["TrialFailed"]}, *ends]
        bot = {"kind": "slack", "token": slack.TOKEN, "channel": "C024BE91L", "api_url": f"{slack.url}/api/"}
        await world.make("bot", bot, failed)
        trouble = [{"on": "stall", "validations": 1}, {"on": "experiment", "states": ["failed"]}, *LOST]
        await world.make("pager", {"kind": "pagerduty", "routing_key": pager.KEY, "api_url": pager.url}, trouble)
        assert (await world.submit()).status_code == 201
        await world.record(requested(1))
        error = "model_def.py:3: ValueError: no such <file>"
        await world.record(TrialFailed(trial_id="1-1", allocation_id="1-1-1", error=error, failures=1, final=False))
        await world.once("/webhooks/bot", lambda item: item["notices"] == 1 and not item["waiting"])
        done = ExperimentCompleted(experiment_id=1, best_trial_id="1-1", best_metric=0.5, trials=1, reason=Reason(rule="x"))
        await world.record(done)
        await world.once("/webhooks/bot", lambda item: item["notices"] == 2 and not item["waiting"])
        [post] = slack.posts.values()
        assert "Experiment 1 has completed after 1 trial; the best is trial 1-1 with 0.5." in post["text"]
        assert "https://tenuto.example.com/experiments/1" in str(post)
        assert len(slack.replies) == 1
        assert (await world.submit()).status_code == 201
        await world.record(ExperimentFailed(experiment_id=2, error=error, trials=1))
        await world.lose(1)
        await world.once("/webhooks/pager", lambda item: item["notices"] == 2 and not item["waiting"])
        assert {key.partition(":")[2] for key in pager.open} == {
            "tenuto.example.com:experiment/2",
            "tenuto.example.com:agent/node-1",
        }
        [first, _] = pager.open.values()
        assert first["payload"]["summary"] == "Experiment 2 has failed after 1 trial."
        assert first["payload"]["custom_details"]["error"] == error
    assert slack.complaints == pager.complaints == []


async def test_what_is_grouped_is_one_message(world: Hooks) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        await world.signed("mine", receiver, LOST, group_seconds=0.5)
        await world.lose(1, 2, 3)
        await asyncio.wait_for(receiver.wait_taken(1), SECONDS_MAX)
        assert agents(receiver) == ["node-1", "node-2", "node-3"]
        assert len(receiver.taken) == 1


async def test_whose_webhook_it_is(world: Hooks) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        tokens = {name: (await world.post("/users", {"name": name}))["token"] for name in ("ada", "eve")}
        url = world.http.base_url
        ada, eve = (
            httpx.AsyncClient(base_url=url, timeout=120, headers={"Authorization": f"Bearer {tokens[name]}"}) for name in tokens
        )
        async with ada, eve:
            body = {"name": "mine", "target": {"kind": "http", "url": f"{receiver.url}/hook"}, "triggers": LOST}
            assert (await ada.post("/api/v1/webhooks", json=body)).status_code == 201
            for method, path in (("DELETE", ""), ("POST", "/test"), ("POST", "/rotate"), ("POST", "/redeliver")):
                answer = await eve.request(method, f"/api/v1/webhooks/mine{path}", json={})
                assert answer.status_code == 403, answer.text
                assert answer.json()["error"]["message"] == "Webhook mine is ada's; only ada or an admin may change it."
            assert (await eve.post("/api/v1/webhooks", json=body)).status_code == 409
            assert [item["owner"] for item in (await eve.get("/api/v1/webhooks")).json()] == ["ada"]
            assert (await world.post("/webhooks/mine/test"))["number"] == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": {"kind": "http", "url": "ftp://example.com"}}, "url"),
        ({"target": {"kind": "http", "url": "https://user:pass@example.com"}}, "url"),
        ({"target": {"kind": "slack"}}, "give either url"),
        ({"target": {"kind": "pagerduty", "routing_key": "short"}}, "routing_key"),
        ({"triggers": []}, "triggers"),
        ({"triggers": [{"on": "event", "types": ["Nothing"]}]}, "Nothing is no type of event"),
        ({"triggers": [{"on": "metric", "metric": "loss"}]}, "give either above or below"),
        ({"name": "Not A Name"}, "name"),
        ({"group_seconds": 1e9}, "group_seconds"),
    ],
)
async def test_what_is_no_webhook_is_refused(world: Hooks, change: dict[str, Any], says: str) -> None:
    body = {"name": "mine", "target": {"kind": "http", "url": "https://example.com"}, "triggers": LOST} | change
    answer = await world.http.post("/api/v1/webhooks", json=body)
    assert answer.status_code == 400
    assert says in answer.text
    for secret in ("user:pass", "short"):
        assert secret not in answer.text, "no secret is repeated"
    assert await world.get("/webhooks") == []


async def test_changed_paused_and_explained(world: Hooks) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        await world.signed("mine", receiver, [{"on": "agent_lost"}, {"on": "event", "types": ["ExperimentSubmitted"]}])
        await world.lose(1)
        await asyncio.wait_for(receiver.wait_taken(1), SECONDS_MAX)

        async def change(**body: Any) -> dict[str, Any]:
            response = await world.http.patch("/api/v1/webhooks/mine", json=body)
            assert response.status_code == 200, response.text
            return dict(response.json())

        assert (await change(paused=True))["paused"]
        refused = await world.http.post("/api/v1/webhooks/mine/test")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
        await world.lose(2)
        lost = [event for event in await world.get("/events") if event["type"] == "AgentLost"]
        await world.once(
            f"/webhooks/mine/explanation?event_id={lost[1]['id']}", lambda found: "paused" in str(found["sentences"])
        )
        changed = await change(paused=False, triggers=[{"on": "agent_lost"}, {"on": "wait", "seconds": 1}], group_seconds=0)
        assert [item["on"] for item in changed["triggers"]] == ["agent_lost", "wait"]
        told = await world.get(f"/webhooks/mine/explanation?position={lost[0]['position']}")
        assert (told["number"], told["sentences"]) == (1, ["Agent node-1 is lost: no heartbeat."])
        missing = await world.http.get("/api/v1/webhooks/mine/explanation?position=999999")
        assert missing.status_code == 404
        neither = await world.http.get("/api/v1/webhooks/mine/explanation")
        assert neither.status_code == 400

        await world.submit()
        await world.record(requested(1))
        await asyncio.wait_for(receiver.wait_taken(2), SECONDS_MAX)
        [waits] = receiver.taken[1]["data"]["notices"]
        assert waits["trial_id"] == "1-1"
        assert waits["why"].startswith("Trial 1-1 has waited for slots for ")
        await world.lose(3)
        await asyncio.wait_for(receiver.wait_taken(3), SECONDS_MAX)
        assert [notice["number"] for body in receiver.taken for notice in body["data"]["notices"]] == [1, 2, 3], (
            "none while paused"
        )
    assert receiver.complaints == []


async def test_what_model_code_says_is_told_with_the_last_lines(world: Hooks) -> None:
    receiver = SignedReceiver("")
    async with receiver.running():
        await world.signed("mine", receiver, [{"on": "notice"}, {"on": "event", "types": ["ExperimentSubmitted"]}])
        await world.submit()
        await asyncio.wait_for(receiver.wait_taken(1), SECONDS_MAX)
        await world.record(requested(1), NoticeReported(trial_id="1-1", allocation_id="1-1-1", text="look", level="info"))
        await asyncio.wait_for(receiver.wait_taken(2), SECONDS_MAX)
        first, second = (body["data"]["notices"][0] for body in receiver.taken)
        assert (first["event_type"], first["subject"]) == ("ExperimentSubmitted", "experiment/1")
        assert (second["why"], second["severity"]) == ('Trial 1-1 says: "look".', "info")
        assert second["link"] == "https://tenuto.example.com/trials/1-1"
    assert receiver.complaints == []
