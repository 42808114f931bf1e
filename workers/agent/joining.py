"""Joining the cluster: the request with a join token, and the credentials that stay in the agent's directory."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import secrets
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from tenuto.kernel.bus_permissions import agent_user
from tenuto.kernel.private_files import write_private
from tenuto.kernel.settings import Settings
from tenuto.schemas.base import Model
from tenuto.schemas.join_tokens import JoinToken
from tenuto.schemas.joining import SECRET_PATTERN, JoinBody, JoinedView, StandingBody, StandingView, hash_of
from tenuto.schemas.names import AGENT_NAME_PATTERN

FILE = "joined.json"
NATS_CA = "nats-ca.pem"
PASSWORD_BYTES = 32
ANSWER_SECONDS_MAX = 20.0
"""Longest wait for an answer of the gateway, which records the join and tells the bus."""
ANSWER_BYTES_MAX = 1 << 20
V = TypeVar("V", bound=Model)


class NotJoined(Exception):
    """The machine is not an agent of the cluster; `str(error)` says why and what to do."""


class GatewayAway(Exception):
    """The gateway cannot be asked now; `str(error)` says why."""


class Joined(Model):
    """Credentials with which an agent starts again without the token. Only the file's owner can read it."""

    gateway: str
    fingerprint: str = ""
    agent_id: str = Field(pattern=AGENT_NAME_PATTERN)
    token_id: str
    """Token by which it joined, or is about to."""
    password: str = Field(pattern=SECRET_PATTERN)
    pool: str = ""
    """Pool of the agent; empty until it has joined."""
    nats_url: str = ""
    nats_ca: str = ""

    def __repr__(self) -> str:
        return f"Joined({self.agent_id})"

    __str__ = __repr__

    @property
    def complete(self) -> bool:
        return bool(self.pool)


def read(directory: Path) -> Joined | None:
    """Credentials in this directory; None if its agent never asked to join. Raises NotJoined."""
    try:
        return Joined.from_json((directory / FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        what = error if isinstance(error, OSError) else "it is damaged"  # the library's text would quote the password
        raise NotJoined(f"{directory / FILE} cannot be used: {what}. Remove it, and join again with --join.") from None


def join(directory: Path, token: JoinToken, agent_id: str) -> Joined:
    """Joins, and keeps the credentials. They are written before they are sent: if the answer is lost, the same are sent again.
    Raises NotJoined, GatewayAway and OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = read(directory)
    if found is not None and (found.complete or found.token_id != token.id or found.agent_id != agent_id):
        found = None
    wanted = found or Joined(
        gateway=token.url,
        fingerprint=token.fingerprint,
        agent_id=agent_id,
        token_id=token.id,
        password=secrets.token_urlsafe(PASSWORD_BYTES),
    )
    write_private(directory / FILE, wanted.to_json())
    body = JoinBody(token_id=token.id, secret=token.secret, agent_id=agent_id, password=wanted.password)
    answer = _ask(wanted, "/agents/join", body, JoinedView)
    joined = wanted.model_copy(update={"pool": answer.pool, "nats_url": answer.nats_url, "nats_ca": answer.nats_ca})
    write_private(directory / FILE, joined.to_json())
    return joined


def is_member(joined: Joined) -> bool:
    """False: the cluster has revoked the agent. Raises GatewayAway, and NotJoined if the gateway cannot be trusted."""
    body = StandingBody(agent_id=joined.agent_id, credential_hash=hash_of(joined.password))
    return _ask(joined, "/agents/standing", body, StandingView).joined


def settings_of(settings: Settings) -> tuple[Settings, Joined | None]:
    """Settings of an agent, completed with the credentials in its directory. Credentials in the settings take precedence. Raises
    NotJoined and OSError."""
    if settings.nats_user:
        return settings, _by_operator(settings)
    if not settings.agent_directory:
        return settings, None
    directory = Path(settings.agent_directory).absolute()
    joined = read(directory)
    if joined is None or not joined.complete:
        return settings, None
    if joined.nats_ca:
        write_private(directory / NATS_CA, joined.nats_ca)
    changed = replace(
        settings,
        agent_id=joined.agent_id,
        pool=joined.pool,
        nats_url=joined.nats_url,
        nats_user=agent_user(joined.agent_id),
        nats_password=joined.password,
        nats_password_file="",
        nats_ca_file=str(directory / NATS_CA) if joined.nats_ca else settings.nats_ca_file,
    )
    return changed, joined


def _by_operator(settings: Settings) -> Joined | None:
    """Membership of an agent whose credentials are settings. None: it has no gateway to ask. Raises SettingsError."""
    if not settings.gateway_url:
        return None
    agent_id = settings.nats_user.removeprefix(agent_user(""))
    try:
        return Joined(gateway=settings.gateway_url, agent_id=agent_id, token_id="", password=settings.bus_password())
    except ValidationError:  # a password of the operator's own making, which no gateway knows
        return None


def _ask(joined: Joined, path: str, body: Model, kind: type[V]) -> V:
    """Raises GatewayAway and NotJoined."""
    connection = _connection(joined)
    try:
        connection.connect()
        _check_fingerprint(connection, joined)
        connection.request("POST", f"/api/v1{path}", body.to_json(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read(ANSWER_BYTES_MAX)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # it ended, or gave up, in the middle of the handshake
        raise GatewayAway(f"The gateway at {joined.gateway} cannot be reached: it hung up.") from error
    except ssl.SSLError as error:
        raise NotJoined(f"The certificate of {joined.gateway} is not trusted here: {error.reason or error}.") from error
    except (OSError, http.client.HTTPException) as error:
        raise GatewayAway(f"The gateway at {joined.gateway} cannot be reached: {str(error) or type(error).__name__}.") from error
    finally:
        connection.close()
    if response.status in (429, 502, 503, 504):
        raise GatewayAway(_reason(said, response.status))
    if not 200 <= response.status < 300:
        raise NotJoined(_reason(said, response.status))
    try:
        return kind.from_json(said)
    except ValidationError:
        raise NotJoined(f"What {joined.gateway} answers cannot be read: run the same version of Tenuto there and here.") from None


def _connection(joined: Joined) -> http.client.HTTPConnection:
    """Raises NotJoined."""
    try:
        parts = urlsplit(joined.gateway)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise NotJoined(f"{joined.gateway} is no address of a gateway: make another token with `tenuto agent token`.") from None
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    context = ssl.create_default_context()
    if joined.fingerprint:  # compared before anything is sent
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS_MAX, context=context)


def _check_fingerprint(connection: http.client.HTTPConnection, joined: Joined) -> None:
    """Raises NotJoined."""
    if not joined.fingerprint:
        return
    shown = connection.sock.getpeercert(True) if isinstance(connection.sock, ssl.SSLSocket) else None
    found = hashlib.sha256(shown or b"").hexdigest()
    if not hmac.compare_digest(found, joined.fingerprint):
        raise NotJoined(
            f"{joined.gateway} shows another certificate than the join token names, so nothing was sent: somebody may stand "
            "between, or its certificate was replaced; make another token with `tenuto agent token`."
        )


def _reason(said: bytes, status: int) -> str:
    try:
        return str(json.loads(said)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return f"The gateway answers with status {status}."
