"""`tenuto webhook` and `tenuto secret rotate-key` against a real gateway, with a real SMTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tests.support.gateway_world import World, gateway_world, requested, validated
from tests.support.mail_receivers import MailReceiver
from tests.support.waiting import SECONDS_MAX


@pytest.fixture
async def world(database: Any, tmp_path: Path) -> AsyncIterator[World]:
    settings = {"secret_key_file": str(tmp_path / "secret.key"), "webhook_addresses": "127.0.0.1"}
    async with gateway_world(database, tmp_path, **settings) as found:
        yield found


async def test_a_webhook_to_mail_from_the_command_line(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = MailReceiver(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(receiver.certificate))
    token = (tmp_path / "token").read_text()
    environment = {"TENUTO_URL": f"http://127.0.0.1:{world.service.port}", "TENUTO_TOKEN": token}

    async def tenuto(*arguments: str, says: str, status: int = 0, given: str = "") -> None:
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments, input=given, env=environment)
        said = " ".join((done.output + str(done.exception or "")).split())
        assert done.exit_code == status, said
        assert says in said

    mail = ["--to", "email", "--host", "127.0.0.1", "--username", receiver.USER, "--sender", "tenuto@example.org"]
    async with receiver.running():
        mail += ["--port", receiver.url.rpartition(":")[2]]
        create = ["webhook", "create", "mail", *mail, "--on", "metric:accuracy<0.5", "--on", "notice:error", "--on", "wait:3600"]
        await tenuto(*create, says="--recipient is needed", status=1, given="x")
        await tenuto(
            *create, "--url", "https://x", "--recipient", "a@b.org", says="--url is not for a target", status=1, given="x"
        )
        recipients = ["--recipient", "ada@example.org", "--recipient", "bob@example.org"]
        await tenuto(*create, *recipients, says="ada@example.org and 1 more by 127.0.0.1", given=receiver.PASSWORD)
        await tenuto("webhook", "test", "mail", says="is delivered: SMTP 250")
        await tenuto("secret", "rotate-key", says="1 secrets are sealed with a new key")
        await tenuto("webhook", "edit", "mail", "--user", "nobody", says="is changed")
        await world.submit()
        await world.record(requested(1), validated(10, accuracy=0.1))
        found = [event for event in await world.get("/events") if event["type"] == "ValidationReported"]
        position = str(found[0]["position"])
        await tenuto("webhook", "explain", "mail", position, says="the filter lets through nobody")
        await tenuto("webhook", "edit", "mail", "--all", says="is changed")
        await tenuto("webhook", "edit", "mail", says="Nothing is to be changed", status=1)
        await tenuto("webhook", "pause", "mail", says="0 notices wait until")
        await tenuto("webhook", "ls", says="paused")
        await tenuto("webhook", "test", "mail", says="is paused", status=1)
        await tenuto("webhook", "resume", "mail", says="sends again")
        await world.record(validated(20, accuracy=0.9), validated(30, accuracy=0.2))
        await asyncio.wait_for(receiver.wait_taken(2), SECONDS_MAX)
        assert "accuracy of trial 1-1 is 0.2 after 30 batches, below 0.5." in receiver.taken[1]["text"]
        await tenuto("webhook", "show", "mail", says="on wait: seconds 3600")
        await tenuto("webhook", "rm", "mail", says="is removed")
    assert receiver.complaints == []
