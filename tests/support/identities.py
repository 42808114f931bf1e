"""A provider of identities that runs beside a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from joserfc.jwk import RSAKey

from tests.support.gateway_world import World


@dataclass
class IdP:
    port: int
    key: RSAKey
    """With which it signs."""

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}/o"


@contextmanager
def running(directory: Path, client_id: str, secret: str, users: Mapping[str, tuple[str, list[str]]]) -> Iterator[IdP]:
    """`users`: name -> password and groups."""
    key = RSAKey.generate_key(2048)
    given = {
        "client_id": client_id,
        "client_secret": secret,
        "users": users,
        "key": key.as_pem(private=True).decode(),
        "database": str(directory / "db.sqlite"),
    }
    program = Path(__file__).with_name("oidc_provider.py")
    process = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(given, process.stdin)
        process.stdin.close()
        process.stdin = None
        yield IdP(int(process.stdout.readline()), key)
    finally:
        process.kill()
        process.communicate()


async def told(idp: IdP, path: str, content: bytes) -> None:
    """By the provider's own administrator."""
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.post(f"http://127.0.0.1:{idp.port}/{path}", content=content)).status_code == 200


async def known_to(idp: IdP, world: World) -> None:
    await told(idp, "redirect", f"{str(world.http.base_url).rstrip('/')}/api/v1/sso/callback".encode())
