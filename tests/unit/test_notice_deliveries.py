"""What becomes of notices: who may ask for what, in which order they are sent, and when they are given up."""

from __future__ import annotations

import math
from dataclasses import replace
from uuid import uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.kernel.core import Refused
from tenuto.kernel.reactions import Failure, ReceiverProgress
from tenuto.schemas.events.notice import WebhookFailed
from tenuto.schemas.sentences import sentence
from tenuto.schemas.webhooks import AgentLostTrigger, MetricTrigger, StallTrigger
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.notices.commands import ChangeWebhookSecret, NoteDelivery, Redeliver, RemoveWebhook, TryWebhook
from tenuto.services.gateway.notices.policies import delivering
from tenuto.services.gateway.notices.policies.delivering import first_batch, message_id
from tenuto.services.gateway.notices.state import Notice
from tenuto.services.gateway.state import State
from tests.support.notice_world import ID, LOST, SECOND_US, World, said, submitted, validated


def test_a_snapshot_has_all_of_it() -> None:
    world = World(AgentLostTrigger(), StallTrigger(validations=3), MetricTrigger(metric="loss", above=1), recoveries=True)
    world.fold(submitted(labels=("nightly",)))
    for value in (0.5, math.inf, math.nan):
        world.happens(validated(value))
    world.happens(LOST)
    world.note("refused", 1)
    core, state = GatewayCore(), State(notices=world.notices)
    assert core.load(core.dump(state)) == state


def test_numbers_and_ids_are_each_notices_own() -> None:
    world = World(AgentLostTrigger())
    found = [world.happens(LOST)[0] for _ in range(3)]
    assert [notice.number for notice in found] == [1, 2, 3]
    ids = {notice.id for notice in world.hook.waiting.values()}
    world.ask(RemoveWebhook, name="hook")
    world.time_us += 1
    world.make("hook", AgentLostTrigger())
    world.happens(LOST)
    assert len(ids | {notice.id for notice in world.hook.waiting.values()}) == 4, "of a later webhook of that name, too"


def test_delivered_and_parked_and_sent_again() -> None:
    world = World(AgentLostTrigger())
    for _ in range(3):
        world.happens(LOST)
    assert [event.TYPE for event in world.note("delivered", 1, message_id="m", reference="C/1")] == ["WebhookDelivered"]
    [parked] = world.note("refused", 2)
    assert sentence(parked.TYPE, parked.model_dump(), "gateway/4") == "the target refuses it: HTTP 500."
    assert (sorted(world.hook.waiting), sorted(world.hook.parked)) == ([3], [2])
    assert world.note("delivered", 1, message_id="m") == [], "what is on record already"
    with pytest.raises(Refused, match="Notice 1 of webhook hook is not parked"):
        world.ask(Redeliver, name="hook", numbers=(1,))
    before = world.hook.parked[2]
    world.time_us += SECOND_US
    world.ask(Redeliver, name="hook")
    again = world.hook.waiting[2]
    assert again == replace(before, queued_us=world.time_us), "the same notice, with a day of its own"
    assert world.ask(Redeliver, name="hook") == []
    [delayed] = world.note("delayed", 2, resume_us=77)
    assert world.hook.resume_us == 77
    assert world.note("delivered", 2, message_id="m")
    assert world.hook.resume_us == 0
    assert delayed.TYPE == "WebhookDelayed"


def test_what_is_noted_of_a_webhook_that_is_gone_is_dropped() -> None:
    world = World(AgentLostTrigger())
    world.happens(LOST)
    assert world.note("delivered", 1, created_us=1) == []
    world.ask(RemoveWebhook, name="hook")
    assert world.ask(NoteDelivery, webhook="hook", numbers=(1,), outcome="refused", attempts=1, answer="", created_us=1) == []


def test_more_than_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.services.gateway.notices.decide.triggered_notices.WAITING_MAX", 2)
    monkeypatch.setattr("tenuto.services.gateway.notices.evolve.PARKED_MAX", 3)
    world = World(AgentLostTrigger())
    for _ in range(8):
        world.happens(LOST)
    assert sorted(world.hook.waiting) == [1, 2]
    assert sorted(world.hook.parked) == [6, 7, 8]
    [_, failed] = world.happens(LOST)
    assert isinstance(failed, WebhookFailed)
    assert "2 notices wait" in sentence(failed.TYPE, failed.model_dump(), "gateway/4")


def test_only_the_owner_and_admins() -> None:
    world = World(AgentLostTrigger())
    for kind, fields in (
        (RemoveWebhook, {}),
        (TryWebhook, {}),
        (Redeliver, {}),
        (ChangeWebhookSecret, {"sealed_id": "t", "old_until_us": 1}),
    ):
        with pytest.raises(Refused, match="is ada's") as refused:
            world.ask(kind, name="hook", user="eve", **fields)
        assert refused.value.code == "forbidden"
        with pytest.raises(Refused, match="no webhook other"):
            world.ask(kind, name="other", **fields)
    [tried] = world.ask(TryWebhook, name="hook", user="admin")
    assert said(tried) == "admin tries whether this webhook works."
    world.ask(ChangeWebhookSecret, name="hook", sealed_id="t", old_until_us=1)
    assert world.hook.sealed_id == "t"
    with pytest.raises(Refused, match="There is a webhook hook already"):
        world.make("hook", AgentLostTrigger())
    world.make("chat", AgentLostTrigger(), kind="slack")
    with pytest.raises(Refused, match="not signed"):
        world.ask(ChangeWebhookSecret, name="chat", sealed_id="t", old_until_us=1)


def test_what_comes_within_the_time_of_a_group_is_one_message() -> None:
    world = World(AgentLostTrigger(), group_seconds=2.5)
    groups = [world.happens(LOST)[0].group for _ in range(8)]  # a second apart
    assert groups == [1, 1, 1, 2, 2, 2, 3, 3]
    line = [world.hook.waiting[number] for number in sorted(world.hook.waiting)]
    batch = first_batch(line)
    assert [notice.number for notice in batch.notices] == [1, 2, 3]
    assert batch.not_before_us == line[0].time_us + int(2.5 * SECOND_US) + int(delivering.LATE_SECONDS * SECOND_US)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=6))
def test_batches_keep_the_order_and_lose_nothing(groups: list[tuple[int, int]]) -> None:
    line = [
        Notice(number, str(uuid5(ID, str(number))), 1, 1, group, 2, "AgentLost", "error", False, "{}")
        for number, group in enumerate([group for group, (_, size) in enumerate(groups) for _ in range(size)], 1)
    ]
    sent: list[int] = []
    while line:
        batch = first_batch(line).notices
        assert len({notice.group for notice in batch}) == 1
        assert len(batch) <= delivering.MESSAGE_NOTICES_MAX
        assert message_id(batch) == message_id(batch)
        sent += [notice.number for notice in batch]
        line = line[len(batch) :]
    assert sent == sorted(sent)


def test_a_day_of_attempts() -> None:
    progress, now_us = ReceiverProgress(), 0
    while not (progress := delivering.RETRIES.failed(progress, Failure("HTTP 500"), now_us, 0.5)).parked:
        assert progress.next_us is not None
        now_us = progress.next_us
    assert 22 * 3_600 < now_us / SECOND_US <= 24 * 3_600
    assert 25 <= progress.attempts <= 60
