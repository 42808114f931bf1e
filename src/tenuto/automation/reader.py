"""The log for a FastStream application: each event in order, and at least once, whatever happens to the bus or to the program.

A subscriber of FastStream's own hears only what is published while it is connected, and a durable consumer of JetStream is lost
with the bus's store. This reader keeps the position of the last event that was handled, and asks for what is behind it: the
bus's stream, whose sequence is the log's position, and the REST door for what the bus does not have. An event is handled again
where the program ended before its position was kept: the position is what a handler is idempotent by.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tenuto.automation.events import Event
from tenuto.automation.sources import source_of
from tenuto.automation.window import Told, Window, page
from tenuto.client import AsyncClient
from tenuto.client.errors import Away, ClientError
from tenuto.client.target import Target
from tenuto.kernel.private_files import write_private
from tenuto.kernel.reactions import Failure, Reaction, ReceiverProgress, Retries
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Wait before an event is given again to a handler that failed; doubles up to PAUSE_SECONDS_MAX: services that a handler calls
may be unreachable for hours, and no event is passed over."""
PAUSE_SECONDS_MAX = 60.0
AWAY_SECONDS = 5.0
"""Wait between attempts to reach the cluster."""
BEHIND_SECONDS_MAX = 30.0
"""Most that the bus may be ahead of REST; a position that is still beyond the log then belongs to another log."""

Handler = Callable[[Event[Any]], Awaitable[object]]
H = TypeVar("H", bound=Handler)


class HandledEvent(NamedTuple):
    """The last event that was handled."""

    position: int
    event_id: str


class PositionStore(Protocol):
    """Store of a reader's position. Kept in the database that a handler writes to, in the same transaction, effects happen
    once."""

    async def load(self) -> HandledEvent | None:
        """Last position; None: nothing was handled yet."""

    async def save(self, place: HandledEvent) -> None:
        """Stores the position; returns when it would survive a crash."""


