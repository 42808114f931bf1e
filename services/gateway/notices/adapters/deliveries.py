"""Sends recorded notices: after their commit, at least once, in order for each webhook.

Waiting notices are in the gateway's state, folded from the log, so a restart goes on where the log ends. Each webhook has a
task of its own: an unreachable target delays no other. The outcome of each message is recorded, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.loop import LoopStopped, ServiceLoop
from tenuto.kernel.reactions import Failure, Reaction, ReceiverProgress
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.notices.adapters.messages import Message
from tenuto.services.gateway.notices.adapters.targets.target import Delivered, NotEver, NotNow, Target
from tenuto.services.gateway.notices.commands import NoteDelivery, Outcome, TellWaits
from tenuto.services.gateway.notices.policies import delivering
from tenuto.services.gateway.notices.policies.delivering import RECORDED_WAIT_SECONDS, NoticeBatch, first_batch
from tenuto.services.gateway.notices.policies.waiting_trials import waits
from tenuto.services.gateway.notices.state import Notice, Notices, NoticesState, Webhook

logger = logging.getLogger(__name__)

RECORD_SECONDS_BETWEEN = 1.0
"""Wait between attempts to record the outcome of a message, while the database is unreachable."""

WAIT_LOOK_SECONDS = 1.0
"""Shortest time between looks at trials that wait: limits are at least a second."""
WAIT_LOOK_SHARE = 0.05
"""Largest share of time that looks take: with many webhooks and trials there are fewer looks."""

Open = Callable[[Webhook], Awaitable[Target]]
"""Opens a webhook's target. Raises NotNow and NotEver."""
Compose = Callable[[Webhook, Sequence[Notice]], Awaitable[Message]]
"""Puts notices into words. Raises errors of the database."""


class Sender:
    """Sender of one webhook, as long as the webhook exists."""

    def __init__(self, created_us: int, reaction: Reaction) -> None:
        self.created_us, self.reaction = created_us, reaction
        self.task: asyncio.Task[None] | None = None
        self.woken = asyncio.Event()
        """Set when there may be something to send."""
        self.hurried = asyncio.Event()
        """Set when a user asks for another attempt now."""
        self.target: Target | None = None
        self._sealed_id = ""

    @property
    def progress(self) -> ReceiverProgress:
        """Attempts at the present message."""
        return self.reaction.progress

    async def opened(self, webhook: Webhook, open_target: Open) -> Target:
        """The target, opened again if its secrets have changed. Raises NotNow, NotEver and errors of the database."""
        if self.target is None or self._sealed_id != webhook.sealed_id:
            await self.close()
            self.target, self._sealed_id = await open_target(webhook), webhook.sealed_id
        return self.target

    async def close(self) -> None:
        target, self.target = self.target, None
        if target is not None:
            await target.close()


