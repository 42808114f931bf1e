"""Explains why a webhook has, or has not, a notice about an event, by its state at that event, read from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.kernel.eventlog import EventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.notice import WebhookChanged, WebhookCreated, WebhookRemoved, WebhookTriggered
from tenuto.schemas.events.request import ExperimentDescribed, ExperimentSubmitted
from tenuto.schemas.events.search import ExperimentCanceled, ExperimentCompleted, ExperimentFailed, TrialStopped
from tenuto.schemas.events.trial import ValidationReported
from tenuto.schemas.sentences import sentence_of
from tenuto.services.gateway.notices.evolve import fold
from tenuto.services.gateway.notices.policies.missing_notices import why_not
from tenuto.services.gateway.notices.policies.triggers import experiment_id_of
from tenuto.services.gateway.notices.state import Notices

PAGE_EVENTS = 500
PAGES_MAX = 40
"""Most pages of one read, 20,000 events of one kind: the validations of the longest trials."""
OF_WEBHOOK = (WebhookCreated.TYPE, WebhookChanged.TYPE, WebhookRemoved.TYPE)
OF_EXPERIMENT = (ExperimentSubmitted.TYPE, ExperimentDescribed.TYPE)
ENDS = (ExperimentCompleted.TYPE, ExperimentFailed.TYPE, ExperimentCanceled.TYPE, TrialStopped.TYPE)


@dataclass(frozen=True)
class Explanation:
    number: int | None
    """Number of the notice. None: there is none."""
    sentences: tuple[str, ...]


async def explain(log: EventLog, name: str, event: Event) -> Explanation:
    """Explanation why the webhook has, or has not, a notice about the event. Raises LogUnavailable."""
    cause = event.causation_id if event.stream.startswith("request/") else event.id
    for later in await _pages(log, [WebhookTriggered.TYPE], f"notice/{name}", after=event.position, pages=2):
        data = later.data
        if cause is not None and later.causation_id == cause and isinstance(data, WebhookTriggered):
            return Explanation(data.number, (sentence_of(later),))
    notices = await asyncio.to_thread(_folded, await _history(log, name, event))  # thousands take a second
    return Explanation(None, why_not(notices, name, event.data))


def _folded(events: Sequence[Event]) -> Notices:
    notices = Notices()
    for event in events:
        notices = fold(notices, event.data, event.time_us)
    return notices


async def _history(log: EventLog, name: str, event: Event) -> list[Event]:
    """Events that the webhook's rules fold, up to this one, in the order of the log."""
    known = await _pages(log, OF_WEBHOOK, "request/cluster", upto=event.position)
    found = [item for item in known if getattr(item.data, "name", None) == name]
    experiment_id = experiment_id_of(event.data)
    if experiment_id is not None:
        found += await _pages(log, OF_EXPERIMENT, f"request/{experiment_id}", upto=event.position)
        found += await _pages(log, ENDS, f"search/{experiment_id}", upto=event.position)
    trial_id = getattr(event.data, "trial_id", None)
    if trial_id is not None:
        found += await _pages(log, [ValidationReported.TYPE], f"trial/{trial_id}", upto=event.position)
    return sorted(found, key=lambda item: item.position)


async def _pages(
    log: EventLog, types: Sequence[str], stream: str, *, after: int = 0, upto: int | None = None, pages: int = PAGES_MAX
) -> list[Event]:
    found: list[Event] = []
    for _ in range(pages):
        page = await log.read(after, PAGE_EVENTS, types=types, stream=stream, upto=upto)
        found += page
        if not page.more:
            break
        after = page[-1].position
    return found
