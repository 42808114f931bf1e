"""Reports of a process to the gateway: the positions of its rules and the events that they park; the answer names parked events
to try again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.client import AsyncClient
from tenuto.client.errors import Away, Refused
from tenuto.kernel.reactions import ReceiverProgress

HEARTBEAT_SECONDS = 5.0
"""Interval of notes without news: a sixth of the time after which the gateway calls a process silent."""
PAUSE_SECONDS = 0.05
"""Pause between two notes: rules that finish within it are noted together."""
AWAY_SECONDS_MAX = 15.0
REASON_CHARACTERS_MAX = 2_000


class Superseded(Exception):
    """Another process of this automation was started later, or the automation was removed."""


def _body(rule: str, progress: ReceiverProgress) -> dict[str, Any]:
    return {
        "rule": rule,
        "position": progress.position,
        "attempts": progress.attempts,
        "problem": progress.problem[:REASON_CHARACTERS_MAX],
        "next_us": progress.next_us,
    }


@dataclass(frozen=True)
class Parking:
    rule: str
    position: int
    event_type: str
    reason: str
    noted: asyncio.Future[None]


@dataclass(frozen=True)
class Retry:
    number: int
    rule: str
    position: int


class Ledger:
    """Ledger of a process. The progress of its rules changes, and they call `changed`; one task notes it."""

    def __init__(self, client: AsyncClient, name: str, run: int, positions: Mapping[str, int]) -> None:
        """`positions` of the rules, as the gateway has them."""
        self._client, self._path, self._run = client, f"/automations/{name}", run
        self.progress = {rule: ReceiverProgress(position) for rule, position in positions.items()}
        self._noted = self._bodies()
        self._parking: list[Parking] = []
        self._handled: list[int] = []
        self._asked: set[int] = set()
        self._wake = asyncio.Event()
        self.retry: Callable[[Retry], None] = lambda retry: None

    def changed(self) -> None:
        self._wake.set()

    def handled(self, number: int) -> None:
        """Notes that a parked event was tried again and is handled."""
        self._handled.append(number)
        self._wake.set()

    async def park(self, rule: str, position: int, event_type: str, reason: str) -> None:
        """Parks an event; returns when that is noted. Raises Refused if too many are parked."""
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parking.append(Parking(rule, position, event_type, reason[:REASON_CHARACTERS_MAX], noted))
        self._wake.set()
        await noted

    async def run(self) -> None:
        """Runs until cancelled. Raises Superseded."""
        away = 1.0
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            try:
                await self.note()
                away = 1.0
            except Away:
                await asyncio.sleep(away * random.uniform(0.5, 1.0))
                away = min(2 * away, AWAY_SECONDS_MAX)
                self._wake.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def note(self, *, ended: bool = False) -> None:
        """Sends all news in one request. Raises Superseded, and Away if it may be tried again."""
        self._wake.clear()
        now = self._bodies()
        parking, handled = list(self._parking), list(self._handled)
        body = {
            "run": self._run,
            "rules": [item for rule, item in now.items() if item != self._noted[rule]],
            "parked": [
                {"rule": item.rule, "position": item.position, "event_type": item.event_type, "reason": item.reason}
                for item in parking
            ],
            "handled": handled,
            "ended": ended,
        }
        try:
            answer = await self._client.patch(self._path, body)
        except Refused as error:
            if error.word == "conflict":
                raise Superseded(str(error)) from None
            if not parking:
                raise
            self._settle(parking, error)
            self._wake.set()
            return
        self._noted = now
        self._handled = self._handled[len(handled) :]
        self._settle(parking, None)
        self._asked -= set(handled)
        for item in answer["retries"]:
            retry = Retry(item["number"], item["rule"], item["position"])
            if retry.number not in self._asked and retry.number not in self._handled:
                self._asked.add(retry.number)
                self.retry(retry)

    def tried(self, number: int) -> None:
        """Notes that a parked event was tried again and is parked again: it may be requested once more."""
        self._asked.discard(number)

    def _bodies(self) -> dict[str, dict[str, Any]]:
        return {rule: _body(rule, progress) for rule, progress in self.progress.items()}

    def _settle(self, parking: list[Parking], error: Exception | None) -> None:
        self._parking = self._parking[len(parking) :]
        for item in parking:
            if item.noted.done():
                continue
            if error is None:
                item.noted.set_result(None)
            else:
                item.noted.set_exception(error)
