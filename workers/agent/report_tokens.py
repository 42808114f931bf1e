"""Tokens that this agent's reports carry, by allocation: the launcher sends them with the assignments. Workers never see them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping

from tenuto.workers.agent.database import transaction


class TokenStore:
    """Tokens on disk and in memory. Methods that write are called through one `Disk`; `of` reads memory only."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, str] = dict(connection.execute("SELECT allocation_id, token FROM report_tokens"))
        self.complete = asyncio.Event()
        """Set once no more tokens of present allocations are expected; reports may be published from then on."""

    def of(self, allocation_id: str) -> str:
        """Token of an allocation; empty if it is not known."""
        return self._known.get(allocation_id, "")

    def lacks(self, allocation_ids: Iterable[str]) -> bool:
        return any(allocation_id not in self._known for allocation_id in allocation_ids)

    def new(self, tokens: Mapping[str, str]) -> dict[str, str]:
        """Tokens that are not known yet."""
        return {key: token for key, token in tokens.items() if self._known.get(key) != token}

    def note(self, tokens: Mapping[str, str]) -> None:
        """Stores tokens. The launcher repeats them, so a power failure may undo this."""
        with transaction(self._connection, power_safe=False):
            self._connection.executemany("INSERT OR REPLACE INTO report_tokens VALUES (?, ?)", list(tokens.items()))
        self._known |= tokens

    def forget_all(self) -> None:
        """Forgets all tokens in memory; those on disk are already deleted."""
        self._known.clear()

    def forget(self, allocation_ids: Iterable[str]) -> None:
        gone = [allocation_id for allocation_id in allocation_ids if allocation_id in self._known]
        if not gone:
            return
        with transaction(self._connection, power_safe=False):
            self._connection.executemany("DELETE FROM report_tokens WHERE allocation_id = ?", [(key,) for key in gone])
        for key in gone:
            del self._known[key]
