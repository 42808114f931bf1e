"""A target of notices that another package has: made from the command line and used. Its secret is neither told nor recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tests.support.absent_packages import forget_target
from tests.support.example_plugins import importable
from tests.support.gateway_world import gateway_world
from tests.support.receivers import NtfyReceiver


async def test_a_webhook_to_a_plugins_kind(
    database: Any, tmp_path: Path, example_plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, told = NtfyReceiver(), []
    settings = {"secret_key_file": str(tmp_path / "secret.key"), "webhook_addresses": "127.0.0.1"}

    async def tenuto(*arguments: str, says: str, status: int = 0, given: str = "") -> None:
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=given, env=environment)
        told.append(done.output + str(done.exception or ""))
        said = " ".join(told[-1].split())
        assert done.exit_code == status, said
        assert says in said

    create = ["webhook", "create", "room", "--to", "ntfy", "--on", "agent_lost"]
    async with gateway_world(database, tmp_path, **settings) as world, receiver.running():
        environment = {"TENUTO_URL": f"http://127.0.0.1:{world.service.port}", "TENUTO_TOKEN": (tmp_path / "token").read_text()}
        given = ["--set", f"server={receiver.url}", "--set", f"topic={receiver.TOPIC}", "--ask", "token"]
        names = "There is no ntfy among tenuto.notice_targets here (there are: apprise, email, http, pagerduty, slack)"
        await tenuto(*create, *given, given=receiver.TOKEN, status=1, says=names)
        with monkeypatch.context() as patched:
            forget_target(patched, "slack", "slack_sdk")
            slack = {"kind": "slack", "url": "https://hooks.slack.com/services/T/B/x"}
            chat = {"name": "chat", "target": slack, "triggers": [{"on": "agent_lost"}]}
            status, _, told_of = await world.error("POST", "/webhooks", json=chat)
            assert (status, "pip install 'tenuto[notices]'" in told_of) == (400, True), told_of
        with importable(example_plugins):
            await tenuto(*create, "--set", "topic=lobby", status=1, says="target.server: Field required (a target of kind ntfy)")
            await tenuto(
                *create, *given, "--ask", "other", given=receiver.TOKEN, status=1, says="has 1 lines, and should have one"
            )
            await tenuto(*create, *given, given=receiver.TOKEN, says=f"sends notices to ntfy at {receiver.url}")
            await tenuto("webhook", "test", "room", says="is delivered: HTTP 200")
            assert "tries whether this webhook works" in receiver.taken[0]["title"] + receiver.taken[0]["message"]
            await tenuto("webhook", "show", "room", says=f"to ntfy at {receiver.url}")
            created = [event for event in await world.get("/events") if event["type"] == "WebhookCreated"]
            assert (created[0]["data"]["kind"], created[0]["data"]["place"]) == ("ntfy", receiver.url)
    assert receiver.complaints == []
    assert receiver.TOKEN not in "".join(told)
    connection = await asyncpg.connect(database.owner_url)
    try:
        tables = await connection.fetch("SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|information)'")
        for schema, table in tables:
            count = f'SELECT count(*) FROM "{schema}"."{table}" AS item WHERE item::text LIKE $1'
            assert not await connection.fetchval(count, f"%{receiver.TOKEN}%"), table
    finally:
        await connection.close()
