"""Sign-in at a provider of identities: the state that is remembered until the user comes back."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from tenuto.kernel import secret_keys
from tenuto.kernel.optional import NotInstalled, needed
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.schemas.base import Model
from tenuto.services.gateway.people.adapters.identity_provider import Provider
from tenuto.services.gateway.people.policies.identity import ProviderIdentity

FLOW_SECONDS = 600.0
"""Longest time from leaving for the provider to coming back: people look for their second factor."""
CODE_SECONDS = 120.0
"""Longest time from coming back until the waiting command line takes the code."""
CODES_MAX = 1_000
"""Most codes at once; beyond it the oldest is forgotten."""
USED_MAX = 10_000
"""Most used flows that are remembered, so that none is accepted twice."""
_ABOUT = "sign-in"


class Flow(Model):
    """State of a sign-in that the browser carries to the provider and back. It is sealed, so that it cannot be read or changed,
    and nothing is kept for users who never come back."""

    state: str
    nonce: str
    verifier: str
    until: float
    challenge: str = ""
    """Challenge of the command line that waits: only it can take the session. Empty: the session is the browser's."""
    port: int = 0
    """Port on which the command line listens on the browser's machine. 0: its user types the code."""


@dataclass(frozen=True)
class _Waiting:
    identity: ProviderIdentity
    challenge: str
    until: float


class Sso:
    def __init__(self, provider: Provider, *, now: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._now = now
        self._key = os.urandom(32)
        """Key of this process: users who are signing in when the gateway restarts must begin again."""
        self._codes: dict[str, _Waiting] = {}
        self._used: dict[str, float] = {}
        self.asking = asyncio.Semaphore(8)
        """Number of returning users for whom the provider is being asked."""

    def begin(self, challenge: str, port: int) -> Flow:
        return Flow(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            until=self._now() + FLOW_SECONDS,
            challenge=challenge,
            port=port,
        )

    def sealed(self, flow: Flow) -> str:
        return base64.urlsafe_b64encode(secret_keys.sealed(self._key, _ABOUT, flow.to_json().decode())).decode()

    def opened(self, sealed: str, state: str) -> Flow | None:
        """The flow that this browser began, once. None: it began none, or too long ago, or was used already."""
        try:
            raw = base64.urlsafe_b64decode(sealed.encode())
            flow = Flow.from_json(secret_keys.opened(self._key, _ABOUT, raw))
        except (ValueError, ValidationError):
            return None
        now = self._now()
        if now >= flow.until or not hmac.compare_digest(flow.state.encode(), state.encode()) or flow.state in self._used:
            return None
        if len(self._used) >= USED_MAX:
            self._used = {item: until for item, until in self._used.items() if until > now}
        # All of these are still valid: without room to remember this one, it could be used twice, so it is refused.
        if len(self._used) >= USED_MAX:
            return None
        self._used[flow.state] = flow.until
        return flow

    def hand_out(self, identity: ProviderIdentity, challenge: str) -> str:
        """A code for the command line that waits."""
        code, now = secrets.token_urlsafe(18), self._now()
        self._codes = {key: item for key, item in self._codes.items() if item.until > now}
        while len(self._codes) >= CODES_MAX:
            # A dict keeps the order of insertion, so the first code is the oldest.
            del self._codes[next(iter(self._codes))]
        self._codes[_hashed(code)] = _Waiting(identity, challenge, now + CODE_SECONDS)
        return code

    def take(self, code: str, verifier: str) -> ProviderIdentity | None:
        """Identity of the user who signed in, given once, to the command line that began it; None if the code or the verifier is
        wrong."""
        # Removed before it is judged, so that a verifier can be guessed only once.
        waiting = self._codes.pop(_hashed(code), None)
        if waiting is None or self._now() >= waiting.until:
            return None
        return waiting.identity if hmac.compare_digest(challenge_of(verifier), waiting.challenge) else None


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def from_settings(settings: Settings) -> Sso | None:
    """Sign-in at the provider of the settings; None: there is none. Raises SettingsError."""
    if not settings.oidc_issuer:
        return None
    if not settings.oidc_client_id:
        raise SettingsError("TENUTO_OIDC_ISSUER is set without TENUTO_OIDC_CLIENT_ID: name the client that the provider knows.")
    try:
        needed("authlib")
    except NotInstalled as error:
        raise SettingsError(f"TENUTO_OIDC_ISSUER is set, and sign-in needs a package: {error}.") from None
    secret = ""
    if settings.oidc_client_secret_file:
        try:
            secret = Path(settings.oidc_client_secret_file).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise SettingsError(
                f"TENUTO_OIDC_CLIENT_SECRET_FILE is {settings.oidc_client_secret_file}, which cannot be read: {why}."
            ) from None
    return Sso(Provider(settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_scopes))


def _hashed(code: str) -> str:
    return sha256(code.encode()).hexdigest()
