"""Time of each token's last use: kept in memory, and written seldom."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from tenuto.kernel.database_errors import DATABASE_FAILED

WRITE_SECONDS = 60.0
"""Time between writes: one statement for all tokens that were used meanwhile; the last uses are lost if the gateway is killed."""
SWEEP_WRITES = 60
"""Number of writes after which the uses of removed tokens are forgotten."""


class TokenUses:
    def __init__(self, pool: Any, write_seconds: float = WRITE_SECONDS) -> None:
        """`pool`: asyncpg's."""
        self._pool, self._write_seconds = pool, write_seconds
        self._unwritten: dict[str, int] = {}

    def mark(self, token_hash: str, now_us: int) -> None:
        """Notes a use of a token. It must exist, so that their number is bounded."""
        self._unwritten[token_hash] = now_us

    async def last(self, token_hashes: Sequence[str]) -> dict[str, int]:
        """Hash -> time of the last use in microseconds since 1970, if known."""
        rows = await self._pool.fetch("SELECT token_hash, used_us FROM token_uses WHERE token_hash = ANY($1)", token_hashes)
        found = {row["token_hash"]: row["used_us"] for row in rows}
        return found | {key: self._unwritten[key] for key in token_hashes if key in self._unwritten}

    async def run(self, known: Callable[[], Sequence[str]]) -> None:
        """Writes until cancelled. `known`: the hashes of all tokens."""
        writes = 0
        while True:
            with contextlib.suppress(*DATABASE_FAILED):  # they are written the next time
                if writes % SWEEP_WRITES == 0:
                    await self._pool.execute("DELETE FROM token_uses WHERE NOT token_hash = ANY($1)", list(known()))
                await self.write()
            writes += 1
            await asyncio.sleep(self._write_seconds)

    async def write(self) -> None:
        taken = dict(self._unwritten)
        if not taken:
            return
        await self._pool.execute(
            """INSERT INTO token_uses SELECT * FROM unnest($1::text[], $2::bigint[])
               ON CONFLICT (token_hash) DO UPDATE SET used_us = excluded.used_us""",
            list(taken),
            list(taken.values()),
        )
        self._unwritten = {key: at for key, at in self._unwritten.items() if taken.get(key) != at}
