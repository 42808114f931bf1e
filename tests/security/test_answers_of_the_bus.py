"""The search for answers of the bus that went where an agent wanted them finds nothing with our accounts, and finds them where
agents share the services' account: so the same search on a cluster (`test_stolen_agent.py`) would see them."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamState

from tenuto.embedded.nats import NatsServer
from tenuto.kernel import bus as bus_module
from tenuto.kernel import bus_users
from tenuto.kernel.bus_permissions import AGENTS_ACCOUNT, SERVICES_ACCOUNT, SYSTEM_ACCOUNT, accounts, agent_user
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tests.security.answers import intrusions, log_stream, replies
from tests.support.waiting import SECONDS_MAX

THIEF, VICTIM = "stolen", "victim"
EVENTS = 5


def one_account(
    services: Mapping[str, str], agents: Mapping[str, str], readers: Mapping[str, str], keeper: str
) -> dict[str, Any]:
    """What each may say and hear stays the same; the server judges what is said, and not where its own answer goes."""
    made = accounts(services, agents, readers, keeper)
    users = [*made[SERVICES_ACCOUNT]["users"], *made[AGENTS_ACCOUNT]["users"]]
    return {SYSTEM_ACCOUNT: made[SYSTEM_ACCOUNT], SERVICES_ACCOUNT: {"jetstream": "enabled", "users": users}}


async def look(js: JetStreamContext, before: StreamState) -> list[str]:
    last = (await js.stream_info(subjects.INGRESS_STREAM)).state.last_seq
    messages = [await js.get_msg(subjects.INGRESS_STREAM, seq=number) for number in range(1, last + 1)]
    strangers = [str(item.data) for item in messages if item.subject == subjects.ingress("tracker", VICTIM)]
    ids = {position: str(position) for position in range(1, EVENTS + 1)}
    return await intrusions(js, before, await log_stream(js), ids, strangers)


@pytest.mark.parametrize("sound", [True, False])
async def test_an_answer_that_goes_astray_is_found(sound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sound:
        monkeypatch.setattr(bus_users, "accounts", one_account)
    directory = Path(tempfile.mkdtemp(prefix="tenuto-answers-"))
    users = bus_users.BusUsers(directory / "users")
    thief_password = users.add_agents([THIEF, VICTIM])[THIEF]
    server = NatsServer(directory / "nats", users=users)
    await server.start()
    try:
        relay = await nats.connect(
            server.url, user="relay", password=users.services()["relay"], inbox_prefix=subjects.inbox("relay")
        )
        js = relay.jetstream()
        settings = Settings(nats_url=server.url)
        await bus_module.ensure_streams(js, settings)
        await bus_module.ensure_stream(js, bus_module.log_stream_config(settings))
        for position in range(1, EVENTS + 1):
            await js.publish("tenuto.log.trial.1-1", b"an event", headers={"Nats-Msg-Id": str(position)})
        before = await log_stream(js)

        user = agent_user(THIEF)
        thief = await nats.connect(server.url, user=user, password=thief_password, inbox_prefix=subjects.inbox(user))
        for reply in replies(VICTIM):
            await thief.publish(subjects.ingress("logs", THIEF), b"{}", reply=reply)
        await thief.flush()
        for _ in range(2):  # answered after those before it; and the second is stored after what those answers became
            await thief.request(subjects.ingress("metrics", THIEF), b"{}", timeout=30)
        found = await look(js, before)
        async with asyncio.timeout(SECONDS_MAX):
            while not sound and not (any("lane" in item for item in found) and any("message" in item for item in found)):
                found = await look(js, before)
        # A server that reads strictly takes its own answer for no request to clear the stream: this is shown with a real one.
        await js.purge_stream(subjects.LOG_STREAM, seq=EVENTS)
        cleared = await look(js, before)
        await thief.close()
        await relay.close()
    finally:
        await server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    if sound:
        assert found == []
    else:
        assert any("in the victim's lane" in item for item in found)
        assert any(f"message {EVENTS + 1} " in item for item in found)
    assert any("no more at 1" in item for item in cleared)
