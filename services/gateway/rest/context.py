"""Context of the REST handlers, and their small shared functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from fastapi import Depends, Query, Request, Response
from nats.aio.client import Client
from starlette.responses import StreamingResponse

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Refused
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.secrets import Secrets
from tenuto.kernel.settings import Settings
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.base import Model
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.notice import WebhookFailed, WebhookTriggered
from tenuto.schemas.ids import derived_event_id, name_id
from tenuto.services.gateway.adapters import token as tokens
from tenuto.services.gateway.adapters.anchoring import Anchors
from tenuto.services.gateway.adapters.artifacts import Artifacts
from tenuto.services.gateway.adapters.automations import Automations
from tenuto.services.gateway.adapters.bus_keeper import BusKeeper
from tenuto.services.gateway.adapters.earlier import Earlier
from tenuto.services.gateway.adapters.importance import Importances
from tenuto.services.gateway.adapters.page_links import PageLinks
from tenuto.services.gateway.adapters.passwords import Passwords
from tenuto.services.gateway.adapters.reader import Reader
from tenuto.services.gateway.adapters.run_data import RunData
from tenuto.services.gateway.adapters.run_models import RunModels
from tenuto.services.gateway.adapters.sso import Sso
from tenuto.services.gateway.adapters.targets.opening import Vault
from tenuto.services.gateway.adapters.token_uses import TokenUses
from tenuto.services.gateway.adapters.upkeep import Upkeep
from tenuto.services.gateway.adapters.verifying import Verifier
from tenuto.services.gateway.adapters.what_ifs import WhatIfs
from tenuto.services.gateway.commands import GatewayCommand
from tenuto.services.gateway.effects import Deliveries
from tenuto.services.gateway.policies.access import Sight, Subject, sight
from tenuto.services.gateway.policies.signing_in import Throttle
from tenuto.services.gateway.projections.deliveries import DeliveryRecord
from tenuto.services.gateway.projections.metric_tables import MetricTables
from tenuto.services.gateway.projections.models import Models
from tenuto.services.gateway.projections.queries import Views
from tenuto.services.gateway.projections.rows import Rows
from tenuto.services.gateway.projections.runs import Runs
from tenuto.services.gateway.rest.errors import DoorError, not_found
from tenuto.services.gateway.rest.pace import StandingPace
from tenuto.services.gateway.rest.seen_events import SeenEvents
from tenuto.services.gateway.rest.tail import Tail
from tenuto.services.gateway.state import ADMIN, State, Token

VIEWS_SECONDS_MAX = 2.0
"""Longest wait for the views to show what was just recorded; then the answer is sent anyway, unless who asks cannot use it."""
COMMIT_SECONDS_MAX = 10.0
"""A commit takes milliseconds; people and programs should not wait longer to hear that it did not come."""
UNCERTAIN = (
    "The database went away while this was recorded. It may still be carried out: look at the experiment, "
    "or send it again with the same Idempotency-Key."
)
_NOTICES = frozenset({WebhookTriggered.TYPE, WebhookFailed.TYPE})
"""Types of events that may follow from a request, and are not its answer."""
ASKING: ContextVar[str] = ContextVar("asking", default="")
"""User who sent the request that is being answered."""


ASKING_TOKEN: ContextVar[Token | None] = ContextVar("asking_token", default=None)
"""The token that was shown; None: the cluster's own."""


def asking_token() -> Token | None:
    return ASKING_TOKEN.get()


def asking() -> str:
    """The user who sent the request: the gate found out."""
    return ASKING.get()


class Place(NamedTuple):
    owner: str
    """User who submitted it. One whose name belongs to another one now is given as an earlier user."""
    workspace: str