class FilePosition:
    def __init__(self, file: str | Path) -> None:
        """Position in a file: one for each reader, on a disk that outlives the program. It is made at the first event."""
        self.file = Path(file)

    async def load(self) -> HandledEvent | None:
        """Raises OSError, and ValueError for a file of something else."""
        try:
            told = json.loads(await asyncio.to_thread(self.file.read_text))
            return HandledEvent(int(told["position"]), str(told["event_id"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.file} holds no position of a reader: name another file.") from error

    async def save(self, place: HandledEvent) -> None:
        await asyncio.to_thread(write_private, self.file.absolute(), json.dumps(place._asdict()))


class Reader:
    def __init__(
        self, position: PositionStore, *, after: int = 0, target: Target | None = None, settings: Settings | None = None
    ) -> None:
        """Reader that begins behind position `after` if none is stored yet; 0: with the first event of the log. `target`: the
        cluster's REST door; None: as the command line finds it. `settings`: of the bus; None: TENUTO_NATS_URL, _USER and
        _PASSWORD, and without them events come over REST alone."""
        self._position, self._after, self._target, self._settings = position, after, target, settings
        self._handlers: list[tuple[frozenset[str], Handler]] = []
        self._task: asyncio.Task[None] | None = None

    def on(self, *types: str) -> Callable[[H], H]:
        """Decorator: the coroutine function gets events of these types (none: of all), one at a time, in order. If it raises, it
        is given the same event again after a pause, until it returns."""

        def registered(handler: H) -> H:
            self._handlers.append((frozenset(types), handler))
            return handler

        return registered

    def attach(self, app: Any) -> None:
        """Starts and stops the reader with `app`, a FastStream application. If the reader cannot go on (the token is revoked, the
        position is that of another log), the application ends with its error."""

        async def start() -> None:
            self._task = asyncio.create_task(self.run(), name="tenuto-reader")
            self._task.add_done_callback(lambda _: app.exit())

        async def stop() -> None:
            task, self._task = self._task, None
            if task is not None and task.done() and not task.cancelled():
                task.result()
            await stop_task(task)

        app.after_startup(start)
        app.on_shutdown(stop)

    async def run(self) -> None:
        """Runs until cancelled. Raises ClientError and ValueError if it cannot go on."""
        target = Target.find() if self._target is None else self._target
        async with AsyncClient(target, notice=logger.warning) as client:
            place = await self._position.load()
            if place is not None:
                await _check(client, place)
            window = Window(client, self._after if place is None else place.position)
            source = source_of(self._settings or Settings.from_environment(), client, logger.warning)
            reading = asyncio.create_task(source.run(window), name="tenuto-reader-source")
            handling = asyncio.create_task(self._handle_all(window), name="tenuto-reader-handlers")
            try:
                done, _ = await asyncio.wait({reading, handling}, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()
            finally:
                await stop_task(reading)
                await stop_task(handling)

    async def _handle_all(self, window: Window) -> None:
        more = window.waking()
        retries = Retries(PAUSE_SECONDS, PAUSE_SECONDS_MAX)
        reaction = Reaction(retries, lambda: time.time_ns() // 1000, progress=ReceiverProgress(window.end))
        while True:
            position = reaction.progress.position
            more.clear()
            try:
                found = await window.after(position)
            except Away as error:
                logger.warning("%s It is tried again.", error)
                await asyncio.sleep(AWAY_SECONDS)
                continue
            unsaved: Told | None = None
            for told in found.events:
                wanted = [handler for types, handler in self._handlers if not types or told["type"] in types]
                for handler in wanted:
                    await reaction.settle(_EventDelivery(handler, told), told["position"])
                unsaved = told
                if wanted:
                    await self._save(told)
                    unsaved = None
                reaction.progress = reaction.progress.passed(told["position"])
            if unsaved is not None:  # events without a handler are read again after a crash, rather than saved one by one
                await self._save(unsaved)
            reaction.progress = reaction.progress.passed(found.upto)
            if not found.events and reaction.progress.position >= window.end:
                await more.wait()

    async def _save(self, told: Told) -> None:
        await self._position.save(HandledEvent(told["position"], told["id"]))


class _EventDelivery:
    """Delivery of one event to a handler."""

    def __init__(self, handler: Handler, told: Told) -> None:
        self._handler, self._event = handler, Event.of(told)

    def stopped(self) -> bool:
        return False

    async def attempt(self) -> None:
        await self._handler(self._event)

    def failure(self, error: Exception) -> Failure:
        return Failure(f"{type(error).__name__}: {error}", "outage" if _is_outage(error) else "attempt")

    async def park(self, progress: ReceiverProgress, failure: Failure) -> None:
        raise AssertionError("the attempts have no limit")

    async def wait(self, progress: ReceiverProgress, failure: Failure) -> None:
        seconds = max(0.0, (progress.next_us or 0) / 1e6 - time.time())
        logger.warning(
            "%s failed at event %d (%s); it gets the event again in %.2g s",
            getattr(self._handler, "__name__", "the handler"),
            self._event.position,
            failure.reason,
            seconds,
        )
        await asyncio.sleep(seconds)


def _is_outage(error: Exception) -> bool:
    """True if the cluster or its bus could not be reached. A program that never imported the bus's package has no such error."""
    if isinstance(error, Away) or "nats.errors" not in sys.modules:
        return isinstance(error, Away)
    from tenuto.kernel.bus_errors import BUS_AWAY

    return isinstance(error, BUS_AWAY)


async def _check(client: AsyncClient, place: HandledEvent) -> None:
    """Checks that the place is in this log. Raises ValueError if it is in another one: going on would pass over events unseen."""
    other = f"The position {place.position} of this reader belongs to another log: begin anew, with another file."
    tried_seconds = 0.0
    while True:
        try:
            for told in await page(client, place.position - 1, place.position):
                if told["id"] != place.event_id:
                    raise ValueError(other)
            if (await client.get("/status"))["head"] >= place.position:
                return
        except Away as error:
            logger.warning("%s It is tried again.", error)
        else:
            tried_seconds += AWAY_SECONDS
            if tried_seconds > BEHIND_SECONDS_MAX:
                raise ValueError(other)
        await asyncio.sleep(AWAY_SECONDS)


__all__ = ["ClientError", "Event", "FilePosition", "HandledEvent", "PositionStore", "Reader"]
