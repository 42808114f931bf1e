"""Writes the signed end of the log outside the database at intervals, and compares the log with these anchors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from tenuto.kernel.anchor_targets import AnchorTarget, targets
from tenuto.kernel.backoff import Backoff, Seldom
from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog, LogUnavailable, Tampered
from tenuto.kernel.log_witnesses import cut
from tenuto.kernel.settings import Settings, SettingsError
from tenuto.kernel.storage.stores import Stores
from tenuto.schemas.anchors import Anchor, is_signed, sign
from tenuto.services.gateway.http import tokens

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""Wait before a note that no target took is tried again; doubles up to the time between notes."""


class Anchors:
    def __init__(self, settings: Settings, log: EventLog, clock: Clock, stores: Stores) -> None:
        """Raises SettingsError, TokenError."""
        self._log, self._clock, self._seconds = log, clock, settings.anchor_seconds
        self.targets: tuple[AnchorTarget, ...] = targets(settings.anchor_targets, stores)
        if self.targets and not settings.anchor_key_file:
            raise SettingsError(
                "TENUTO_ANCHOR_TARGETS is set, but TENUTO_ANCHOR_KEY_FILE is not; name a file for the signing key."
            )
        self._key = tokens.load_or_make(Path(settings.anchor_key_file)) if settings.anchor_key_file else ""
        self._noted = 0
        self._seldom = Seldom(logger)

    async def run(self) -> None:
        """Writes an anchor at the start, and then at intervals if the log has grown, until cancelled."""
        backoff = Backoff(RETRY_SECONDS, max(RETRY_SECONDS, self._seconds))
        while True:
            wait_seconds = self._seconds
            if self.targets and self._seconds > 0:
                try:
                    failed = await self._note_if_grown()
                except LogUnavailable as error:
                    failed = {"the log": str(error)}
                if failed:
                    wait_seconds = backoff.failed()
                    reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
                    self._seldom.warn(f"the end of the log could not be noted everywhere: {reasons}")
                else:
                    backoff.worked()
                    self._seldom.over("the end of the log is noted again")
            await asyncio.sleep(wait_seconds or RETRY_SECONDS)

    async def _note_if_grown(self) -> dict[str, str]:
        if await self._log.head() == self._noted:
            return {}
        anchor, failed = await self.note()
        if anchor is not None and not failed:
            self._noted = anchor.position
        return failed

    async def note(self) -> tuple[Anchor | None, dict[str, str]]:
        """The anchor (None: the log is empty), and by target the reason why it was not stored there. Raises LogUnavailable."""
        head = await self._log.head()
        hashes = await self._log.hashes([head])
        if head not in hashes:
            return None, {}
        anchor = sign(head, hashes[head], self._clock.now_us(), self._key)
        failed: dict[str, str] = {}
        for target in self.targets:
            try:
                await asyncio.to_thread(target.keep, anchor)
            except OSError as error:
                failed[target.name] = str(error) or type(error).__name__
        return anchor, failed

    async def compare(self, given: Sequence[Anchor]) -> tuple[Tampered | None, int, list[str]]:
        """The first mismatch, the number of anchors compared, and the targets that could not be read. Raises LogUnavailable."""
        found: list[tuple[str, Anchor]] = [("the given file", anchor) for anchor in given]
        unread: list[str] = []
        for target in self.targets:
            try:
                found += [(target.name, anchor) for anchor in await asyncio.to_thread(target.read) or ()]
            except OSError as error:
                unread.append(f"{target.name} could not be read: {error}")
        # Signatures first: an anchor that anybody could have written proves nothing about the log.
        for where, anchor in found:
            if not is_signed(anchor, self._key):
                reason = f"{where} holds an anchor of position {anchor.position} that was not signed with this cluster's key"
                return Tampered(anchor.position, reason), len(found), unread
        hashes = await self._log.hashes(sorted({anchor.position for _, anchor in found}))
        head = await self._log.head()
        for where, anchor in sorted(found, key=lambda item: item[1].position):
            if anchor.position > head:
                return cut(head, f"{where} has noted it up to {anchor.position}"), len(found), unread
            if hashes.get(anchor.position, b"").hex() != anchor.hash:
                reason = f"the log was another one up to here when {where} noted it"
                return Tampered(anchor.position, reason), len(found), unread
        return None, len(found), unread
