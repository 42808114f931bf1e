"""Wakes whoever waits for a change."""

from __future__ import annotations

import asyncio


class Changed:
    """Take `next()`, look at the thing, then wait for the event taken: a change in between is not missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        return self._event

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()