class Deliveries:
    def __init__(
        self, loop: ServiceLoop[NoticesState], clock: Clock, open_target: Open, compose: Compose, fraction: Callable[[], float]
    ) -> None:
        """`fraction`: draws from 0 to 1, for the jitter of waits."""
        self.clock, self.open, self.compose = clock, open_target, compose
        self._loop, self._fraction = loop, fraction
        self._notices = Notices()
        self._senders: dict[str, Sender] = {}
        self._changed = asyncio.Event()
        loop.on_folded(self._folded)

    def sender(self, name: str) -> Sender | None:
        """Sender of a webhook, with its progress; None if it has none."""
        return self._senders.get(name)

    def hurry(self, name: str) -> None:
        """Makes an attempt now, if anything waits and the target did not ask for a delay."""
        sender = self._senders.get(name)
        if sender is not None:
            sender.hurried.set()

    async def record(self, command: NoteDelivery) -> None:
        """Records an outcome; through any loss of the database. Raises LoopStopped."""
        while True:
            try:
                await self._loop.submit(command)
                return
            except LoopStopped:
                raise
            except (LogUnavailable, VersionConflict, *DATABASE_FAILED) as error:
                logger.warning("webhook %s: what became of a message waits to be recorded: %s", command.webhook, error)
                await asyncio.sleep(RECORD_SECONDS_BETWEEN)
            except Refused as error:
                logger.error("webhook %s: what became of a message cannot be recorded: %s", command.webhook, error)
                return

    async def run(self) -> None:
        """Sends until cancelled."""
        await self._loop.wait_ready()
        looking = asyncio.create_task(self._look_at_waits(), name="webhook-waits")
        try:
            while True:
                # Cleared before the look, so that a change during `_match` is seen in the next round.
                self._changed.clear()
                await self._match()
                await self._changed.wait()
        finally:
            await stop_task(looking)
            for name in list(self._senders):
                await self._stop(name)

    async def _look_at_waits(self) -> None:
        """Looks for trials that have waited too long, as no event reports that; the time is recorded with the notices."""
        took = 0.0
        while True:
            await asyncio.sleep(max(WAIT_LOOK_SECONDS, took / WAIT_LOOK_SHARE))
            now_us, begun = self.clock.now_us(), self.clock.monotonic()
            notices, hidden_of = self._notices, self._loop.state.hidden_from
            found = await asyncio.to_thread(lambda: next(waits(notices, now_us, hidden_of), None))  # noqa: B023 - awaited at once
            took = self.clock.monotonic() - begun
            if found is None:
                continue
            try:
                await self._loop.submit(TellWaits(id=self.clock.new_id(), time_us=now_us))
            except LoopStopped:
                return
            except (LogUnavailable, VersionConflict, *DATABASE_FAILED) as error:
                logger.warning("webhooks: trials that wait are told of later: %s", type(error).__name__)

    def _folded(self, state: NoticesState, _: Sequence[Event]) -> None:
        # The state is frozen, so the same object means that no webhook has changed.
        if state.notices.webhooks is self._notices.webhooks:
            self._notices = state.notices
            return
        before, self._notices = self._notices, state.notices
        for name, webhook in state.notices.webhooks.items():  # in any order: each is woken for itself
            sender = self._senders.get(name)
            if sender is None or sender.created_us != webhook.created_us:
                self._changed.set()
            elif before.webhooks.get(name) is not webhook and webhook.waiting:
                sender.woken.set()
        if len(self._senders) != len(state.notices.webhooks):
            self._changed.set()

    async def _match(self) -> None:
        """Starts and stops senders, so that there is one for each webhook."""
        for name in list(self._senders):
            webhook = self._notices.webhooks.get(name)
            if webhook is None or webhook.created_us != self._senders[name].created_us:
                await self._stop(name)
        for name, webhook in self._notices.webhooks.items():
            if name not in self._senders:
                sender = Sender(webhook.created_us, Reaction(delivering.RETRIES, self.clock.now_us, self._fraction))
                sender.task = asyncio.create_task(self._keep_serving(name, sender), name=f"webhook-{name}")
                self._senders[name] = sender

    async def _stop(self, name: str) -> None:
        sender = self._senders.pop(name)
        await stop_task(sender.task)
        await sender.close()

    def webhook(self, name: str, sender: Sender) -> Webhook | None:
        """The sender's webhook; None if it was removed."""
        webhook = self._notices.webhooks.get(name)
        return webhook if webhook is not None and webhook.created_us == sender.created_us else None

    async def _keep_serving(self, name: str, sender: Sender) -> None:
        """Sends until the webhook is removed; an unexpected error does not stop later messages."""
        while self.webhook(name, sender) is not None:
            try:
                await self._serve(name, sender)
            except LoopStopped:
                return
            except Exception:
                logger.exception("the sender of webhook %s failed, and begins anew", name)
                await asyncio.sleep(RECORD_SECONDS_BETWEEN)

    async def _serve(self, name: str, sender: Sender) -> None:
        line: list[Notice] = []
        """Waiting notices, the last first; one look at all of them is enough for many messages."""
        while (webhook := self.webhook(name, sender)) is not None:
            # Cleared before the look, so that a notice which comes during it wakes the wait below.
            sender.woken.clear()
            if not line or webhook.group_seconds:  # of which several go into one message
                line = [webhook.waiting[number] for number in sorted(webhook.waiting, reverse=True)]
            if not line or webhook.paused:
                await sender.woken.wait()
                line.clear()
                continue
            batch = first_batch(line[-1:])
            await self._sleep_until(max(batch.not_before_us, webhook.resume_us))
            if webhook.group_seconds and (later := self.webhook(name, sender)) is not None:  # what came meanwhile, too
                batch = first_batch([later.waiting[number] for number in sorted(later.waiting)])
            if await self._deliver(name, sender, batch):
                line.pop()

    async def _sleep_until(self, time_us: int) -> None:
        while (left_us := time_us - self.clock.now_us()) > 0:  # noqa: ASYNC110 - the clock has nothing to wait on
            await asyncio.sleep(left_us / 1e6)

    async def _deliver(self, name: str, sender: Sender, batch: NoticeBatch) -> bool:
        """True once the message is delivered or given up, and that is recorded. False: it is neither, as the webhook was
        paused or removed."""
        notices = batch.notices
        delivery = _NoticeDelivery(self, name, sender, notices)
        if not await sender.reaction.settle(delivery, notices[-1].number, min(item.queued_us for item in notices)):
            return False
        await delivery.note_delivered()
        return True


