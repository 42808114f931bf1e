"""Webhooks that are changed and paused, events of the gateway itself, and why there is no notice."""

from __future__ import annotations

import pytest

from tenuto.kernel.core import Refused
from tenuto.schemas.events import EventData
from tenuto.schemas.events.notice import WebhookChanged, WebhookChanges, WebhookTriggered
from tenuto.schemas.webhooks import (
    AgentLostTrigger,
    EventTrigger,
    ExperimentTrigger,
    Filters,
    MetricTrigger,
    StallTrigger,
    Trigger,
    WaitTrigger,
)
from tenuto.services.gateway.notices.commands import ChangeWebhook, TryWebhook
from tenuto.services.gateway.notices.decide.triggered_notices import follow_own
from tenuto.services.gateway.notices.policies.missing_notices import why_not
from tests.support.notice_world import (
    FAILED,
    LOST,
    World,
    submitted,
    validated,
)


def test_a_webhook_that_is_changed_and_paused() -> None:
    world = World(MetricTrigger(metric="loss", above=10))
    world.fold(submitted())
    assert world.happens(validated(11))
    [changed] = world.ask(
        ChangeWebhook, name="hook", changes=WebhookChanges(triggers=(MetricTrigger(metric="loss", above=5),), group_seconds=0.0)
    )
    assert isinstance(changed, WebhookChanged)
    assert changed.group_seconds is None, "as it was"
    assert world.happens(validated(11)), "told anew"
    assert world.ask(ChangeWebhook, name="hook", changes=WebhookChanges(group_seconds=0.0)) == []
    with pytest.raises(Refused, match="admin"):
        world.ask(ChangeWebhook, name="hook", changes=WebhookChanges(paused=True), user="bob")
    world.ask(ChangeWebhook, name="hook", changes=WebhookChanges(paused=True))
    world.happens(validated(1))
    assert world.happens(validated(11)) == []
    with pytest.raises(Refused, match="paused"):
        world.ask(TryWebhook, name="hook")
    world.time_us += 10**12
    world.ask(ChangeWebhook, name="hook", changes=WebhookChanges(paused=False))
    assert {item.queued_us for item in world.hook.waiting.values()} == {world.time_us}
    assert world.happens(validated(12)) == [], "beyond since before"


def test_events_of_the_gateway_itself() -> None:
    world = World(EventTrigger(types=("ExperimentSubmitted", "UserCreated")), filters=Filters(users=("ada",)))
    told = [
        item.event_type
        for user in ("ada", "bob")
        for item in follow_own(world.notices, [submitted(user=user)], world.time_us)
        if isinstance(item, WebhookTriggered)
    ]
    assert told == ["ExperimentSubmitted"]
    for wrong in ("WebhookCreated", "WebhookTriggered", "WebhookDelivered", "WebhookChanged"):
        with pytest.raises(Refused, match=f"{wrong} is no type of event"):
            world.make("x", EventTrigger(types=(wrong,)))


@pytest.mark.parametrize(
    ("trigger", "events", "words"),
    [
        (
            MetricTrigger(metric="loss", above=10),
            [validated(5)],
            "Trigger 1 (metric:loss>10): loss was 5, which is not above 10.",
        ),
        (
            MetricTrigger(metric="loss", above=10),
            [validated(11), validated(12)],
            "Trigger 1 (metric:loss>10): loss was 12, above the limit, as at the validation before, and that was told then.",
        ),
        (
            MetricTrigger(metric="error", above=10),
            [validated(5)],
            "Trigger 1 (metric:error>10): the validation has no metric 'error'.",
        ),
        (
            StallTrigger(validations=3),
            [validated(5), validated(6)],
            "Trigger 1 (stall:3): loss became better 1 validation ago, and 3 are asked for.",
        ),
        (
            ExperimentTrigger(states=("completed",)),
            [FAILED],
            "Trigger 1 (experiment:completed): asks for experiments that ended in one of these states, and this ExperimentFailed "
            "is none.",
        ),
        (AgentLostTrigger(), [FAILED], "Trigger 1 (agent_lost): does not ask for events of type ExperimentFailed."),
        (WaitTrigger(seconds=60), [LOST], "Trigger 1 (wait:60): is told while a trial waits, and not about an event."),
    ],
)
def test_why_there_is_no_notice(trigger: Trigger, events: list[EventData], words: str) -> None:
    world = World(trigger)
    world.fold(submitted())
    for event in events:
        world.happens(event)
    assert why_not(world.notices, "hook", events[-1]) == (words,)


def test_which_filter_did_not_fit() -> None:
    world = World(ExperimentTrigger(states=("failed",)), filters=Filters(users=("bob",), labels=("nightly",)))
    world.fold(submitted(labels=("x",)))
    world.happens(FAILED)
    assert why_not(world.notices, "hook", FAILED) == (
        "The user of experiment 3 is ada, and the filter lets through bob.",
        "Experiment 3 lacks nightly of the filter's labels (it has x).",
    )
    assert why_not(world.notices, "other", FAILED) == ("Webhook other did not exist when this event was recorded.",)
