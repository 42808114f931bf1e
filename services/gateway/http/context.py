"""The door that the REST handlers are given, and their small shared functions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, NamedTuple, TypeVar, cast

from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from tenuto.kernel.clock import Clock
from tenuto.kernel.core import Command, Refused
from tenuto.kernel.eventlog import EventLog, LogUnavailable
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.schemas.base import Model
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.notice import WebhookFailed, WebhookTriggered
from tenuto.schemas.ids import derived_event_id, name_id
from tenuto.services.gateway.http import tokens
from tenuto.services.gateway.http.errors import DoorError, not_found
from tenuto.services.gateway.http.token_uses import TokenUses
from tenuto.services.gateway.read_models.rows import Rows
from tenuto.services.gateway.rights.access import Principal, Sight, sight
from tenuto.services.gateway.rights.permissions import Where
from tenuto.services.gateway.rights.state import ADMIN, PeopleState, Token

D = TypeVar("D", bound="Door")
VIEWS_SECONDS_MAX = 2.0
"""Longest wait for the views to show what was just recorded; then the answer is sent anyway, unless the client cannot use it."""
COMMIT_SECONDS_MAX = 10.0
"""Longest wait for a commit, which takes milliseconds; people and programs should not wait longer to hear that it failed."""
UNCERTAIN = (
    "The database went away while this was recorded. It may still be carried out: look at what it was to change, or, where an "
    "Idempotency-Key was sent, send it again with the same one."
)
_NOTICES = frozenset({WebhookTriggered.TYPE, WebhookFailed.TYPE})
"""Types of events that may follow from a request, and are not its answer."""
ASKING: ContextVar[str] = ContextVar("asking", default="")
"""User of the request that is being answered."""
ASKING_TOKEN: ContextVar[Token | None] = ContextVar("asking_token", default=None)
"""Token of the request; None: the cluster's own."""


def asking_token() -> Token | None:
    return ASKING_TOKEN.get()


def asking() -> str:
    """User of the request, as the gate found it."""
    return ASKING.get()


class Ownership(NamedTuple):
    owner: str
    """User who submitted it; given as an earlier user if the name now belongs to another one."""
    workspace: str


class Owned(NamedTuple):
    """Thing that an address names, with its owner."""

    kind: str
    """Kind of thing, such as `webhook`."""
    name: str
    owner: str
    """User that it belongs to. Empty: it has no owner yet, and the user of the request may become it."""


Owners = Mapping[Where, Callable[[Mapping[str, str]], Awaitable[Owned | None]]]
"""Look-up by kind of place: parameters of the address -> what they name and its owner. None: it does not exist, and the handler
answers 404."""


