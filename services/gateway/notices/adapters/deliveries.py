"""Sends recorded notices: after their commit, at least once, in order for each webhook.

Waiting notices are in the gateway's state, folded from the log, so a restart goes on where the log ends. Each webhook has a
task of its own: an unreachable target delays no other. The outcome of each message is recorded, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.eventlog import LogUnavailable, VersionConflict
from tenuto.kernel.loop import LoopStopped, ServiceLoop
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.notices.adapters.messages import Message
from tenuto.services.gateway.notices.adapters.targets.target import Delivered, NotEver, NotNow, Target
from tenuto.services.gateway.notices.commands import NoteDelivery, TellWaits
from tenuto.services.gateway.notices.policies.delivering import RECORDED_WAIT_SECONDS, Batch, first_batch, gives_up, wait_seconds
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


@dataclass
class Sender:
    """Sender of one webhook, as long as the webhook exists."""

    created_us: int
    task: asyncio.Task[None] | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send."""
    hurried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a user asks for another attempt now."""
    attempts: int = 0
    """Attempts so far to send the present message."""
    answer: str = ""
    """Error of the last attempt; empty if it did not fail."""
    next_us: int = 0
    """Time of the next attempt; 0 if none is scheduled."""
    sealed_id: str = ""
    target: Target | None = None


class Deliveries:
    def __init__(
        self, loop: ServiceLoop[NoticesState], clock: Clock, open_target: Open, compose: Compose, fraction: Callable[[], float]
    ) -> None:
        """`fraction`: draws from 0 to 1, for the jitter of waits."""
        self._loop, self._clock, self._open, self._compose, self._fraction = loop, clock, open_target, compose, fraction
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
            now_us, begun = self._clock.now_us(), self._clock.monotonic()
            notices, hidden_of = self._notices, self._loop.state.hidden_from
            found = await asyncio.to_thread(lambda: next(waits(notices, now_us, hidden_of), None))  # noqa: B023 - awaited at once
            took = self._clock.monotonic() - begun
            if found is None:
                continue
            try:
                await self._loop.submit(TellWaits(id=self._clock.new_id(), time_us=now_us))
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
                sender = Sender(webhook.created_us)
                sender.task = asyncio.create_task(self._keep_serving(name, sender), name=f"webhook-{name}")
                self._senders[name] = sender

    async def _stop(self, name: str) -> None:
        sender = self._senders.pop(name)
        await stop_task(sender.task)
        if sender.target is not None:
            await sender.target.close()

    def _webhook(self, name: str, sender: Sender) -> Webhook | None:
        webhook = self._notices.webhooks.get(name)
        return webhook if webhook is not None and webhook.created_us == sender.created_us else None

    async def _keep_serving(self, name: str, sender: Sender) -> None:
        """Sends until the webhook is removed; an unexpected error does not stop later messages."""
        while self._webhook(name, sender) is not None:
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
        while (webhook := self._webhook(name, sender)) is not None:
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
            if webhook.group_seconds and (later := self._webhook(name, sender)) is not None:  # what came meanwhile, too
                batch = first_batch([later.waiting[number] for number in sorted(later.waiting)])
            if await self._deliver(name, sender, batch):
                line.pop()

    async def _sleep_until(self, time_us: int) -> None:
        while (left_us := time_us - self._clock.now_us()) > 0:  # noqa: ASYNC110 - the clock has nothing to wait on
            await asyncio.sleep(left_us / 1e6)

    async def _deliver(self, name: str, sender: Sender, batch: Batch) -> bool:
        """True once the message is delivered or given up, and that is recorded. False: it is neither, as the webhook was
        paused or removed."""
        notices, message = batch.notices, None
        sender.attempts = 0
        while (webhook := self._webhook(name, sender)) is not None and not webhook.paused:
            # The attempt below is the answer to all requests for one until now.
            sender.hurried.clear()
            try:
                if message is None:
                    message = await self._composed(webhook, notices)
                done = await self._attempt(webhook, sender, message)
            except NotEver as error:
                await self._note(webhook, sender, notices, "refused", error.answer)
                return True
            except NotNow as error:
                if not await self._wait(webhook, sender, notices, error):
                    return True
            else:
                await self._note(webhook, sender, notices, "delivered", done.answer, message.id, done.reference)
                return True
        return False

    async def _composed(self, webhook: Webhook, notices: Sequence[Notice]) -> Message:
        while True:
            try:
                return await self._compose(webhook, notices)
            except (LogUnavailable, *DATABASE_FAILED) as error:
                logger.warning("webhook %s waits for the database: %s", webhook.name, type(error).__name__)
                await asyncio.sleep(RECORD_SECONDS_BETWEEN)

    async def _attempt(self, webhook: Webhook, sender: Sender, message: Message) -> Delivered:
        """Raises NotNow and NotEver."""
        sender.attempts += 1
        try:
            if sender.target is None or sender.sealed_id != webhook.sealed_id:
                if sender.target is not None:
                    await sender.target.close()
                    sender.target = None
                sender.target, sender.sealed_id = await self._open(webhook), webhook.sealed_id
            return await sender.target.send(message)
        except (NotNow, NotEver):
            raise
        except (LogUnavailable, *DATABASE_FAILED):
            raise NotNow("the gateway's database is away") from None
        except Exception as error:
            # Its text may have an address with a secret in it, so it is not written down.
            what = f"failed with {type(error).__name__}, a defect in Tenuto or in the plug-in of the target"
            logger.error("webhook %s: an attempt %s", webhook.name, what)
            raise NotNow(f"the gateway {what}") from None

    async def _wait(self, webhook: Webhook, sender: Sender, notices: Sequence[Notice], error: NotNow) -> bool:
        """Waits for the next attempt. False: there is none, and that is recorded."""
        seconds = wait_seconds(sender.attempts, error.retry_after_seconds, self._fraction())
        now_us = self._clock.now_us()
        if gives_up(notices, now_us, seconds):
            await self._note(webhook, sender, notices, "too_late", error.answer)
            return False
        sender.answer, sender.next_us = error.answer, now_us + int(seconds * 1e6)
        logger.log(
            logging.INFO if sender.attempts < _QUIET else logging.WARNING,
            "webhook %s: attempt %d failed (%s), next in %.1f s", webhook.name, sender.attempts, error.answer, seconds,
        )  # fmt: skip
        if seconds >= RECORDED_WAIT_SECONDS:
            await self._note(webhook, sender, notices, "delayed", error.answer)
        # The target asked for this wait, so no user's request shortens it.
        if error.retry_after_seconds is not None:
            await asyncio.sleep(seconds)
            return True
        try:
            async with asyncio.timeout(seconds):
                await sender.hurried.wait()
        except TimeoutError:
            pass
        return True

    async def _note(
        self, webhook: Webhook, sender: Sender, notices: Sequence[Notice], outcome: str, answer: str, id: str = "", ref: str = ""
    ) -> None:
        """Records the outcome of a message, however long that takes: without a record it is sent again after a restart."""
        command = NoteDelivery(
            id=self._clock.new_id(),
            time_us=self._clock.now_us(),
            webhook=webhook.name,
            created_us=webhook.created_us,
            numbers=tuple(item.number for item in notices),
            outcome=outcome,  # type: ignore[arg-type]
            attempts=sender.attempts,
            answer=answer,
            message_id=id,
            reference=ref,
            resume_us=sender.next_us,
        )
        if outcome != "delayed":
            sender.answer, sender.next_us = "", 0
        while True:
            try:
                await self._loop.submit(command)
                return
            except LoopStopped:
                raise
            except (LogUnavailable, VersionConflict, *DATABASE_FAILED) as error:
                logger.warning("webhook %s: what became of a message waits to be recorded: %s", webhook.name, error)
                await asyncio.sleep(RECORD_SECONDS_BETWEEN)
            except Refused as error:
                logger.error("webhook %s: what became of a message cannot be recorded: %s", webhook.name, error)
                return


_QUIET = 3
"""Number of failures in a row from which each one is logged as a warning."""
