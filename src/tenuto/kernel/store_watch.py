"""Watch over JetStream's stores: it tries whether messages are stored, and makes a stream anew whose store is broken.

A stream that met one failed write (disk full or read-only for a moment, its directory removed) never acknowledges anything again,
though its server answers every question about it. Both streams are only transport: the log is in PostgreSQL, and reports stay in
their agents' spools until they are committed. So a stream that does not store is deleted and made again. A store that is only
slow is left alone: its stream's last sequence still advances.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import monotonic

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError
from nats.js.errors import Error as JetStreamError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.bus import ensure_streams
from tenuto.kernel.reactions import wait_seconds
from tenuto.kernel.settings import Settings
from tenuto.schemas import subjects
from tenuto.schemas.bus import BusState

logger = logging.getLogger(__name__)

PROBE_SECONDS_BETWEEN = 2.0
"""Pause between trial messages to the ingress stream: a store that takes nothing is noticed after this time."""
PROBE_SECONDS_MAX = 2.0
"""Longest wait for the acknowledgement of a trial message; a healthy server needs milliseconds, a busy disk some hundred."""
ASK_SECONDS_MAX = 2.0
REMAKE_SECONDS = 4.0
"""Time without a stored message, while the server answers, after which a stream is made anew: longer than any pause of a
healthy disk, and a mistake costs only that messages are sent again. Doubles each time that it did not help, up to
REMAKE_SECONDS_MAX."""
REMAKE_SECONDS_MAX = 300.0
FULL = 10077
"""JetStream's error code for a stream at its maximum of bytes. It does store; its readers are behind."""
FAILED = (JetStreamError, nats.errors.Error, TimeoutError, OSError)


class StoreWatch:
    def __init__(self, bus: Client, settings: Settings) -> None:
        self._bus, self._settings = bus, settings
        self._js = bus.jetstream(timeout=ASK_SECONDS_MAX)
        self._seldom = Seldom(logger)
        self._left = True
        """True: trial messages may still be in the ingress stream, such as those of an earlier process."""
        self._since: dict[str, float] = {}
        """Time of the first failure of each stream that does not store."""
        self._sequences: dict[str, int] = {}
        """Last sequence of each such stream at the previous failure."""
        self._remakes: dict[str, int] = {}
        """Number of times that each such stream was made anew without success."""
        self._problems: dict[str, str] = {}

    @property
    def state(self) -> BusState:
        problems = [self._problems[stream] for stream in sorted(self._problems)]
        if not self._bus.is_connected:
            problems = [f"NATS at {self._settings.nats_url} cannot be reached: training goes on, and what it reports waits."]
        return BusState(ok=not problems, message=" ".join(problems))

    async def run(self) -> None:
        """Runs until cancelled: tries the ingress stream, and answers questions about the state of the bus."""
        answering = await self._bus.subscribe(subjects.BUS_STATE, cb=self._answer)
        try:
            while True:
                if self._bus.is_connected:
                    await self._probe()
                await asyncio.sleep(PROBE_SECONDS_BETWEEN)
        finally:
            with contextlib.suppress(nats.errors.Error):
                await answering.unsubscribe()

    def works(self, stream: str) -> None:
        """A message was stored in the stream."""
        for known in (self._since, self._sequences, self._remakes):
            known.pop(stream, None)
        if self._problems.pop(stream, None) is not None and not self._problems:
            self._seldom.over(f"the stream {stream} stores messages again")

    async def failed(self, stream: str, error: BaseException) -> None:
        """A message was not stored in the stream, or a stored one cannot be read."""
        if isinstance(error, NoStreamResponseError | NotFoundError) or not await self._answers():
            self._since.pop(stream, None)  # a server that comes back gets the full time again
            return  # a missing stream is made anew by its user; an unreachable server is reported elsewhere
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if await self._moved(stream):
            for known in (self._since, self._remakes):
                known.pop(stream, None)
            self._problems[stream] = (
                f"NATS stores what its stream {stream} is sent, but slowly ({reason}): look at how busy its machine and its disk "
                "are. Nothing is lost."
            )
            self._seldom.warn(self._problems[stream])
            return
        self._problems[stream] = (
            f"NATS answers, but its stream {stream} does not store messages ({reason}): look at its log, and whether its disk is "
            "full, read-only or gone. The stream is made anew as soon as that is possible; nothing is lost."
        )
        self._seldom.warn(self._problems[stream])
        patience = wait_seconds(self._remakes.get(stream, 0) + 1, REMAKE_SECONDS, REMAKE_SECONDS_MAX)
        if monotonic() - self._since.setdefault(stream, monotonic()) >= patience:
            self._remakes[stream] = self._remakes.get(stream, 0) + 1
            await self._remake(stream)

    async def _moved(self, stream: str) -> bool:
        """True if the stream has stored anything since the previous failure."""
        try:
            last: int = (await self._js.stream_info(stream)).state.last_seq
        except FAILED:
            return False
        before = self._sequences.get(stream)
        self._sequences[stream] = last
        return before is not None and last > before

    async def _answers(self) -> bool:
        """True if JetStream answers at all; an error is an answer."""
        if not self._bus.is_connected:
            return False
        try:
            await self._js.account_info()
        except APIError:
            return True
        except FAILED:
            return False
        return True

    async def _remake(self, stream: str) -> None:
        for known in (self._since, self._sequences):  # the new stream starts with a new sequence, and gets a longer time
            known.pop(stream, None)
        try:
            with contextlib.suppress(NotFoundError):
                await self._js.delete_stream(stream)
            # The relay makes the log's stream again: only it knows the first position.
            await ensure_streams(self._js, self._settings)
        except FAILED as error:
            reason = str(error) or type(error).__name__
            self._seldom.warn(f"the stream {stream} cannot be made anew, and NATS has to be restarted or given a disk: {reason}")
            return
        logger.warning("the stream %s, which stored nothing, was deleted to be made anew", stream)

    async def _probe(self) -> None:
        """Sends a message that has no reader, and removes it again."""
        try:
            ack = await self._js.publish(subjects.INGRESS_PROBE, b"", timeout=PROBE_SECONDS_MAX)
        except APIError as error:
            if error.err_code == FULL:
                self.works(subjects.INGRESS_STREAM)
            else:
                await self.failed(subjects.INGRESS_STREAM, error)
        except NoStreamResponseError:  # the stream was never made, or was deleted
            try:
                await ensure_streams(self._js, self._settings)
            except FAILED as error:
                await self.failed(subjects.INGRESS_STREAM, error)
        except FAILED as error:
            await self.failed(subjects.INGRESS_STREAM, error)
        else:
            self.works(subjects.INGRESS_STREAM)
            await self._take_out(ack.seq)

    async def _take_out(self, sequence: int) -> None:
        """Removes the trial message, and earlier ones that are still there. This may fail: the message was stored all the
        same."""
        left, self._left = self._left, True
        with contextlib.suppress(*FAILED):
            if left:
                await self._js.purge_stream(subjects.INGRESS_STREAM, subject=subjects.INGRESS_PROBE)
            else:
                with contextlib.suppress(NotFoundError):
                    await self._js.delete_msg(subjects.INGRESS_STREAM, sequence)
            self._left = False

    async def _answer(self, message: Msg) -> None:
        with contextlib.suppress(nats.errors.Error):
            await message.respond(self.state.to_json())
