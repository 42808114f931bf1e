"""A service account of Google: its key file, and who takes what it signs, as Google does."""

from __future__ import annotations

import json
import secrets
from functools import lru_cache

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

EMAIL = "launcher@tenuto-tests.iam.gserviceaccount.com"


@lru_cache(maxsize=1)
def _keys() -> tuple[str, str]:
    """Private and public, PEM: one for all tests, as it takes a moment to make."""
    key = rsa.generate_private_key(65_537, 2_048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()  # fmt: skip
    return private, public


class Account:
    """Of one stand-in."""

    def __init__(self) -> None:
        self._tokens = set[str]()

    def key_file(self, token_address: str) -> str:
        return json.dumps(
            {
                "type": "service_account", "project_id": "tenuto-tests", "private_key_id": "key-1", "private_key": _keys()[0],
                "client_email": EMAIL, "client_id": "1", "token_uri": token_address,
            }
        )  # fmt: skip

    async def token(self, request: web.Request) -> web.Response:
        """The address where a signed statement is exchanged for a token."""
        given = await request.post()
        if given.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        if not self._signed(str(given.get("assertion"))):
            return web.json_response({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, status=400)
        token = secrets.token_hex()
        self._tokens.add(token)
        return web.json_response({"access_token": token, "expires_in": 3_600, "token_type": "Bearer"})

    def admits(self, header: str) -> bool:
        """Either such a token, or a statement that is itself signed for the API."""
        kind, _, token = header.partition(" ")
        return kind == "Bearer" and (token in self._tokens or self._signed(token))

    @staticmethod
    def _signed(statement: str) -> bool:
        try:
            claims = jwt.decode(statement, certs=_keys()[1])
        except ValueError:
            return False
        return bool(claims.get("iss") == EMAIL)
