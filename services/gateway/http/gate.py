"""Checks of every request before its handler: its user, the user's rights, and the form of address and body. No body is read for
a user without the right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.schemas.text import unacceptable, unstorable, visible
from tenuto.services.gateway.http import basic_authentication
from tenuto.services.gateway.http.concurrent_requests import AtOnce, ResponseStart, holder_of
from tenuto.services.gateway.http.context import ASKING, ASKING_TOKEN, Door, asking, asking_token
from tenuto.services.gateway.http.cookies import credentials, is_session
from tenuto.services.gateway.http.errors import DATABASE_ERRORS, DoorError, error_response, not_found, unavailable
from tenuto.services.gateway.http.long_answers import turns
from tenuto.services.gateway.http.rate_limits import Pace
from tenuto.services.gateway.http.request_metrics import ROUTE
from tenuto.services.gateway.http.subject import Subject
from tenuto.services.gateway.http.transfer import head
from tenuto.services.gateway.read_models.common import TRIAL_ID, numbers
from tenuto.services.gateway.rights.permissions import ANY, PermissionRule, Permissions, Where, refusal
from tenuto.services.gateway.rights.workspaces import is_known

JSON_BYTES_MAX = 1 << 20
"""Largest JSON body: the largest known (1,000 operations of a search) takes some hundred kilobytes."""
BODY_SECONDS_FREE = 30.0
"""Time to wait for a body, whatever its size ..."""
BODY_BYTES_PER_SECOND_MIN = 4_096
"""... and a second more for each of these bytes that have come: a sender that trickles holds a connection for no longer than a
slow one needs."""
QUERY_BYTES_MAX = 8_192
PARAMETERS_MAX = 100
STRANGERS_PER_SECOND_MAX = 10.0
"""Most requests per second without a valid token, of one address: people mistype one now and then."""
AT_LEAST = "Tenuto-At-Least"
"""Position of the log that the answer has to include: a client that read an event from the log may be ahead of the views."""
_PLAIN_ID = re.compile(r"[0-9]{1,19}")
Parameters = Mapping[str, frozenset[str]]
"""Route -> names of its query's parameters."""


