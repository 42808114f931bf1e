"""The door of each subject, and how they are put together."""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tenuto.kernel import questions
from tenuto.kernel.certificates import fingerprint_if_self_made
from tenuto.kernel.clock import Clock
from tenuto.kernel.decision import actor_of
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.projection import Projector
from tenuto.kernel.secrets import SecretKeyError, Secrets
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.storage.stores import Stores, stores_of
from tenuto.schemas.envelope import Event
from tenuto.services.gateway import projections
from tenuto.services.gateway.automations import handling as automation_troubles
from tenuto.services.gateway.automations.adapters.positions import Automations
from tenuto.services.gateway.automations.bodies import AutomationTroubleView
from tenuto.services.gateway.automations.door import AutomationsDoor
from tenuto.services.gateway.cluster.adapters.bus_keeper import BusKeeper
from tenuto.services.gateway.cluster.door import ClusterDoor
from tenuto.services.gateway.experiments.adapters.kept_decisions import KeptDecisions
from tenuto.services.gateway.experiments.adapters.past_views import PastViews
from tenuto.services.gateway.experiments.door import ExperimentsDoor
from tenuto.services.gateway.experiments.handling.places import place_of
from tenuto.services.gateway.http import tokens
from tenuto.services.gateway.http.context import Door, Owned, Owners
from tenuto.services.gateway.http.plugin_doors import DoorPlugin, PluginDoor
from tenuto.services.gateway.http.token_uses import TokenUses
from tenuto.services.gateway.log.adapters.anchoring import Anchors
from tenuto.services.gateway.log.adapters.upkeep import Upkeep
from tenuto.services.gateway.log.door import LogDoor
from tenuto.services.gateway.log.handling.seen_events import SeenEvents
from tenuto.services.gateway.log.handling.tail import Tail
from tenuto.services.gateway.notices import handling as notice_troubles
from tenuto.services.gateway.notices.adapters.addresses import allowed_networks
from tenuto.services.gateway.notices.adapters.composing import Composer
from tenuto.services.gateway.notices.adapters.deliveries import Deliveries
from tenuto.services.gateway.notices.adapters.targets.opening import Vault, open_target
from tenuto.services.gateway.notices.adapters.targets.target import NotEver, NotNow, Target
from tenuto.services.gateway.notices.door import NoticesDoor
from tenuto.services.gateway.notices.queries import DeliveryRecord
from tenuto.services.gateway.notices.state import Webhook
from tenuto.services.gateway.people.adapters import sso_visits as sso
from tenuto.services.gateway.people.adapters.passwords import Passwords
from tenuto.services.gateway.people.door import PeopleDoor
from tenuto.services.gateway.reader.reader import UserFileReader
from tenuto.services.gateway.rights.permissions import Where
from tenuto.services.gateway.state import State
from tenuto.services.gateway.templates.door import TemplatesDoor
from tenuto.services.gateway.trials.adapters.verifying import Verifier
from tenuto.services.gateway.trials.door import TrialsDoor
from tenuto.services.gateway.trials.queries.metric_tables import MetricTables
from tenuto.services.gateway.views import Views


@dataclass(frozen=True)
class Doors:
    base: Door
    people: PeopleDoor
    templates: TemplatesDoor
    cluster: ClusterDoor
    trials: TrialsDoor
    experiments: ExperimentsDoor
    notices: NoticesDoor
    log: LogDoor
    automations: AutomationsDoor | None = None
    plugins: Mapping[str, PluginDoor] = field(default_factory=dict)
    """Doors of subjects that entry points declare, by the subjects' names."""

    def by_kind(self) -> Mapping[type[Door], Door]:
        found = (*vars(self).values(), *self.plugins.values())
        return {type(door): door for door in found if isinstance(door, Door)}


@dataclass(frozen=True)
class DoorParts:
    """Common parts that every door is made of."""

    settings: Settings
    log: EventLog
    bus: Client | None
    """None: in tests without one."""
    clock: Clock
    loop: ServiceLoop[State]
    pool: asyncpg.Pool
    """Connections to the views."""
    projector: Projector


def make_doors(parts: DoorParts, plugins: Mapping[str, DoorPlugin], without: frozenset[str] = frozenset()) -> Doors:
    """`plugins`: subjects that entry points declare. `without`: names of others that are left out, of those that no other needs.
    Raises TokenError, SettingsError."""
    settings, loop, pool = parts.settings, parts.loop, parts.pool
    stores = stores_of(settings.shared_directory, settings.stores_file)
    views, upkeep = Views(pool), Upkeep(pool, parts.projector, projections.TABLES)
    automations = None if "automations" in without else Automations(pool)

    async def forget_user(name: str) -> None:
        await secrets.forget(name)
        if automations is not None:
            await automations.forget(name)

    secrets = Secrets(pool, Path(settings.secret_key_file) if settings.secret_key_file else None)
    vault, reader, verifier, tables = Vault(secrets), UserFileReader(), Verifier(), MetricTables(pool)
    base = _base(parts, views, upkeep, automations)
    seen_events = SeenEvents(parts.log, lambda: loop.state, loop.wait_position)

    async def sees(event: Event) -> bool:
        return bool(await seen_events.judge(base.subject)([event]))

    notices = base.with_parts(
        NoticesDoor,
        vault=vault,
        deliveries=_deliveries(parts, views, vault),
        delivery_record=DeliveryRecord(pool),
        sees=sees,
    )
    of_automations = None if automations is None else base.with_parts(AutomationsDoor, automations=automations)
    return Doors(
        base=base,
        people=base.with_parts(
            PeopleDoor,
            views=views,
            secrets=secrets,
            passwords=Passwords(pool),
            sso=sso.from_settings(settings),
            forget_user=forget_user,
        ),
        templates=base.with_parts(TemplatesDoor, reader=reader),
        cluster=base.with_parts(
            ClusterDoor,
            views=views,
            fingerprint=_fingerprint(settings),
            nats_ca=_nats_ca(settings),
            keeper=BusKeeper(settings) if settings.bus_users_directory else None,
        ),
        trials=base.with_parts(TrialsDoor, views=views, tables=tables, stores=stores, verifier=verifier),
        experiments=base.with_parts(
            ExperimentsDoor,
            views=views,
            tables=tables,
            stores=stores,
            verifier=verifier,
            reader=reader,
            secrets=secrets,
            decisions=KeptDecisions(parts.log),
            past=PastViews(settings.database_url, parts.log, projections.apply, projections.TYPES),
        ),
        notices=notices,
        log=_log(base, parts, views, upkeep, stores, seen_events, notices, of_automations),
        automations=of_automations,
        plugins=_of_plugins(base, pool, plugins),
    )


