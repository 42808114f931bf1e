"""The gateway's composition root: the deciding loop, the projection of the views, live updates, and the REST door."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tenuto.kernel import questions
from tenuto.kernel.certificates import fingerprint_if_self_made
from tenuto.kernel.clock import Clock
from tenuto.kernel.database_away import DATABASE_FAILED
from tenuto.kernel.decision import actor_of
from tenuto.kernel.effects import Effects
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.feed import Feed
from tenuto.kernel.http_serving import bind, is_loopback, serve
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.monitoring.sampling import Watched
from tenuto.kernel.pools import open_pool
from tenuto.kernel.projection import Projector
from tenuto.kernel.secrets import SecretKeyError, Secrets
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.storage.stores import stores_of
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import run_together
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.people import UserPasswordSet
from tenuto.schemas.events.request import ExperimentDeleted, TokenRevoked, UserRemoved
from tenuto.services.gateway import projections
from tenuto.services.gateway.adapters import sso
from tenuto.services.gateway.adapters import token as tokens
from tenuto.services.gateway.adapters.addresses import allowed_networks
from tenuto.services.gateway.adapters.anchoring import Anchors
from tenuto.services.gateway.adapters.artifacts import Artifacts
from tenuto.services.gateway.adapters.automations import Automations
from tenuto.services.gateway.adapters.bus_keeper import BusKeeper
from tenuto.services.gateway.adapters.composing import Composer
from tenuto.services.gateway.adapters.contexts import clean
from tenuto.services.gateway.adapters.deleting import Deleter, Remover, check_grace
from tenuto.services.gateway.adapters.gauges import parked_of
from tenuto.services.gateway.adapters.limit_keeping import LimitKeeper
from tenuto.services.gateway.adapters.node_tokens import NodeTokens
from tenuto.services.gateway.adapters.passwords import Passwords
from tenuto.services.gateway.adapters.reader import Reader
from tenuto.services.gateway.adapters.run_data import RunData
from tenuto.services.gateway.adapters.run_models import RunModels
from tenuto.services.gateway.adapters.targets.opening import Vault, open_target
from tenuto.services.gateway.adapters.targets.target import NotEver, NotNow, Target
from tenuto.services.gateway.adapters.token_uses import TokenUses
from tenuto.services.gateway.adapters.upkeep import Upkeep
from tenuto.services.gateway.adapters.verifying import Verifier
from tenuto.services.gateway.core import GatewayCore
from tenuto.services.gateway.effects import Deliveries
from tenuto.services.gateway.handlers import Contexts
from tenuto.services.gateway.policies.notice_state import Webhook
from tenuto.services.gateway.projections.deliveries import DeliveryRecord
from tenuto.services.gateway.projections.metric_tables import MetricTables
from tenuto.services.gateway.projections.models import Models
from tenuto.services.gateway.projections.queries import Views
from tenuto.services.gateway.projections.runs import Runs
from tenuto.services.gateway.rest.connections import DoorProtocol
from tenuto.services.gateway.rest.context import Gateway
from tenuto.services.gateway.rest.door import make_door
from tenuto.services.gateway.rest.measuring import door_of
from tenuto.services.gateway.rest.origins import origins
from tenuto.services.gateway.rest.seen_events import SeenEvents
from tenuto.services.gateway.rest.tail import Tail
from tenuto.services.gateway.state import State

logger = logging.getLogger(__name__)

POOL_CONNECTIONS_MAX = 6
"""To the views: one for the projection, the others for requests."""
OPEN_DOOR = (
    "the REST door listens on %s without TLS: whoever reads the network reads tokens and join tokens. Set TENUTO_REST_CERT_FILE "
    "and TENUTO_REST_KEY_FILE, or let only a proxy with TLS reach it (docs/joining.md)."
)
QUERY_SECONDS_MAX = 20.0
"""A page takes milliseconds; a query that takes so long would only pile up."""


class GatewayService:
    def __init__(self, gateway: Gateway, projector: Projector, pool: asyncpg.Pool, effects: Effects | None) -> None:
        self.gateway, self.port = gateway, 0
        self._contexts = None if gateway.bus is None else Contexts(gateway.bus, pool, gateway.contexts)
        self._node_tokens = None if gateway.bus is None else self._tokens_of_nodes(gateway, gateway.bus)
        self._deleter, self._effects = Deleter(gateway.loop, gateway.clock), effects
        self._limits = LimitKeeper(gateway.loop, gateway.clock, gateway.views.stored_bytes, gateway.views_reached)
        self._projector, self._pool = projector, pool
        self._started = asyncio.Event()

    def _tokens_of_nodes(self, gateway: Gateway, bus: Client) -> NodeTokens:
        settings = gateway.settings

        def address() -> str:
            scheme = "https" if settings.rest_cert_file and not settings.rest_tls_host else "http"
            return (settings.public_url or f"{scheme}://{settings.rest_host}:{self.port}").rstrip("/")

        can_admit = gateway.keeper is not None
        return NodeTokens(bus, gateway.loop, gateway.clock, address, gateway.fingerprint, can_admit=can_admit)

    async def started(self) -> None:
        """Returns when requests can be sent to `port`."""
        await self._started.wait()

    def watched(self) -> Watched:
        watched = self.gateway.loop.watched().adding(
            {"parked": lambda: parked_of(self._pool), "door": lambda: door_of(self.gateway)}, {projections.NAME: self._projector}
        )
        return watched if self._effects is None else watched.adding({"effects": self._effects.sample})

    async def run(self) -> None:
        """Runs the service until cancelled. Raises PortTaken."""
        settings, tail = self.gateway.settings, self.gateway.tail
        listener = bind(settings.rest_host, settings.rest_port)
        certificate = (settings.rest_cert_file, settings.rest_key_file) if settings.rest_cert_file else None
        secure = bind(settings.rest_tls_host, settings.rest_port) if certificate and settings.rest_tls_host else None
        own = certificate if secure is None else None
        """Of the listener at `rest_host`."""
        try:
            self.port = listener.getsockname()[1]
            logger.info("REST at http%s://%s:%d/api/v1", "s" if own else "", settings.rest_host, self.port)
            if own is None and not is_loopback(settings.rest_host):
                logger.warning(OPEN_DOOR, settings.rest_host)
            self._started.set()
            door = make_door(self.gateway)
            async with tail:
                await run_together(
                    loop=self.gateway.loop.run(),
                    views=self._projector.run(),
                    anchors=self.gateway.anchors.run(),
                    deliveries=self._deliver(),
                    artifacts=self._clean_artifacts(),
                    deletions=self._deleter.run(),
                    limits=self._limits.run(),
                    **({"effects": self._effects.run()} if self._effects is not None else {}),
                    **({"contexts": self._contexts.run()} if self._contexts is not None else {}),
                    **({"node_tokens": self._node_tokens.run()} if self._node_tokens is not None else {}),
                    members=self._keep_members(),
                    token_uses=self._note_uses(),
                    rest=serve(door, listener, tail.close, own, DoorProtocol),
                    **({"rest_tls": serve(door, secure, tail.close, certificate, DoorProtocol)} if secure is not None else {}),
                )
        finally:
            listener.close()
            if secure is not None:
                secure.close()
            await self.gateway.reader.stop()
            self._pool.terminate()

    async def _keep_members(self) -> None:
        await self.gateway.loop.wait_ready()
        if self.gateway.keeper is not None:
            await self.gateway.keeper.run(lambda: self.gateway.loop.state.joining.revoked)
        await asyncio.Event().wait()

    async def _note_uses(self) -> None:
        await self.gateway.loop.wait_ready()
        await self.gateway.token_uses.run(lambda: tuple(self.gateway.loop.state.tokens))

    async def _clean_artifacts(self) -> None:
        with contextlib.suppress(*DATABASE_FAILED, OSError):  # else at the next start
            await self.gateway.artifacts.clean()
        await asyncio.Event().wait()

    async def _deliver(self) -> None:
        gateway = self.gateway
        await gateway.loop.wait_ready()
        kept = [webhook.sealed_id for webhook in gateway.loop.state.notices.webhooks.values()]
        with contextlib.suppress(*DATABASE_FAILED):  # else at the next start
            await gateway.vault.forget_others(kept, gateway.clock.now_us())
            users = gateway.loop.state.users
            await gateway.passwords.forget_others([users[name].password_id for name in sorted(users)], gateway.clock.now_us())
        await gateway.deliveries.run()


async def build(
    settings: Settings, log: EventLog, bus: Client | None, clock: Clock, *, feed: Callable[[], Feed] | None = None
) -> GatewayService:
    """`feed` makes a feed for each of the two readers; tests pass one that needs no bus. Raises TokenError, SettingsError."""
    origins(settings.cors_origins)  # so that a wrong one is said at the start
    check_grace(settings.deletion_grace_hours)
    if feed is None:
        assert bus is not None
        feed = _over(log, bus)
    stores = stores_of(settings.shared_directory, settings.stores_file)
    token = tokens.load_or_make(Path(settings.rest_token_file or "rest.token"))
    pool = await open_pool(settings.database_url, POOL_CONNECTIONS_MAX, QUERY_SECONDS_MAX)
    projector = Projector(projections.NAME, projections.apply, pool, feed(), projections.TYPES)
    loop, views = ServiceLoop(GatewayCore(), log, feed(), clock, settings), Views(pool)
    secrets = Secrets(pool, Path(settings.secret_key_file) if settings.secret_key_file else None)
    vault = Vault(secrets)
    gateway = Gateway(
        settings=settings,
        clock=clock,
        log=log,
        loop=loop,
        views=views,
        tables=MetricTables(pool),
        verifier=Verifier(),
        tail=Tail(log),
        reader=Reader(),
        secrets=secrets,
        token=token,
        ask=_asking(bus),
        stores=stores,
        anchors=Anchors(settings, log, clock, stores),
        upkeep=Upkeep(pool, projector),
        automations=Automations(pool),
        seen_events=SeenEvents(log, lambda: loop.state, loop.wait_position),
        vault=vault,
        passwords=Passwords(pool),
        token_uses=TokenUses(pool),
        sso=sso.from_settings(settings),
        deliveries=_deliveries(settings, loop, views, projector, vault, clock),
        delivery_record=DeliveryRecord(pool),
        runs=Runs(pool),
        run_data=RunData(pool),
        models=Models(pool),
        run_models=RunModels(pool),
        artifacts=Artifacts(pool, Path(settings.shared_directory) / "artifacts", settings.artifact_bytes_max),
        bus=bus,
        fingerprint=_fingerprint(settings),
        nats_ca=_nats_ca(settings),
        keeper=BusKeeper(settings) if settings.bus_users_directory else None,
        views_reached=projector.wait_position,
    )
    gateway.loop.on_folded(lambda _, events: _tell_of_rights(gateway.tail, events))
    clean(gateway.contexts)
    remover = Remover(pool, gateway.contexts, gateway.run_data, gateway.artifacts)
    effects = None if bus is None else Effects("gateway", {ExperimentDeleted.TYPE: remover.remove}, settings, log, pool)
    return GatewayService(gateway, projector, pool, effects)


def _fingerprint(settings: Settings) -> str:
    """Of the door's own certificate, if that is self-made. Raises SettingsError."""
    if bool(settings.rest_cert_file) != bool(settings.rest_key_file):
        raise SettingsError("TENUTO_REST_CERT_FILE and TENUTO_REST_KEY_FILE belong together: set both, or none.")
    try:
        if not settings.rest_cert_file:
            return ""
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(settings.rest_cert_file, settings.rest_key_file)
        return fingerprint_if_self_made(Path(settings.rest_cert_file))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"The certificate of TENUTO_REST_CERT_FILE ({settings.rest_cert_file}) cannot be used: {error}."
        ) from None