class Gate:
    def __init__(
        self, app: ASGIApp, gateway: Door, subjects: Sequence[Subject], permissions: Permissions, parameters: Parameters
    ) -> None:
        """Gate before the handlers. `permissions`: rules by which requests are judged. `parameters`: names in the query of each
        route, as its document says."""
        self._app, self._gateway, self._permissions, self._parameters = app, gateway, permissions, parameters
        self._basic_prefixes = tuple(prefix for subject in subjects for prefix in subject.basic_prefixes)
        self._uploads = {route: bytes_max for subject in subjects for route, bytes_max in subject.uploads.items()}
        self._users_pace = Pace(gateway.settings.requests_per_second_max)
        self._tokens_pace = Pace(gateway.settings.token_requests_per_second_max)
        self._turns = turns(subjects)
        self._at_once = AtOnce(gateway.requests)
        self._strangers_pace = Pace(STRANGERS_PER_SECOND_MAX if gateway.settings.requests_per_second_max else 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            try:
                route = await self._judge(scope)
            except DATABASE_ERRORS as error:  # whose experiment it is stands there; the application's handlers lie further inside
                await unavailable(error)(scope, receive, send)
                return
            with self._at_once.held(holder_of(scope, self._permissions.rules[route])):
                await self._answer(scope, receive, send, route)
        except DoorError as error:
            await error_response(error.code, str(error), error.path, headers=error.headers)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, route: str) -> None:
        try:
            body = _Body(receive, self._bytes_max(route))
            body.announced(_header(scope, b"content-length"))
            if route not in self._uploads and scope["method"] not in ("GET", "HEAD"):
                await body.check_json()
        except DoorError as error:
            await error_response(error.code, str(error), error.path, headers=error.headers)(scope, receive, send)
            return
        sent = ResponseStart(send)
        dear = self._turns.get(route) if asking_token() is not None else None
        try:
            async with dear.turn(asking()) if dear is not None else contextlib.nullcontext():
                await (head(self._app) if scope["method"] == "HEAD" else self._app)(scope, body.receive, sent)
        except BodyRefused as error:
            if sent.started:
                raise
            await error_response(error.code, str(error))(scope, receive, send)

    def _bytes_max(self, route: str) -> int:
        return self._uploads[route](self._gateway.settings) if route in self._uploads else JSON_BYTES_MAX

    async def _judge(self, scope: Scope) -> str:
        """Route of the table. Raises DoorError."""
        route, found, methods = self._permissions.match("GET" if scope["method"] == "HEAD" else scope["method"], scope["path"])
        if route:
            scope[ROUTE] = route.partition(" ")[2]
        rule = self._permissions.rules[route] if route else ANY
        if rule.where is not Where.OPEN:
            ASKING.set(await self._user(scope))
        if not route:
            raise _no_route(methods)
        _check_path(scope)
        _check_id(found)
        if rule.where is not Where.OPEN:
            await self._reached(_header(scope, AT_LEAST.lower().encode()))
            await self._check_right(rule, found)
        _check_query(scope["query_string"], self._parameters.get(route.replace(":path}", "}"), frozenset()))
        return route

    async def _user(self, scope: Scope) -> str:
        ASKING_TOKEN.set(None)
        header, by_cookie = credentials(scope, self._gateway.settings)
        header, named = basic_authentication.unwrapped(scope, header, self._basic_prefixes)
        try:
            user = await self._gateway.user_of(header)
        except DoorError:  # the token has expired
            self._check_stranger(scope)
            raise
        if (by_cookie and not is_session(asking_token())) or (named is not None and user != named):
            user = None
        if user is None:
            self._check_stranger(scope)
            raise DoorError("unauthorized", basic_authentication.refusal(header, named))
        if (shown := asking_token()) is not None:  # the cluster's own is the operator's, who may do everything
            self._gateway.token_uses.mark(shown.token_hash, self._gateway.clock.now_us())
            _keep_pace(self._tokens_pace, shown.token_hash, f"the token {shown.id} of {user}")
            _keep_pace(self._users_pace, user, user)
        return user

    async def _reached(self, position: str) -> None:
        """Waits until the views have reached the position; comes before any look-up, also that of the experiment's owner. Raises
        DoorError."""
        if position and not _PLAIN_ID.fullmatch(position):
            raise DoorError("invalid", f"{AT_LEAST} is '{visible(position)}', but must be a log position.", AT_LEAST)
        if position:
            await self._gateway.reached(int(position))

    def _check_stranger(self, scope: Scope) -> None:
        address = str((scope.get("client") or ("",))[0])
        _keep_pace(self._strangers_pace, address, "this address without a token that fits")

    async def _check_right(self, rule: PermissionRule, found: Mapping[str, str]) -> None:
        """Checks that the user of the request may do this. Raises DoorError. A missing resource has no owner; the handler answers
        404."""
        gateway = self._gateway
        workspace, owner, what = found.get("workspace", ""), found.get("name", ""), ""
        if rule.where is Where.WORKSPACE or rule.where in gateway.owners:  # the log says which there are, and whose
            await gateway.users_known()
        state, subject, seen = gateway.state, gateway.subject(), gateway.sight()
        if rule.where is Where.WORKSPACE and not (is_known(state, workspace) and seen.sees(workspace)):
            raise not_found(f"workspace {workspace}")
        if rule.where is Where.EXPERIMENT and rule.permission == "experiment.view" and seen.everything:
            rule = rule._replace(where=Where.ANYWHERE)  # wherever the experiment is: it need not be looked up
        if rule.where in (Where.EXPERIMENT, Where.SOURCE):
            experiment_id = await self._experiment_of(found)
            place = await gateway.place_of(experiment_id) if experiment_id is not None else None
            if place is None:
                return
            if place.workspace in seen.hidden:
                raise not_found(next(f"{kind} {found[key]}" for key in found if (kind := key.removesuffix("_id")) != key))
            if rule.where is Where.EXPERIMENT:
                workspace, owner, what = place.workspace, place.owner, f"Experiment {experiment_id}"
        if (look := gateway.owners.get(rule.where)) is not None:
            owned = await look(found)
            if owned is None:
                return
            owner, what = owned.owner or subject.name, f"{owned.kind.capitalize()} {owned.name}"
            if owner != subject.name and seen.hidden:
                raise not_found(f"{owned.kind} {owned.name}")
        if rule.where is Where.USER and state.acts_for(subject.name, owner):
            owner = subject.name
        if why := refusal(state.access, subject, rule, workspace=workspace, owner=owner, what=what):
            raise DoorError("forbidden", why)

    async def _experiment_of(self, found: Mapping[str, str]) -> int | None:
        if (given := found.get("experiment_id")) is not None:
            return int(given) if len(given) < 19 else None  # there are none beyond
        if (trial := found.get("trial_id")) is not None:
            return numbers(trial)[0] if TRIAL_ID.fullmatch(trial) else None
        return await self._gateway.experiment_of_checkpoint(found["checkpoint_id"]) if "checkpoint_id" in found else None


