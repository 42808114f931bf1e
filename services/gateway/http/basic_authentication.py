"""Basic authentication for MLflow's clients, which send MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD with every request:
the name of a user, and a token in place of the password. A password is taken once, at sign-in, where guesses are slowed down."""

from __future__ import annotations

import base64
import binascii

from starlette.types import Scope

_BROWSERS = (b"origin", b"sec-fetch-site")
WRONG = (
    "The name and the token do not fit: MLFLOW_TRACKING_USERNAME is your user's name, and MLFLOW_TRACKING_PASSWORD one of your "
    "tokens (`tenuto user token create` makes one), not the password with which you sign in."
)


def refusal(authorization: str, named: str | None) -> str:
    """Sentence for a client without a valid token."""
    if named is not None:
        return WRONG
    why = "The token is wrong" if authorization else "A token is needed"
    return f"{why}: send your own, or the content of the cluster's token file, as `Authorization: Bearer <token>`."


def unwrapped(scope: Scope, authorization: str, prefixes: tuple[str, ...]) -> tuple[str, str | None]:
    """(the header `Authorization` as a bearer token; the user that the token must belong to, None: any). Other schemes are left
    as they are, and so are requests of a browser, which may send cached credentials at the bidding of another site."""
    scheme, _, given = authorization.partition(" ")
    browser = any(name in _BROWSERS for name, _ in scope["headers"])
    if scheme.lower() != "basic" or browser or not scope["path"].startswith(prefixes):
        return authorization, None
    try:
        user, _, token = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return authorization, None
    return f"Bearer {token}", user
