"""The provider of identities (OpenID Connect) at which people sign in: where it sends them, and its claims about those who come
back. Authorization code with PKCE. An ID token is accepted if a key of the provider signed it, for this client, for this one
sign-in, now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted algorithms: signatures by a private key. Neither `none`, nor a hash with the client's secret, which a public key could
be mistaken for."""
DOCUMENT_SECONDS = 3_600.0
"""The provider's addresses and keys are read again after this long ..."""
REFETCH_SECONDS = 10.0
"""... and the keys at once if a token names an unknown one, at most this often: a provider that changes its keys is accepted at
the first sign-in, and forged tokens make us ask no more often."""
TIMEOUT_SECONDS = 10.0
LEEWAY_SECONDS = 60
"""Largest accepted difference between the provider's clock and ours."""
DOCUMENT_BYTES_MAX = 1 << 20


class SsoRefused(Exception):
    """Refused identity. `str(error)` is one sentence for the user."""


class SsoAway(Exception):
    """`str(error)` is one sentence: the provider does not answer as it should. `detail` is for the operator's log."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


AWAY = "The provider of identities does not answer as it should; the gateway's log tells its operator why. Try again later."
REFUSED = "The provider's answer is not believed ({why}): begin the sign-in again."


class Provider:
    def __init__(
        self, issuer: str, client_id: str, secret: str, scopes: str, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`secret`: empty for a public client. `now`: seconds of a clock that never goes back."""
        self.issuer, self.client_id = issuer, client_id
        self._secret, self._scopes, self._now = secret, scopes, now
        self._document: dict[str, Any] = {}
        self._keys: Any = None
        self._read_at = self._keys_at = 0.0
        self._reading = asyncio.Lock()

    async def address(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Address of the provider's page to which the user's browser is sent. Raises SsoAway."""
        document = await self._known()
        async with self._client(redirect_uri) as client:
            url, _ = client.create_authorization_url(
                document["authorization_endpoint"], state=state, code_verifier=verifier, nonce=nonce
            )
        return str(url)

    async def claims(self, code: str, redirect_uri: str, nonce: str, verifier: str) -> Mapping[str, Any]:
        """Claims of the provider about the user who came back with `code`. Raises SsoRefused, SsoAway."""
        from authlib.common.errors import AuthlibBaseError

        document = await self._known()
        async with self._client(redirect_uri) as client:
            try:
                answer = await client.fetch_token(
                    document["token_endpoint"], grant_type="authorization_code", code=code, code_verifier=verifier
                )
            except AuthlibBaseError as error:  # its description may quote what was sent
                raise SsoRefused(REFUSED.format(why=f"it takes the code no more: {_word(error.error)}")) from None
            except Exception as error:  # of whichever HTTP library authlib found
                raise SsoAway(AWAY, f"the token endpoint failed: {type(error).__name__}") from None
            if not isinstance(token := answer.get("id_token"), str):
                raise SsoRefused(REFUSED.format(why="it has no ID token"))
            access = answer.get("access_token")
            found = await self._believed(token, nonce, access if isinstance(access, str) else "")
            # Claims of the signed token replace those of userinfo.
            return {**await self._more(client, document, found), **found}

    async def _believed(self, token: str, nonce: str, access: str) -> dict[str, Any]:
        """Claims of the ID token. Raises SsoRefused, SsoAway."""
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        try:
            try:
                decoded = jwt.decode(token, self._keys, algorithms=list(ALGORITHMS))
            except InvalidKeyIdError:  # the provider may have changed its keys
                await self._read_keys()
                decoded = jwt.decode(token, self._keys, algorithms=list(ALGORITHMS))
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                options={
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self.client_id},
                },
                params={"nonce": nonce, "client_id": self.client_id, "access_token": access},
            )
            claims.validate(leeway=LEEWAY_SECONDS)
        except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SsoRefused(REFUSED.format(why=_why(error))) from None
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise SsoRefused(REFUSED.format(why="it names no subject"))
        return dict(claims)

    async def _more(self, client: AsyncOAuth2Client, document: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        """Claims that only the provider's userinfo has; empty if it has no userinfo, or if that is about another user."""
        if not isinstance(url := document.get("userinfo_endpoint"), str):
            return {}
        try:
            response = await client.get(url, headers={"Accept": "application/json"})
            told = response.json() if response.status_code == 200 and len(response.content) <= DOCUMENT_BYTES_MAX else {}
        except Exception:  # of whichever HTTP library authlib found; what is missed is refused where it is needed
            return {}
        return told if isinstance(told, dict) and told.get("sub") == found["sub"] else {}

    async def _known(self) -> Mapping[str, Any]:
        """The provider's own description. Raises SsoAway."""
        async with self._reading:
            if self._document and self._keys is not None and self._now() - self._read_at < DOCUMENT_SECONDS:
                return self._document
            document = await self._json(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            if document.get("issuer") != self.issuer:
                raise SsoAway(AWAY, f"its description is of another issuer, not of {self.issuer}")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                address = document.get(name)
                if not isinstance(address, str) or not address.startswith(("https://", "http://")):
                    raise SsoAway(AWAY, f"its description has no {name}")
                if self.issuer.startswith("https://") and not address.startswith("https://"):
                    raise SsoAway(AWAY, f"its {name} is not encrypted")
            self._document, self._read_at = document, self._now()
            await self._read_keys()
            return document

    async def _read_keys(self) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        if self._keys is not None and self._now() - self._keys_at < REFETCH_SECONDS:
            return
        # Set before the attempt, so that a provider that fails is asked no more often either.
        self._keys_at = self._now()
        document = await self._json(str(self._document["jwks_uri"]))
        try:
            keys = [key for key in document["keys"] if key.get("kty") in ("RSA", "EC", "OKP") and key.get("use") in (None, "sig")]
            self._keys = KeySet.import_key_set({"keys": keys})
        except (JoseError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise SsoAway(AWAY, f"its keys cannot be read: {type(error).__name__}") from None

    async def _json(self, url: str) -> dict[str, Any]:
        import httpx

        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
                response = await client.get(url, headers={"Accept": "application/json"})
            document = response.json() if response.status_code == 200 and len(response.content) <= DOCUMENT_BYTES_MAX else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise SsoAway(AWAY, f"{url} cannot be read: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise SsoAway(AWAY, f"{url} answers {response.status_code}, and no document")
        return document

    def _client(self, redirect_uri: str) -> AsyncOAuth2Client:
        from authlib.integrations.httpx_client import AsyncOAuth2Client

        supported = self._document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in supported else "client_secret_post"
        return AsyncOAuth2Client(
            self.client_id,
            self._secret or None,
            scope=self._scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method=method if self._secret else "none",
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
        )


def _word(error: object) -> str:
    """A provider's error code; it is a word by the standard."""
    text = str(error)[:40]
    return text if text.replace("_", "").isalnum() else "unknown"


def _why(error: Exception) -> str:
    """Words of our own: a library's text may quote the token."""
    known = {
        "ExpiredTokenError": "its token has expired",
        "BadSignatureError": "its signature is wrong",
        "InvalidKeyIdError": "no key of the provider signed it",
        "UnsupportedAlgorithmError": "it is signed by no algorithm that is taken",
    }
    claim = getattr(error, "claim", "") or ""
    named = (
        f"its {claim} is not what it must be" if isinstance(claim, str) and claim.isidentifier() else "its token cannot be read"
    )
    return known.get(type(error).__name__, named)
