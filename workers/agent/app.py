"""The agent's composition root: runs, the server for workers, publishing to the bus, heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.metadata
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from tenuto.kernel import bus as bus_module
from tenuto.kernel.account import PASSING
from tenuto.kernel.backoff import Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.private_files import kept_bit, private
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.storage.definitions import DEFINITIONS
from tenuto.kernel.storage.stores import stores_of
from tenuto.kernel.tasks import run_together, stop_task
from tenuto.schemas import subjects
from tenuto.schemas.agent_limits import WORD_CHARACTERS_MAX
from tenuto.schemas.assignments import Assignments, AssignReply, Heartbeat, HeartbeatReply
from tenuto.schemas.events.agent import IMAGE_CHARACTERS_MAX, IMAGES, Leaving, Slot
from tenuto.schemas.text import visible
from tenuto.workers.agent.archives import Archives, SentArchives, SharedArchives
from tenuto.workers.agent.change_signal import obey_cancellation
from tenuto.workers.agent.checked_settings import AgentError, check_numbers, check_offer, host_of, labels_of, required
from tenuto.workers.agent.contexts import Contexts
from tenuto.workers.agent.database import Database, Disk, check_database, open_database
from tenuto.workers.agent.departure import BadEnd, Departure, say_gone
from tenuto.workers.agent.directory_watch import DATABASE, LOCK, DirectoryWatch, database_problem
from tenuto.workers.agent.end_notices import EndNotices
from tenuto.workers.agent.gangs import NoInterface, find_interface
from tenuto.workers.agent.manager import Manager
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.publishing import LanePublisher
from tenuto.workers.agent.report_tokens import TokenStore
from tenuto.workers.agent.rpc import WorkerDoor, WorkerServer
from tenuto.workers.agent.runs import Runs
from tenuto.workers.agent.runtimes.choose import make_runtime
from tenuto.workers.agent.runtimes.runtime import RuntimeUnavailable
from tenuto.workers.agent.spare_heartbeat import SpareHeartbeat
from tenuto.workers.agent.spool import Spool

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS_MAX = 8.0
"""Time that workers get to save when the agent is told to stop; the supervisor of the agent waits a little longer than this."""
FLUSH_SECONDS_MAX = 2.0
"""Longest wait, when stopping, for the last reports to be committed. Others stay in the spool for the next start."""


class AgentApp:
    """Lifecycle: `open`, `run` until cancelled, then `stop` (ends the workers) or not (they go on), and `close`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        slots: tuple[Slot, ...] | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        """`command`: run instead of our own harness; then workers never start warm. Raises AgentError if a setting is missing,
        and NoSlots. `on_refused` is called when the bus refuses the agent's user."""
        self._directory = Path(required(settings.agent_directory, "TENUTO_AGENT_DIRECTORY")).absolute()
        self._shared = Path(settings.shared_directory).absolute() if settings.shared_directory else None
        self._stores = stores_of(str(self._shared or ""), settings.stores_file)
        self._told = asyncio.Event()
        """Set by the first assignments: the stores and the cluster, which come with them, are known."""
        self._settings, self._clock, self._on_refused = settings, clock, on_refused
        check_numbers(settings)
        try:
            address, interface = find_interface(settings.network_interface, host_of(settings.nats_url))
        except NoInterface as error:
            raise AgentError(str(error)) from error
        self._node = AgentNode(
            settings.agent_id or os.uname().nodename, self._directory, address, interface, has_shared=self._shared is not None
        )
        try:
            self.runtime = make_runtime(settings, self._node, self._shared, environment=environment, command=command, slots=slots)
        except RuntimeUnavailable as error:
            raise AgentError(str(error)) from error
        try:
            self.departure = Departure(settings, clock)
            self._end_notices = EndNotices(settings, self.departure, clock) if settings.end_notice else None
        except (BadEnd, SettingsError) as error:
            raise AgentError(str(error)) from error
        self._labels = labels_of(settings.agent_labels)
        self._version = importlib.metadata.version("tenuto")
        check_offer(settings.pool, self.runtime.slots, self._labels)
        self._spare_heart = SpareHeartbeat(settings, self._node.agent_id)
        self._seldom = Seldom(logger)
        self._lock: IO[str] | None = None
        self._disk = Disk()
        self._connection: Database | None = None
        self._opened = False
        """True: the manager exists, because the database was found intact."""
        self._server: WorkerServer | None = None
        self._bus: Client | None = None
        self._taking: asyncio.Task[None] | None = None
        """Task that writes down the assignments of the last heartbeat's answer."""

    async def open(self) -> None:
        """Takes the directory, finds earlier workers again, and opens the server for workers. Needs no bus. Raises AgentError."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = _open_lock(self._directory / LOCK)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._directory.chmod((PASSING if self.runtime.separate_account else 0o700) | kept_bit(self._directory))
        except BlockingIOError:
            if self._lock is not None:
                self._lock.close()
            raise AgentError(
                f"Another agent uses {self._directory}; stop it, or set TENUTO_AGENT_DIRECTORY to another directory."
            ) from None
        except OSError as error:
            raise AgentError(f"{self._directory} cannot be used: {error}.") from error
        try:
            await self.runtime.open()
        except RuntimeUnavailable as error:
            raise AgentError(str(error)) from error
        try:
            self._connection = await self._disk(open_database, self._directory / DATABASE)
            self._spool = await self._disk(Spool, self._connection, self._new_spool_id())
            await self._disk(check_database, self._connection)
        except sqlite3.Error as error:
            raise AgentError(database_problem(error, self._directory / DATABASE) or f"{self._directory}: {error}.") from error
        self._home = DirectoryWatch(self._directory)
        self._disk.failed = self._home.failed
        tokens = await self._disk(TokenStore, self._connection)
        self.manager = Manager(
            self._node,
            self.runtime,
            Runs(self._connection, self._spool),
            self._spool,
            self._disk,
            Contexts(self._archives(tokens), self._directory / "contexts", for_others=self.runtime.separate_account),
            self._clock,
            grace_seconds=self._settings.preempt_grace_seconds_max,
            tokens=tokens,
        )
        self._opened = True
        await self.manager.open()
        await self.runtime.warm_up()
        door = WorkerDoor(self.manager, self._spool, self._disk, self._stores, self._told)
        self._server = WorkerServer(door, self.runtime.endpoint)
        await self._server.start()

    def _archives(self, tokens: TokenStore) -> Archives:
        if self._shared is not None:
            return SharedArchives(self._shared / "contexts")
        own, bytes_max = self._directory / "contexts", self._settings.context_bytes_max
        return SentArchives(own, self._node.agent_id, lambda: self._bus, tokens.of, bytes_max)

    async def run(self) -> None:
        """Runs until cancelled. The bus may be unreachable: workers go on, and their reports wait on disk."""
        if self._end_notices is None:
            await self._serve()
        else:
            await run_together(serving=self._serve(), end_notices=self._end_notices.run())

    async def _serve(self) -> None:
        self._bus = await bus_module.connect(self._settings, f"agent {self._node.agent_id}", self._on_refused)
        bus = self._bus
        await bus.subscribe(subjects.assign(self._node.agent_id), cb=self._on_assign)
        lanes = {
            lane: LanePublisher(
                lane, self._node.agent_id, bus, self._spool, self._disk, self.manager.spooled, self.manager.committed,
                self._new_spool_id, token_of=self.manager.tokens.of,
            )
            for lane in subjects.LANES
        }  # fmt: skip
        publishing = {lane: self._publish(publisher) for lane, publisher in lanes.items()}
        await run_together(**publishing, heartbeats=self._heartbeats(bus), spare_heart=self._spare_heart.run())

    async def lost(self) -> str:
        """Returns when the directory or the database is gone or damaged: one sentence with the reason and what to do."""
        return await self._home.lost()

    async def departed(self) -> None:
        """Returns when the agent's time is over (see `Departure`)."""
        await self.departure.over(lambda: self.manager.allocations)

    async def say_gone(self) -> None:
        """Tells the launcher that the agent ends, so that it need not wait until the agent's lease expires. Repeats this until
        the launcher has recorded it, for some seconds at most. `run` may have ended."""
        if self._bus is not None:
            await say_gone(self._bus, self._heartbeat(), self._settings.heartbeat_seconds)

    async def leave(self) -> None:
        """Ends all workers after `lost`. Whatever can still be written and reported is."""
        if self._home.writable:
            await self.stop()
        await self.manager.abandon()

    async def _publish(self, publisher: LanePublisher) -> None:
        await self.manager.tokens.complete.wait()
        await publisher.run()

    async def stop(self) -> None:
        """Ends all workers, each with a checkpoint if it can, and waits a little for the last reports to be committed.
        `run` must still be running for that."""
        try:
            await self.manager.stop(STOP_GRACE_SECONDS_MAX)
        except (OSError, sqlite3.Error) as error:  # a full disk
            logger.warning("the workers cannot be ended in order, so they are killed: %s", error)
            await self.manager.abandon()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                while self.manager.allocations:
                    await self.manager.committed.next().wait()

    async def close(self) -> None:
        """Closes the server for workers, the bus and the database, and releases the directory. Workers that were not stopped go
        on."""
        connection, self._connection = self._connection, None
        if self._opened:
            await self.manager.close()
        if self._server is not None:
            await self._server.stop()
        await self.runtime.close()
        if self._bus is not None:
            await bus_module.close(self._bus)
        if connection is not None:
            await self._disk(connection.close)
        self._disk.close()
        if self._lock is not None:
            self._lock.close()

    def _new_spool_id(self) -> str:
        return str(self._clock.new_id())

    async def _heartbeats(self, bus: Client) -> None:
        """Sends heartbeats. Writing down assignments does not delay them: a slow disk is no reason to be taken for lost."""
        try:
            await self._beat(bus)
        finally:
            await stop_task(self._taking)

    async def _beat(self, bus: Client) -> None:
        while True:
            due = self._clock.monotonic() + self._settings.heartbeat_seconds
            heartbeat = self._heartbeat()
            self._spare_heart.note(heartbeat)
            try:
                reply = await bus.request(
                    subjects.heartbeat(self._node.agent_id), heartbeat.to_json(), timeout=self._settings.heartbeat_seconds
                )
                answer = HeartbeatReply.from_json(reply.data)
            except (NatsError, OSError) as error:
                self._seldom.warn(f"no answer to a heartbeat: {str(error) or type(error).__name__}")
            except ValidationError as error:
                logger.error("the launcher's answer cannot be read; it may be of another version: %s", error)
            else:
                if answer.error:
                    self._seldom.warn(f"the launcher refuses this agent: {answer.error}")
                else:
                    self._seldom.over()
                if answer.assignments is not None and (self._taking is None or self._taking.done()):
                    if self._taking is not None:
                        self._taking.result()  # raises unexpected errors
                    taking = self._take(answer.assignments, heartbeat.leaving)
                    self._taking = asyncio.create_task(taking, name="take-assignments")
            obey_cancellation()
            await self.departure.pause(due - self._clock.monotonic(), heartbeat.leaving)

    async def _take(self, assignments: Assignments, leaving: Leaving) -> None:
        try:
            await self._assign(assignments)
            self.departure.heard(leaving)
        except (sqlite3.Error, OSError) as error:  # such as a full disk: the next heartbeat brings them again
            self._seldom.warn(f"an assignment could not be taken: {error}")

    async def _assign(self, assignments: Assignments) -> str:
        if assignments.stores:
            try:
                self._stores.given = {**self._stores.given, **DEFINITIONS.validate_json(assignments.stores)}
            except ValidationError:
                self._seldom.warn("what the launcher tells of stores cannot be read; it may be of another version")
        if assignments.cluster:
            refused = await self.manager.join(assignments.cluster, reports_wait=bool(self._spool.backlog()))
            if refused:
                raise AgentError(refused)
        self._told.set()
        return await self.manager.assign(assignments)

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            agent_id=self._node.agent_id,
            spool_id=self._spool.id,
            pool=self._settings.pool,
            host=visible(os.uname().nodename)[:WORD_CHARACTERS_MAX],
            version=self._version,
            slots=self.runtime.slots,
            labels=self._labels,
            auxiliary_trials_max=max(0, self._settings.auxiliary_trials_max),
            runtimes=tuple(sorted({*self.runtime.names, *([IMAGES] if self.runtime.runs_images else [])})),
            image=self._settings.agent_image[:IMAGE_CHARACTERS_MAX],
            unlimited=self.runtime.unlimited,
            allocations=self.manager.allocations,
            leaving=self.departure.leaving,
            leaves_at_us=self.departure.leaves_at_us,
            notice=self.departure.notice,
            launcher_sequence=self._spool.last("launcher"),
            backlog=self._spool.backlog(),
        )

    async def _on_assign(self, message: Msg) -> None:
        try:
            refusal = await self._assign(Assignments.from_json(message.data))
        except (ValidationError, AgentError, sqlite3.Error, OSError) as error:
            logger.error("an assignment could not be taken: %s", error)
            refusal = f"{type(error).__name__}: {error}"
        with contextlib.suppress(NatsError, OSError):
            await message.respond(AssignReply(accepted=not refusal, reason=refusal).to_json())


def _open_lock(path: Path) -> IO[str]:
    return open(path, "a", opener=private)