@dataclass(frozen=True)
class Gateway:
    settings: Settings
    clock: Clock
    log: EventLog
    loop: ServiceLoop[State]
    views: Views
    tables: MetricTables
    tail: Tail
    reader: Reader
    secrets: Secrets
    token: str
    ask: Callable[[str, bytes, float], Awaitable[bytes]]
    """(subject, question, seconds) -> another service's answer over the bus. Raises NatsError or TimeoutError."""
    stores: Stores
    """Of checkpoints, as the operator declared them."""
    verifier: Verifier
    anchors: Anchors
    upkeep: Upkeep
    automations: Automations
    seen_events: SeenEvents
    vault: Vault
    """Where webhooks' targets are kept."""
    passwords: Passwords
    token_uses: TokenUses
    sso: Sso | None
    """None: there is no provider of identities."""
    requests: Counter[str] = field(default_factory=Counter, kw_only=True)
    """Under way, by whose they are; see `at_once.py`."""
    throttle: Throttle = field(default_factory=Throttle, kw_only=True)
    """Of guesses at passwords."""
    join_throttle: Throttle = field(default_factory=Throttle, kw_only=True)
    """Of guesses at join tokens."""
    standing_pace: StandingPace = field(default_factory=StandingPace, kw_only=True)
    fingerprint: str = field(default="", kw_only=True)
    """SHA-256 of the door's own certificate, if that is self-made. Empty: it is not, or the door speaks HTTP."""
    nats_ca: str = field(default="", kw_only=True)
    """Certificate (PEM) that agents check the bus's by. Empty: the machine's authorities, or no TLS."""
    keeper: BusKeeper | None = field(default=None, kw_only=True)
    """None: agents join only by credentials from the operator."""
    importances: Importances = field(default_factory=Importances, kw_only=True)
    earlier: Earlier = field(default_factory=Earlier, kw_only=True)
    what_ifs: WhatIfs = field(default_factory=WhatIfs, kw_only=True)
    page_links: PageLinks = field(default_factory=PageLinks, kw_only=True)
    deliveries: Deliveries
    delivery_record: DeliveryRecord
    runs: Runs
    run_data: RunData
    models: Models
    run_models: RunModels
    artifacts: Artifacts
    bus: Client | None
    """None: in tests without one."""
    views_reached: Callable[[int], Awaitable[None]]
    """Returns when the views show everything up to a log position."""
    secrets_change: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while secrets are set, and while those of an earlier user are forgotten: none of them come in between."""

    async def user_of(self, authorization: str) -> str | None:
        """Whose token the header carries; None: nobody's. Who the users are is known when the log has been read. Raises DoorError
        for a token that has expired."""
        if tokens.matches(authorization, self.token):
            return ADMIN
        if not authorization:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self.loop.wait_ready()
        found = self.loop.state.tokens.get(tokens.hash_of(authorization))
        if found is None:
            return None
        if not found.holds(self.clock.now_us()):
            raise DoorError(
                "expired",
                "Your session has ended: sign in again with `tenuto login`."
                if found.session
                else f"The token {found.id} of {found.user} has expired; ask an admin for another (`tenuto user token create "
                f"{found.user}`).",
            )
        ASKING_TOKEN.set(found)
        return found.user

    def still_allowed(self) -> Callable[[], bool]:
        """Returns a check that the token of the request is still valid; called again while a long answer is sent."""
        shown = asking_token()
        if shown is None:  # the cluster's own
            return lambda: True

        def allowed() -> bool:
            token = self.loop.state.tokens.get(shown.token_hash)
            return token is not None and token.holds(self.clock.now_us())

        return allowed

    async def users_known(self) -> None:
        """Returns when the log has been read, from which the users are known. Raises DoorError."""
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self.loop.wait_ready()
        except TimeoutError:
            raise DoorError("unavailable", "The gateway has not read the log yet; try again in a moment.") from None

    def check_still_there(self) -> None:
        """A body may take minutes: by then its sender may be removed and the name be somebody else's. Raises DoorError."""
        token = asking_token()
        if token is not None and token.token_hash not in self.loop.state.tokens:
            raise DoorError("unauthorized", "The token was taken away while this was received; nothing was done.")

    def subject(self) -> Subject:
        """Who asks, with what its token is limited to."""
        return self.loop.state.subject(asking(), asking_token())

    def shows_own(self, owner: str) -> bool:
        """True if it is the asker's, and what it quotes of any workspace may be shown."""
        return owner == asking() and not self.subject().workspace

    def sight(self) -> Sight:
        """What who asks may see."""
        return sight(self.loop.state.access, self.subject())

    async def check_seen(self, experiment_id: int, what: str = "") -> None:
        """Raises DoorError for an experiment, or what of it is named, that the asker may not know of: as if it did not exist."""
        seen = self.sight()
        if seen.everything:
            return
        place = await self.place_of(experiment_id)
        if place is not None and not seen.sees(place.workspace):
            raise not_found(what or f"experiment {experiment_id}")

    async def place_of(self, experiment_id: int) -> Place | None:
        """Of an experiment, also an ended one. None: there is no such experiment."""
        live = self.loop.state.live.get(experiment_id)
        found = (live.user, live.workspace) if live is not None else await self.views.place(experiment_id)
        return None if found is None else Place(self.loop.state.owner(found[0], experiment_id), found[1])

    @property
    def contexts(self) -> Path:
        return Path(self.settings.shared_directory) / "contexts"

    async def carry_out(self, command: GatewayCommand) -> tuple[Event, ...]:
        """Records what was asked for, and waits until it can be seen. Raises Refused; LogUnavailable if nothing was done."""
        self.check_still_there()
        await self.log.head()  # where the log is away, nothing is left waiting that would happen after we said it did not
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                events = await self.loop.submit(command)
        except Refused:
            # The same key again, and the first time it was carried out: such as the kill of what has ended by it.
            if (before := await self.log.find(derived_event_id("gateway", command.id, 0))) is None:
                raise
            return (before,)
        except (LogUnavailable, TimeoutError) as error:
            raise DoorError("unavailable", UNCERTAIN) from error
        if events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(VIEWS_SECONDS_MAX):
                    await self.views_reached(events[-1].position)
        return tuple(event for event in events if event.type not in _NOTICES)

    async def reached(self, position: int) -> None:
        """Returns when state and views have all events up to a position. Raises DoorError where they do not in time."""
        try:
            async with asyncio.timeout(VIEWS_SECONDS_MAX):
                await self.loop.wait_position(position)
                await self.views_reached(position)
        except TimeoutError:
            behind = f"What is shown here has not reached position {position} of the log"
            raise DoorError("unavailable", f"{behind}; ask again in a few seconds.") from None

    async def up_to_date(self) -> None:
        """Returns when the views show all that is recorded by now, so that whoever has seen an experiment end in the events
        does not hear that it still runs. Views that lag far behind are used as they are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VIEWS_SECONDS_MAX):
                await self.views_reached(await self.log.head())


def asked(door: Gateway, idempotency_key: str = "") -> dict[str, Any]:
    """Common fields of every command. The same key again gives the same command, so nothing is done twice."""
    user = asking()
    command_id = name_id("submit", user, idempotency_key) if idempotency_key else door.clock.new_id()
    return {"id": command_id, "time_us": door.clock.now_us(), "user": user}


def once(door: Gateway, verb: str, experiment_id: int, idempotency_key: str) -> dict[str, Any]:
    """Common fields of a change of an experiment: with the same key it is made once, also where it was undone meanwhile."""
    common = asked(door) | {"experiment_id": experiment_id}
    if idempotency_key:
        common["id"] = name_id(verb, common["user"], str(experiment_id), idempotency_key)
    return common


ExperimentFilter = Annotated[int | None, Query(ge=1, le=2**62)]
"""An experiment's id in a query; without it, all."""
After = Annotated[int, Query(ge=-1, le=2**62)]
"""A number beyond which to go on."""


