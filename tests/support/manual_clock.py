"""A clock that tests move by hand."""

from __future__ import annotations

import random
from uuid import UUID


class ManualClock:
    """Starts at `start_us`; `advance` moves it. Ids and seeds come from `seed`, so a run can be repeated."""

    def __init__(self, start_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self._now_us = start_us
        self._random = random.Random(seed)

    def advance(self, seconds: float) -> None:
        self._now_us += int(seconds * 1_000_000)

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._now_us / 1_000_000

    def new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def new_seed(self) -> int:
        return self._random.getrandbits(63)
