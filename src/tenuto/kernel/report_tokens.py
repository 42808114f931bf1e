"""Tokens by which an agent proves that an allocation was assigned to it, and secrets by which the parts of a gang recognise each
other.

Each is derived from a key that only services read, so none of them is stored, and none is in the record. The launcher sends an
agent those of its assignments; receivers of reports compute the tokens again.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import asyncpg

from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.head_watch import RETRY_SECONDS, RETRY_SECONDS_MAX

logger = logging.getLogger(__name__)

KEY_BYTES = 32
CLUSTER_CHARACTERS = 16
TOKENS_KNOWN_MAX = 10_000
"""Most derived tokens kept in memory: deriving one costs as much as reading a report."""


class ReportTokens:
    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self.token = lru_cache(TOKENS_KNOWN_MAX)(self._derive)

    def _derive(self, agent_id: str, allocation_id: str) -> str:
        # The separator is unambiguous: neither id has a zero character.
        return hmac.new(self._key, f"{agent_id}\0{allocation_id}".encode(), sha256).hexdigest()

    def tokens(self, agent_id: str, allocation_ids: Iterable[str]) -> dict[str, str]:
        return {allocation_id: self.token(agent_id, allocation_id) for allocation_id in allocation_ids}

    def gang_secret(self, allocation_id: str) -> str:
        """Secret of a gang, the same for all its agents. No agent's token equals it, because no agent's id is empty."""
        return self._derive("", allocation_id)

    @property
    def cluster(self) -> str:
        """Id of the cluster, which lasts as long as its key. It is no secret, and equals no token: those are longer."""
        return self._derive("", "")[:CLUSTER_CHARACTERS]

    def fits(self, token: str, agent_id: str, allocation_id: str) -> bool:
        if not token.isascii():
            return False
        return hmac.compare_digest(token, self.token(agent_id, allocation_id))

    def fits_digest(self, digest: bytes, agent_id: str, allocation_id: str) -> bool:
        """True if `digest` is `digest_of` the allocation's token."""
        return hmac.compare_digest(digest, digest_of(self.token(agent_id, allocation_id)))


def digest_of(token: str) -> bytes:
    """Digest that is kept of a token: it can be recognised by it, but not recovered."""
    return sha256(token.encode()).digest()


async def load_report_tokens(pool: asyncpg.Pool[Any]) -> ReportTokens:
    """Tokens of the cluster's key, which is made at the first call. Waits for the database as long as it takes."""
    backoff, seldom = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX), Seldom(logger)
    while True:
        try:
            await pool.execute("INSERT INTO report_key (key) VALUES ($1) ON CONFLICT DO NOTHING", secrets.token_hex(KEY_BYTES))
            return ReportTokens(await pool.fetchval("SELECT key FROM report_key"))
        except DATABASE_AWAY as error:
            seldom.warn(f"the key of reports cannot be read: {str(error) or type(error).__name__}")
            await asyncio.sleep(backoff.failed())
