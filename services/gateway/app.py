"""The gateway's composition root: the deciding loop, the projection of the views, live updates, and the REST door."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from nats.aio.client import Client

from tenuto.kernel.clock import Clock
from tenuto.kernel.database_errors import DATABASE_FAILED
from tenuto.kernel.effects import Effects
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import EventFeed
from tenuto.kernel.http_serving import bind, is_loopback, serve
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring import catalogue
from tenuto.kernel.monitoring.sampling import MonitoredState, Sample
from tenuto.kernel.pools import open_pool
from tenuto.kernel.projection import Projector
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import run_together
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.people import UserPasswordSet
from tenuto.schemas.events.request import ExperimentDeleted, TokenRevoked, UserRemoved
from tenuto.services.gateway import projections
from tenuto.services.gateway.cluster.adapters.node_tokens import NodeTokens
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.doors import DoorParts, Doors, make_doors
from tenuto.services.gateway.experiments.adapters.context_requests import ContextServer
from tenuto.services.gateway.experiments.adapters.contexts import clean
from tenuto.services.gateway.experiments.adapters.deleting import Deleter, Remover, check_grace
from tenuto.services.gateway.experiments.adapters.reached_limits import LimitKeeper
from tenuto.services.gateway.http.connections import DoorProtocol
from tenuto.services.gateway.http.origins import origins
from tenuto.services.gateway.http.plugin_doors import find_doors
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.log.adapters.gauges import parked_of
from tenuto.services.gateway.log.handling.tail import Tail
from tenuto.services.gateway.read_models.common import PROJECTION
from tenuto.services.gateway.rest import make_app
from tenuto.services.gateway.subjects import CORE, NOT_NEEDED, permissions_of

logger = logging.getLogger(__name__)

POOL_CONNECTIONS_MAX = 6
"""Most connections to the views: one for the projection, the others for requests."""
OPEN_DOOR = (
    "the REST door listens on %s without TLS: whoever reads the network reads tokens and join tokens. Set TENUTO_REST_CERT_FILE "
    "and TENUTO_REST_KEY_FILE, or let only a proxy with TLS reach it (docs/joining.md)."
)
QUERY_SECONDS_MAX = 20.0
"""A page takes milliseconds; a query that takes so long would only pile up."""


class GatewayService:
    def __init__(self, parts: DoorParts, doors: Doors, subjects: Sequence[Subject]) -> None:
        self.doors, self.port = doors, 0
        self._parts, self.loop = parts, parts.loop
        self._subjects = subjects
        self.permissions = permissions_of(self._subjects)
        bus, loop, clock = parts.bus, parts.loop, parts.clock
        self._contexts = None if bus is None else ContextServer(bus, parts.pool, doors.experiments.contexts)
        self._node_tokens = None if bus is None else self._tokens_of_nodes(bus)
        self._deleter = Deleter(loop, clock)
        self._limits = LimitKeeper(loop, clock, doors.experiments.views.stored_bytes, doors.base.views_reached)
        self._effects = None if bus is None else self._effects_of(bus)
        self._started = asyncio.Event()

    def _tokens_of_nodes(self, bus: Client) -> NodeTokens:
        settings, cluster = self._parts.settings, self.doors.cluster

        def address() -> str:
            scheme = "https" if settings.rest_cert_file and not settings.rest_tls_host else "http"
            return (settings.public_url or f"{scheme}://{settings.rest_host}:{self.port}").rstrip("/")

        can_admit = cluster.keeper is not None
        return NodeTokens(bus, self.loop, self._parts.clock, address, cluster.fingerprint, can_admit=can_admit)

    def _effects_of(self, bus: Client) -> Effects:
        parts = self._parts

        async def forget(experiment_id: int) -> None:
            for door in self.doors.plugins.values():
                await door.forget(experiment_id)

        remover = Remover(parts.pool, self.doors.experiments.contexts, forget)
        return Effects("gateway", {ExperimentDeleted.TYPE: remover.remove}, parts.settings, parts.log, parts.pool)

    async def started(self) -> None:
        """Returns when requests can be sent to `port`."""
        await self._started.wait()

    def watched(self) -> MonitoredState:
        gauges = {"parked": lambda: parked_of(self._parts.pool), "door": self._door_gauges}
        watched = self.loop.watched().adding(gauges, {PROJECTION: self._parts.projector})
        return watched if self._effects is None else watched.adding({"effects": self._effects.sample})

    async def _door_gauges(self) -> Sequence[Sample]:
        await self.loop.wait_ready()
        webhooks = self.loop.state.notices.webhooks
        senders = [self.doors.notices.deliveries.sender(name) for name in webhooks]
        return [
            Sample(catalogue.CONNECTIONS, DoorProtocol.open),
            Sample(catalogue.STREAMS, self.doors.log.tail.clients),
            Sample(catalogue.NOTICES_WAITING, sum(len(webhook.waiting) for webhook in webhooks.values())),
            Sample(catalogue.NOTICES_PARKED, sum(len(webhook.parked) for webhook in webhooks.values())),
            Sample(catalogue.WEBHOOKS_FAILING, sum(sender is not None and bool(sender.progress.problem) for sender in senders)),
        ]

    async def run(self) -> None:
        """Runs the service until cancelled. Raises PortTaken."""
        settings, tail = self._parts.settings, self.doors.log.tail
        listener = bind(settings.rest_host, settings.rest_port)
        certificate = (settings.rest_cert_file, settings.rest_key_file) if settings.rest_cert_file else None
        secure = bind(settings.rest_tls_host, settings.rest_port) if certificate and settings.rest_tls_host else None
        own = certificate if secure is None else None
        """Certificate of the listener at `rest_host`."""
        try:
            self.port = listener.getsockname()[1]
            logger.info("REST at http%s://%s:%d/api/v1", "s" if own else "", settings.rest_host, self.port)
            if own is None and not is_loopback(settings.rest_host):
                logger.warning(OPEN_DOOR, settings.rest_host)
            self._started.set()
            app = make_app(self.doors.by_kind(), self._subjects, self.permissions)
            async with tail:
                await run_together(
                    loop=self.loop.run(),
                    views=self._parts.projector.run(),
                    anchors=self.doors.log.anchors.run(),
                    deliveries=self._deliver(),
                    remains=self._clean_remains(),
                    deletions=self._deleter.run(),
                    limits=self._limits.run(),
                    **({"effects": self._effects.run()} if self._effects is not None else {}),
                    **({"contexts": self._contexts.run()} if self._contexts is not None else {}),
                    **({"node_tokens": self._node_tokens.run()} if self._node_tokens is not None else {}),
                    members=self._keep_members(),
                    token_uses=self._note_uses(),
                    rest=serve(app, listener, tail.close, own, DoorProtocol),
                    **({"rest_tls": serve(app, secure, tail.close, certificate, DoorProtocol)} if secure is not None else {}),
                )
        finally:
            listener.close()
            if secure is not None:
                secure.close()
            await self.doors.templates.reader.stop()
            await self.doors.experiments.past.close()
            self._parts.pool.terminate()

    async def _keep_members(self) -> None:
        await self.loop.wait_ready()
        if (keeper := self.doors.cluster.keeper) is not None:
            await keeper.run(lambda: self.loop.state.joining.revoked)
        await asyncio.Event().wait()

    async def _note_uses(self) -> None:
        await self.loop.wait_ready()
        await self.doors.base.token_uses.run(lambda: tuple(self.loop.state.tokens))

    async def _clean_remains(self) -> None:
        for door in self.doors.plugins.values():
            with contextlib.suppress(*DATABASE_FAILED, OSError):  # else at the next start
                await door.clean()
        await asyncio.Event().wait()

    async def _deliver(self) -> None:
        notices, now_us = self.doors.notices, self._parts.clock.now_us
        await self.loop.wait_ready()
        kept = [webhook.sealed_id for webhook in self.loop.state.notices.webhooks.values()]
        with contextlib.suppress(*DATABASE_FAILED):  # else at the next start
            await notices.vault.forget_others(kept, now_us())
            users = self.loop.state.users
            await self.doors.people.passwords.forget_others([users[name].password_id for name in sorted(users)], now_us())
        await notices.deliveries.run()


async def build(
    settings: Settings,
    log: EventLog,
    bus: Client | None,
    clock: Clock,
    *,
    feed: Callable[[], EventFeed] | None = None,
    without: frozenset[str] = frozenset(),
) -> GatewayService:
    """`feed` makes a feed for each of the two readers; tests pass one that needs no bus. `without`: names of subjects that are
    left out. Raises TokenError, SettingsError; ValueError for a subject that others need."""
    found = find_doors(without)
    if needed := {subject.name for subject in CORE} & without - NOT_NEEDED:
        raise ValueError(f"other subjects of the gateway need {', '.join(sorted(needed))}")
    origins(settings.cors_origins)  # so that a wrong one is said at the start
    check_grace(settings.deletion_grace_hours)
    if feed is None:
        assert bus is not None
        feed = _over(log, bus)
    pool = await open_pool(settings.database_url, POOL_CONNECTIONS_MAX, QUERY_SECONDS_MAX)
    projector = Projector(PROJECTION, projections.apply, pool, feed(), projections.TYPES)
    loop = ServiceLoop(GatewayCore(), log, feed(), clock, settings)
    parts = DoorParts(settings, log, bus, clock, loop, pool, projector)
    doors = make_doors(parts, found, without)
    loop.on_folded(lambda _, events: _tell_of_rights(doors.log.tail, events))
    clean(doors.experiments.contexts)
    subjects = [*(subject for subject in CORE if subject.name not in without), *(plugin.subject for plugin in found.values())]
    return GatewayService(parts, doors, subjects)


def _tell_of_rights(tail: Tail, events: Sequence[Event]) -> None:
    if any(event.type in (UserRemoved.TYPE, TokenRevoked.TYPE, UserPasswordSet.TYPE) for event in events):
        tail.rights_changed()


def _over(log: EventLog, bus: Client) -> Callable[[], EventFeed]:
    return lambda: StreamFeed(log, bus)