class _NoticeDelivery:
    """Delivery of one message: the target of the webhook receives its notices."""

    def __init__(self, deliveries: Deliveries, name: str, sender: Sender, notices: Sequence[Notice]) -> None:
        self._deliveries, self._name, self._sender, self._notices = deliveries, name, sender, notices
        self._message: Message | None = None
        self._attempts = 0
        self._done: Delivered | None = None

    def _webhook(self) -> Webhook | None:
        return self._deliveries.webhook(self._name, self._sender)

    def stopped(self) -> bool:
        webhook = self._webhook()
        return webhook is None or webhook.paused

    async def attempt(self) -> None:
        sender, webhook = self._sender, self._webhook()
        assert webhook is not None, "asked just before"
        self._attempts = sender.progress.attempts + 1
        # This attempt is the answer to all requests for one until now.
        sender.hurried.clear()
        try:
            if self._message is None:
                self._message = await self._deliveries.compose(webhook, self._notices)
            target = await sender.opened(webhook, self._deliveries.open)
        except DATABASE_FAILED as error:
            raise LogUnavailable(type(error).__name__) from None
        self._done = await target.send(self._message)

    def failure(self, error: Exception) -> Failure:
        if isinstance(error, NotEver):
            return Failure(error.answer, "final")
        if isinstance(error, NotNow):
            return Failure(error.answer, asked_seconds=error.retry_after_seconds)
        if isinstance(error, LoopStopped):
            raise error
        if isinstance(error, LogUnavailable):
            return Failure("the gateway's database is away", "outage")
        # Its text may have an address with a secret in it, so it is not written down.
        what = f"failed with {type(error).__name__}, a defect in Tenuto or in the plug-in of the target"
        logger.error("webhook %s: an attempt %s", self._name, what)
        return Failure(f"the gateway {what}")

    async def park(self, progress: ReceiverProgress, failure: Failure) -> None:
        await self._note("refused" if failure.kind == "final" else "too_late", progress.attempts, failure.reason)

    async def wait(self, progress: ReceiverProgress, failure: Failure) -> None:
        next_us = progress.next_us or 0
        seconds = (next_us - self._deliveries.clock.now_us()) / 1e6
        logger.log(
            logging.INFO if progress.attempts < _QUIET else logging.WARNING,
            "webhook %s: attempt %d failed (%s), next in %.1f s", self._name, progress.attempts, failure.reason, seconds,
        )  # fmt: skip
        if seconds >= RECORDED_WAIT_SECONDS:
            await self._note("delayed", progress.attempts, failure.reason, resume_us=next_us)
        # The target asked for this wait, so no user's request shortens it.
        if failure.asked_seconds is not None:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._sender.hurried.wait()

    async def note_delivered(self) -> None:
        """Records that the message was delivered, if it was."""
        if self._done is not None and self._message is not None:
            done, message_id = self._done, self._message.id
            await self._note("delivered", self._attempts, done.answer, message_id=message_id, reference=done.reference)

    async def _note(self, outcome: Outcome, attempts: int, answer: str, **more: Any) -> None:
        """Records the outcome, however long that takes: without a record the message is sent again after a restart."""
        clock = self._deliveries.clock
        command = NoteDelivery(
            id=clock.new_id(),
            time_us=clock.now_us(),
            webhook=self._name,
            created_us=self._sender.created_us,
            numbers=tuple(item.number for item in self._notices),
            outcome=outcome,
            attempts=attempts,
            answer=answer,
            **more,
        )
        await self._deliveries.record(command)


_QUIET = 3
"""Number of failures in a row from which each one is logged as a warning."""
