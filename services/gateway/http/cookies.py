"""A browser's session: a cookie that no script reads and that no other site's request carries."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from fastapi import Response
from starlette.types import Scope

from tenuto.kernel.settings import Settings
from tenuto.schemas.text import visible
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.rights.state import Token

NAME = "tenuto_session"
SECURE_NAME = f"__Host-{NAME}"
"""Name over TLS: a browser takes it only from this host, and only encrypted."""
FLOW_NAME = "tenuto_sso"
COOKIE_BYTES_MAX = 4_096
_READS = ("GET", "HEAD", "OPTIONS")


def credentials(scope: Scope, settings: Settings) -> tuple[str, bool]:
    """(value of the header `Authorization`, or the one that the cookie stands for; True if it came in a cookie). Raises DoorError
    for a request that changes something and was sent by a page of another site."""
    headers = _headers(scope)
    if header := headers.get("authorization", ""):
        return header, False
    token = _in_cookie(headers.get("cookie", ""))
    if not token:
        return "", False
    if scope["method"] not in _READS:
        check_origin(scope, settings)
    return f"Bearer {token}", True


def is_session(token: Token | None) -> bool:
    return token is not None and token.session


def check_origin(scope: Scope, settings: Settings) -> None:
    """Raises DoorError if the request was not sent by a page of this door. Browsers say which page sent a request that changes
    something."""
    headers = _headers(scope)
    origin, host = headers.get("origin", ""), headers.get("host", "")
    public = _origin(settings.public_url)
    fixed = never_another(host, settings)
    if origin:
        allowed = origin == public or (fixed and origin.partition("://")[2] == host)
    else:
        of_public = bool(public) and host == public.partition("://")[2]
        allowed = (fixed or of_public) and headers.get("sec-fetch-site") == "same-origin"
    if not allowed:
        shown = visible(origin or "no page")[:200]
        raise DoorError(
            "forbidden",
            f"This was sent by {shown}, which is no page of this cluster: a session in a cookie changes something only from its "
            "own page (TENUTO_PUBLIC_URL names its address).",
        )


def give(response: Response, scope: Scope, settings: Settings, token: str, seconds: float | None) -> None:
    """Sets the cookie. `seconds`: rest of the session; None: the cookie lasts until the browser ends."""
    secure = is_secure(scope, settings)
    response.set_cookie(
        SECURE_NAME if secure else NAME,
        token,
        max_age=None if seconds is None else int(seconds),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def take_away(response: Response, scope: Scope, settings: Settings) -> None:
    secure = is_secure(scope, settings)
    response.delete_cookie(SECURE_NAME if secure else NAME, path="/", secure=secure, httponly=True, samesite="strict")


def give_flow(response: Response, scope: Scope, settings: Settings, sealed: str, seconds: float) -> None:
    """Sets the cookie of a sign-in at a provider of identities: browsers send it when the provider redirects back from another
    site (`Lax`)."""
    secure = is_secure(scope, settings)
    name = f"__Host-{FLOW_NAME}" if secure else FLOW_NAME
    response.set_cookie(name, sealed, max_age=int(seconds), path="/", secure=secure, httponly=True, samesite="lax")


def flow_of(scope: Scope) -> str:
    return _in_cookie(_headers(scope).get("cookie", ""), FLOW_NAME)


def take_flow_away(response: Response, scope: Scope, settings: Settings) -> None:
    secure = is_secure(scope, settings)
    name = f"__Host-{FLOW_NAME}" if secure else FLOW_NAME
    response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")


def is_secure(scope: Scope, settings: Settings) -> bool:
    """True if browsers speak TLS with this door, or with the proxy before it."""
    return scope.get("scheme") == "https" or settings.public_url.lower().startswith("https://")


def _in_cookie(header: str, name: str = NAME) -> str:
    if not header or len(header) > COOKIE_BYTES_MAX:
        return ""
    try:
        found = SimpleCookie(header)
    except CookieError:
        return ""
    return next((found[item].value for item in (f"__Host-{name}", name) if item in found), "")


def never_another(host: str, settings: Settings) -> bool:
    """True if this name in the header `Host` cannot be another site's that was made to lead here: an address, `localhost`, or the
    name that the door listens on."""
    try:
        name = urlsplit(f"//{host}").hostname
        if not name or name in ("localhost", settings.rest_host):
            return bool(name)
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _headers(scope: Scope) -> Mapping[str, str]:
    """Headers by name, the first of each."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found