class BodyRefused(Exception):
    """Raised while a handler reads the body. `str(error)` is one sentence for the user."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Body:
    """Counts and times the received body."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._receive, self._bytes_max = receive, bytes_max
        self._bytes = 0
        self._waited_seconds = 0.0
        self._ended = False
        self._read: Message | None = None

    def announced(self, content_length: str) -> None:
        """Raises DoorError if the sender announces too large a body."""
        if content_length.isascii() and content_length.isdecimal() and int(content_length[:20]) > self._bytes_max:
            raise DoorError("too_large", self._too_large())

    def _too_large(self) -> str:
        return f"The body of the request is longer than {self._bytes_max} bytes, the most that is read here; send less."

    async def receive(self) -> Message:
        """Raises BodyRefused."""
        if self._read is not None:
            message, self._read = self._read, None
            return message
        if self._ended:
            return await self._receive()  # tells of the client's going away
        loop = asyncio.get_running_loop()
        began = loop.time()
        left = BODY_SECONDS_FREE + self._bytes / BODY_BYTES_PER_SECOND_MIN - self._waited_seconds
        try:
            async with asyncio.timeout(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            seconds = self._waited_seconds + left
            why = f"The body of the request came too slowly: {self._bytes} bytes in {seconds:.0f} s; send it again."
            raise BodyRefused("too_slow", why) from None
        self._waited_seconds += loop.time() - began
        self._bytes += len(message.get("body", b""))
        self._ended = not message.get("more_body", False)
        if self._bytes > self._bytes_max:
            raise BodyRefused("too_large", self._too_large())
        return message

    async def check_json(self) -> None:
        """Reads the whole body, and gives it to the handler at once. Raises DoorError."""
        parts = []
        try:
            while not self._ended:
                message = await self.receive()
                if message["type"] != "http.request":
                    return
                parts.append(message.get("body", b""))
        except BodyRefused as error:
            raise DoorError(error.code, str(error)) from error
        body = b"".join(parts)
        self._read = {"type": "http.request", "body": body, "more_body": False}
        if not body.strip():
            return
        try:
            document = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise DoorError("invalid", f"The body of the request is not valid JSON: {visible(why)}.") from error
        if (found := unacceptable(document)) is not None:
            path, why = found
            raise DoorError("invalid", f"{path or 'The body'} {why}.", path or None)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number there; write it in quotes")


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _no_route(methods: tuple[str, ...]) -> DoorError:
    if not methods:
        return DoorError("not_found", "There is nothing at this address.")
    allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))
    return DoorError(
        "method_not_allowed", f"This address does not take this method; it takes {allowed}.", headers={"Allow": allowed}
    )


def _keep_pace(pace: Pace, sender: str, who: str) -> None:
    """Raises DoorError if the user sends more requests than allowed."""
    if wait := pace.take(sender, asyncio.get_running_loop().time()):
        seconds = math.ceil(wait)
        raise DoorError(
            "too_many",
            f"Too many requests of {visible(who)}: send this one again in {seconds} s, and fewer of them (docs/rest.md, Limits).",
            headers={"Retry-After": str(seconds)},
        )


def _check_path(scope: Scope) -> None:
    """Raises DoorError for an address that is no text."""
    raw = scope.get("raw_path") or b""
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise DoorError("invalid", "The address is not UTF-8 text.") from None
    if why := unstorable(path):
        raise DoorError("invalid", f"The address {why}.")


def _check_id(found: Mapping[str, str]) -> None:
    """Raises DoorError for an experiment's id that is not written in digits: its owner could not be looked up by it, while a
    handler might read it (`+7`, `7.0`)."""
    given = found.get("experiment_id")
    if given is not None and not _PLAIN_ID.fullmatch(given):
        shown = visible(given)[:80]
        raise DoorError("invalid", f"experiment_id is '{shown}', but must be a whole number such as 3.", "experiment_id")


def _check_query(query: bytes, known: frozenset[str]) -> None:
    """Raises DoorError for parameters that the route does not know, that are given twice, or that are no text."""
    if len(query) > QUERY_BYTES_MAX:
        raise DoorError("invalid", f"The query is longer than {QUERY_BYTES_MAX} bytes.")
    try:
        unquote_to_bytes(query).decode()
        given = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise DoorError("invalid", f"The query is not UTF-8 text of at most {PARAMETERS_MAX} parameters.") from None
    seen: set[str] = set()
    for name, value in given:
        shown = visible(name)[:80]
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise DoorError("invalid", f"There is no parameter '{shown}' here; allowed are {names}.", shown)
        if name in seen:
            raise DoorError("invalid", f"The parameter {shown} is given twice.", shown)
        if why := unstorable(value):
            raise DoorError("invalid", f"{shown} {why}.", shown)
        seen.add(name)
