"""docs/webhooks.md and docs/rest.md: every command that they show does it, on a real gateway."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import asyncpg
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.schemas.events.search import ExperimentCanceled
from tests.support.gateway_world import CONFIG, World, gateway_world, requested, validated
from tests.support.receivers import SignedReceiver
from tests.support.waiting import SECONDS_MAX, until_async

DOCS = Path(__file__).parents[2] / "docs"
PARKED = """INSERT INTO parked (number, consumer, item_id, kind, body, reason) OVERRIDING SYSTEM VALUE
    VALUES (7, 'tracker', 'tracker/node/1/1', 'progress', '{}', 'a test')"""


def commands(document: str) -> list[str]:
    """Without what is said about them beside."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / document).read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for kind, block in blocks if not kind for line in block.splitlines() if line.startswith("tenuto ")]
    return [re.split(r" {2,}", line)[0] for line in lines]


SECRETS = {
    "--to pagerduty": "a" * 32,
    "--channel": "xoxb-123456789-abc",
    "--to slack": "https://hooks.slack.com/services/T0/B0/a",
    "--to email": "a password",
    "--to apprise": "discord://1234567890/a-token",
    "secret set": "a value that nobody knows",
    "": "y\n" * 3,
}
"""What a command asks for, by a part of it; the first that fits."""


class Shell:
    def __init__(self, world: World) -> None:
        token = world.http.headers["Authorization"].removeprefix("Bearer ")
        self._environment = {"TENUTO_URL": str(world.http.base_url).rstrip("/"), "TENUTO_TOKEN": token}

    async def run(self, command: str) -> str:
        words, given = shlex.split(command)[1:], next(answer for part, answer in SECRETS.items() if part in command)
        done = await asyncio.to_thread(CliRunner().invoke, app, words, input=f"{given}\n", env=self._environment)
        assert done.exit_code == 0, (command, done.output, done.exception)
        return done.output


async def test_the_commands_of_webhooks(database: Any, tmp_path: Path) -> None:
    settings = {"secret_key_file": str(tmp_path / "secret.key"), "webhook_addresses": "127.0.0.0/8"}
    receiver = SignedReceiver("")
    async with gateway_world(database, tmp_path, **settings) as world, receiver.running():
        await world.submit()
        await world.record(requested(1), validated(10, loss=8.2))
        [reported] = [item["position"] for item in await world.get("/events") if item["type"] == "ValidationReported"]
        shell, found = Shell(world), commands("webhooks.md")
        assert len(found) > 12
        for command in found:
            here = command.replace("https://hooks.example.com/tenuto", f"{receiver.url}/hook").replace("4711", str(reported))
            said = await shell.run(here)
            if "create mine" in command:
                [receiver.secret] = re.findall(r"whsec_\S+", said)
        assert receiver.complaints == []
        assert {item["name"] for item in await world.get("/webhooks")} == {"night-shift", "chat", "chat2", "mail", "other"}


async def retried(owner: asyncpg.Connection) -> None:
    """In place of the service that parked it: handles it as soon as that is asked for."""
    while await owner.execute("DELETE FROM parked WHERE retry_asked_at IS NOT NULL") == "DELETE 0":  # noqa: ASYNC110 - the table tells nobody
        await asyncio.sleep(0.05)
    await owner.close()


async def test_the_commands_of_the_rest_door(database: Any, tmp_path: Path) -> None:
    settings = {"secret_key_file": str(tmp_path / "secret.key"), "requests_per_second_max": 0}
    async with gateway_world(database, tmp_path, **settings) as world:
        for name in ("first", "second", "lenet"):
            assert (await world.submit(CONFIG.replace("digits", name) + "labels: [draft]\n")).status_code == 201
        await world.record(ExperimentCanceled(experiment_id=3, trials=0))
        owner = await asyncpg.connect(database.owner_url)
        await owner.execute(PARKED)
        consumer = asyncio.create_task(retried(owner))
        shell, found = Shell(world), commands("rest.md")
        assert len(found) > 16
        for command in found:
            said = await shell.run(command)
            if "redeliver" in command:
                await asyncio.wait_for(consumer, SECONDS_MAX)
            if "--name lenet" in command:
                assert "lenet, wide" in said
        # Views are folded again.
        kept = await until_async(lambda: world.http.get("/api/v1/experiments/3"), lambda answer: answer.status_code == 200)
        assert (kept.json()["name"], kept.json()["note"], kept.json()["deletion_due_us"]) == (
            "lenet, wide", "Repeat with 3 seeds.", None,
        )  # fmt: skip