def _nats_ca(settings: Settings) -> str:
    """Raises SettingsError."""
    try:
        return Path(settings.nats_ca_file).read_text() if settings.nats_ca_file else ""
    except (OSError, ValueError) as error:
        raise SettingsError(f"TENUTO_NATS_CA_FILE is {settings.nats_ca_file}, which cannot be read: {error}.") from None


def _tell_of_rights(tail: Tail, events: Sequence[Event]) -> None:
    if any(event.type in (UserRemoved.TYPE, TokenRevoked.TYPE, UserPasswordSet.TYPE) for event in events):
        tail.rights_changed()


def _deliveries(
    settings: Settings, loop: ServiceLoop[State], views: Views, projector: Projector, vault: Vault, clock: Clock
) -> Deliveries:
    """Raises SettingsError."""
    allowed = allowed_networks(settings.webhook_addresses)
    url = settings.public_url or f"http://{settings.rest_host}:{settings.rest_port}"
    composer = Composer(
        views, lambda: projector.wait_position(loop.position), clock, url, actor_of("gateway", loop.core.rule_version)
    )

    async def opened(webhook: Webhook) -> Target:
        try:
            sealed = await vault.find(webhook.sealed_id)
        except SecretKeyError:
            raise NotNow("the gateway cannot read the key of the secrets") from None
        if sealed is None:
            raise NotEver("what is kept of its target cannot be read with the key of the secrets; make the webhook anew")
        return open_target(sealed, allowed)

    return Deliveries(loop, clock, opened, composer.compose, random.random)


def _asking(bus: Client | None) -> Callable[[str, bytes, float], Awaitable[bytes]]:
    async def ask(subject: str, question: bytes, seconds: float) -> bytes:
        if bus is None:
            raise NoRespondersError
        return await questions.ask(bus, subject, question, seconds)

    return ask


def _over(log: EventLog, bus: Client) -> Callable[[], Feed]:
    return lambda: StreamFeed(log, bus)