@dataclass(kw_only=True)
class Door:
    """Parts that every handler of the door may use. The door of a subject adds the few that its handlers need."""

    settings: Settings
    clock: Clock
    log: EventLog
    loop: ServiceLoop[Any]
    token: str
    """The cluster's own."""
    ask: Callable[[str, bytes, float], Awaitable[bytes]]
    """(subject, question, seconds) -> another service's answer over the bus. Raises NatsError or TimeoutError."""
    views_reached: Callable[[int], Awaitable[None]]
    """Returns when the views show everything up to a log position."""
    filling: Callable[[], tuple[int, int] | None]
    """Number of events that the views have, and of all, while they are filled again."""
    place_of: Callable[[int], Awaitable[Ownership | None]]
    """Place of an experiment, also of an ended one. None: no such experiment exists."""
    experiment_of_checkpoint: Callable[[str], Awaitable[int | None]]
    owners: Owners
    token_uses: TokenUses
    requests: Counter[str] = field(default_factory=Counter)
    """Number of requests under way by holder; see `concurrent_requests.py`."""

    def with_parts(self, kind: type[D], **parts: Any) -> D:
        """The door of a subject: this one, and its own parts."""
        shared = {item.name: getattr(self, item.name) for item in fields(Door)}
        return kind(**shared, **parts)

    @property
    def state(self) -> PeopleState:
        """The gateway's present state; the door of each subject shows the part that the subject knows."""
        state: PeopleState = self.loop.state
        return state

    async def user_of(self, authorization: str) -> str | None:
        """User of the bearer token in the header; None if no token matches. Waits until the log has been read, as users are
        unknown before. Raises DoorError for a token that has expired."""
        if tokens.matches(authorization, self.token):
            return ADMIN
        if not authorization:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                await self.loop.wait_ready()
        found = self.state.tokens.get(tokens.hash_of(authorization))
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
            token = self.state.tokens.get(shown.token_hash)
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
        """Checks that the token of the request is still valid. A body may take minutes: by then its sender may be removed, and
        the name belong to another user. Raises DoorError."""
        token = asking_token()
        if token is not None and token.token_hash not in self.state.tokens:
            raise DoorError("unauthorized", "The token was taken away while this was received; nothing was done.")

    def subject(self) -> Principal:
        """User of the request, with the limits of its token."""
        return self.state.subject(asking(), asking_token())

    def shows_own(self, owner: str) -> bool:
        """True if the thing belongs to the user of the request, and may quote any workspace to this user."""
        return owner == asking() and not self.subject().workspace

    def sight(self) -> Sight:
        """Workspaces that the user of the request may see."""
        return sight(self.state.access, self.subject())

    async def check_seen(self, experiment_id: int, what: str = "") -> None:
        """Raises DoorError for an experiment, or a part of it, that the user may not know of: the same as if it did not exist."""
        seen = self.sight()
        if seen.everything:
            return
        place = await self.place_of(experiment_id)
        if place is not None and not seen.sees(place.workspace):
            raise not_found(what or f"experiment {experiment_id}")

    def check(self, command: Command) -> None:
        """Checks that the command would be carried out now: called before steps that cannot be undone. Raises Refused."""
        self.loop.core.decide(self.state, command)

    async def carry_out(self, command: Command) -> tuple[Event, ...]:
        """Records what was asked for, and waits until it can be seen. Raises Refused; LogUnavailable if nothing was done, and
        DoorError where that is not certain."""
        self.check_still_there()
        # If the log is unreachable, no command may wait and be carried out after we answered that nothing was done.
        head = await self.log.head()
        try:
            events = await self._submit(command)
        except Refused:
            # The same key again, and the first time it was carried out: such as the kill of what has ended by it.
            if (before := await self.log.find(derived_event_id("gateway", command.id, 0))) is not None:
                return (before,)
            if self.loop.position >= head:
                raise
            # Refused by an older state: the client may have seen more in the views, such as the end of an experiment.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(VIEWS_SECONDS_MAX):
                    await self.loop.wait_position(head)
            events = await self._submit(command)
        if events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(VIEWS_SECONDS_MAX):
                    await self.views_reached(events[-1].position)
        return tuple(event for event in events if event.type not in _NOTICES)

    async def _submit(self, command: Command) -> tuple[Event, ...]:
        """Raises Refused, DoorError."""
        try:
            async with asyncio.timeout(COMMIT_SECONDS_MAX):
                return await self.loop.submit(command)
        except (LogUnavailable, TimeoutError) as error:
            raise DoorError("unavailable", UNCERTAIN) from error

    async def reached(self, position: int) -> None:
        """Returns when state and views have all events up to a position. Raises DoorError if they do not in time."""
        try:
            async with asyncio.timeout(VIEWS_SECONDS_MAX):
                await self.loop.wait_position(position)
                await self.views_reached(position)
        except TimeoutError:
            behind = f"What is shown here has not reached position {position} of the log"
            raise DoorError("unavailable", f"{behind}; ask again in a few seconds.") from None

    async def up_to_date(self) -> None:
        """Returns when the views show all that is recorded by now, so that a client that has seen an experiment end in the events
        is not told that it still runs. Views that lag far behind are used as they are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VIEWS_SECONDS_MAX):
                await self.views_reached(await self.log.head())


def asked(door: Door, idempotency_key: str = "") -> dict[str, Any]:
    """Common fields of every command. The same key again gives the same command, so nothing is done twice."""
    user = asking()
    command_id = name_id("submit", user, idempotency_key) if idempotency_key else door.clock.new_id()
    return {"id": command_id, "time_us": door.clock.now_us(), "user": user}


def once(door: Door, verb: str, experiment_id: int, idempotency_key: str) -> dict[str, Any]:
    """Common fields of a change of an experiment: with the same key it is made once, even if it was undone meanwhile."""
    common = asked(door) | {"experiment_id": experiment_id}
    if idempotency_key:
        common["id"] = name_id(verb, common["user"], str(experiment_id), idempotency_key)
    return common


ExperimentFilter = Annotated[int | None, Query(ge=1, le=2**62)]
"""Id of an experiment in a query; without it, all experiments."""
After = Annotated[int, Query(ge=-1, le=2**62)]
"""Number behind which a page begins."""


def door_of(kind: type[D]) -> Callable[[Request], Awaitable[D]]:
    """The dependency that gives a handler the door of its subject."""

    async def found(request: Request) -> D:  # not a plain function, for which each request would wait for a thread
        return cast(D, request.app.state.doors[kind])

    return found


ROWS_AT_ONCE = 500
"""Most rows encoded in one piece, off the event loop: about 20 ms."""


def answer(body: Model | Sequence[Model] | Rows[Any], status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    """Answer in JSON as the models write it: NaN as a string, fields in order. Twice as fast as through FastAPI's own encoder."""
    told = dict(headers or {})
    if isinstance(body, Rows):
        return StreamingResponse(_pieces(body), status, media_type="application/json", headers=more(body.more) | told)
    if isinstance(body, Model):
        return Response(body.to_json(), status, told, media_type="application/json")
    return Response(b"[" + b",".join(item.to_json() for item in body) + b"]", status, told, media_type="application/json")


def written(bodies: Sequence[str], *, headers: Mapping[str, str]) -> Response:
    """List of elements that are JSON already."""
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