def _base(parts: DoorParts, views: Views, upkeep: Upkeep, automations: Automations | None) -> Door:
    """Raises TokenError."""
    settings, loop = parts.settings, parts.loop

    async def experiment_of_checkpoint(checkpoint_id: str) -> int | None:
        found = await views.checkpoint(checkpoint_id)
        return None if found is None else found.experiment_id

    return Door(
        settings=settings,
        clock=parts.clock,
        log=parts.log,
        loop=loop,
        token=tokens.load_or_make(Path(settings.rest_token_file or "rest.token")),
        ask=_asking(parts.bus),
        views_reached=parts.projector.wait_position,
        filling=lambda: upkeep.filling,
        place_of=lambda experiment_id: place_of(loop.state, views, experiment_id),
        experiment_of_checkpoint=experiment_of_checkpoint,
        owners=_owners(loop, automations),
        token_uses=TokenUses(parts.pool),
    )


def _log(
    base: Door, parts: DoorParts, views: Views, upkeep: Upkeep, stores: Stores, seen_events: SeenEvents, notices: NoticesDoor,
    automations: AutomationsDoor | None,
) -> LogDoor:  # fmt: skip
    async def troubles_of_automations() -> tuple[AutomationTroubleView, ...]:
        return () if automations is None else await automation_troubles.automation_troubles(automations)

    return base.with_parts(
        LogDoor,
        views=views,
        tail=Tail(parts.log),
        anchors=Anchors(parts.settings, parts.log, parts.clock, stores),
        upkeep=upkeep,
        seen_events=seen_events,
        webhook_troubles=lambda: notice_troubles.troubles(notices),
        automation_troubles=troubles_of_automations,
        bus=parts.bus,
    )


def _owners(loop: ServiceLoop[State], automations: Automations | None) -> Owners:
    async def webhook(found: Mapping[str, str]) -> Owned | None:
        known = loop.state.notices.webhooks.get(found["name"])
        return None if known is None else Owned("webhook", known.name, known.owner)

    if automations is None:
        return {Where.WEBHOOK: webhook}

    async def automation(found: Mapping[str, str]) -> Owned | None:
        return Owned("automation", found["automation"], await automations.owner(found["automation"]) or "")

    return {Where.WEBHOOK: webhook, Where.AUTOMATION: automation}


def _of_plugins(base: Door, pool: asyncpg.Pool, plugins: Mapping[str, DoorPlugin]) -> Mapping[str, PluginDoor]:
    """Raises SettingsError."""
    found = {name: plugin.door(base, pool) for name, plugin in plugins.items() if plugin.door is not None}
    names: dict[type[Door], str] = {}
    for name, door in found.items():
        if not isinstance(door, PluginDoor) or type(door) is PluginDoor or type(door) in names:
            other = names.get(type(door), "")
            why = f", and that of {other} is the same" if other else ""
            raise SettingsError(
                f"The door of {name} is a {type(door).__name__}; it must be of a class of its own, below PluginDoor{why}."
            )
        names[type(door)] = name
    return found


def _fingerprint(settings: Settings) -> str:
    """Fingerprint of the door's own certificate, if that is self-made; else empty. Raises SettingsError."""
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


def _deliveries(parts: DoorParts, views: Views, vault: Vault) -> Deliveries:
    """Raises SettingsError."""
    settings, loop = parts.settings, parts.loop
    allowed = allowed_networks(settings.webhook_addresses)
    url = settings.public_url or f"http://{settings.rest_host}:{settings.rest_port}"
    actor = actor_of("gateway", loop.core.rule_version)
    composer = Composer(views, lambda: parts.projector.wait_position(loop.position), parts.clock, url, actor)

    async def opened(webhook: Webhook) -> Target:
        try:
            sealed = await vault.find(webhook.sealed_id)
        except SecretKeyError:
            raise NotNow("the gateway cannot read the key of the secrets") from None
        if sealed is None:
            raise NotEver("what is kept of its target cannot be read with the key of the secrets; make the webhook anew")
        return open_target(sealed, allowed)

    return Deliveries(loop, parts.clock, opened, composer.compose, random.random)


def _asking(bus: Client | None) -> Callable[[str, bytes, float], Awaitable[bytes]]:
    async def ask(subject: str, question: bytes, seconds: float) -> bytes:
        if bus is None:
            raise NoRespondersError
        return await questions.ask(bus, subject, question, seconds)

    return ask