async def _gateway(request: Request) -> Gateway:  # not a plain function, for which each request would wait for a thread
    return cast(Gateway, request.app.state.gateway)


Door = Annotated[Gateway, Depends(_gateway)]
"""A handler's parameter of this type is given the gateway."""


ROWS_AT_ONCE = 500
"""Encoded in one piece, off the event loop: about 20 ms."""


def answer(body: Model | Sequence[Model] | Rows[Any], status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """JSON as the models write it: NaN as a string, fields in order. Twice as fast as through FastAPI's own encoder."""
    told = dict(headers or {})
    if isinstance(body, Rows):
        return StreamingResponse(_pieces(body), status, media_type="application/json", headers=more(body.more) | told)
    if isinstance(body, Model):
        return Response(body.to_json(), status, told, media_type="application/json")
    return Response(b"[" + b",".join(item.to_json() for item in body) + b"]", status, told, media_type="application/json")


def written(bodies: Sequence[str], *, headers: Mapping[str, str]) -> Response:
    """A list of what is JSON already."""
    return Response(f"[{','.join(bodies)}]".encode(), 200, dict(headers), media_type="application/json")


MORE_HEADER = "Tenuto-More"


def more(is_more: bool) -> dict[str, str]:
    """The header of an answer that was full, by number or by bytes: there may be more behind its last element."""
    return {MORE_HEADER: "true"} if is_more else {}


async def _pieces(rows: Rows[Any]) -> AsyncIterator[bytes]:
    yield b"["
    for first in range(0, len(rows), ROWS_AT_ONCE):
        piece = await asyncio.to_thread(rows.encoded, first, ROWS_AT_ONCE)
        yield piece if first == 0 else b"," + piece
    yield b"]"
