"""What is kept of a provider of identities, where reading it fails in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc.jwk import OKPKey

from tenuto.services.gateway.people.adapters.identity_provider import AWAY, Provider, SsoAway

ISSUER = "https://id.example.org"
KEY = OKPKey.generate_key("Ed25519").as_dict(private=False) | {"kid": "1"}
DOCUMENT = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"} | {
    name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint")
}


async def test_keys_that_could_not_be_read_are_read_again_at_the_next_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def answer(url: str) -> dict[str, Any]:
        asked.append(url)
        if url == DOCUMENT["jwks_uri"] and asked.count(url) == 1:
            raise SsoAway(AWAY, "away")
        return {"keys": [KEY]} if url == DOCUMENT["jwks_uri"] else DOCUMENT

    provider = Provider(ISSUER, "tenuto", "", "openid", now=lambda: 1_000_000.0)
    monkeypatch.setattr(provider, "_json", answer)
    with pytest.raises(SsoAway):
        await provider.address(f"{ISSUER}/back", "state", "nonce", "verifier" * 8)
    assert "code_challenge" in await provider.address(f"{ISSUER}/back", "state", "nonce", "verifier" * 8)
    assert asked.count(DOCUMENT["jwks_uri"]) == 2
    await provider.address(f"{ISSUER}/back", "state", "nonce", "verifier" * 8)
    assert len(asked) == 4, "then they are kept"
